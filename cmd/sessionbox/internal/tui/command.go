package tui

import (
	"context"

	tea "charm.land/bubbletea/v2"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/render"
)

// command does something to the session or task of the selected line.
func (m *model) command(key string) tea.Cmd {
	r := m.selected()
	if r == nil {
		return nil
	}
	id, name := r.session.ID, render.Clean(render.Called(r.session))
	switch key {
	case "f":
		return m.act("freeze "+name, "froze "+name, func(ctx context.Context) error { return m.src.Freeze(ctx, id) })
	case "t":
		return m.act("thaw "+name, "thawed "+name, func(ctx context.Context) error { return m.src.Thaw(ctx, id) })
	case "K":
		if r.taskNumber() == 0 {
			m.status = status{"kill: this is no task: open the session and select one", true}
			return nil
		}
		return m.prepareKill(r)
	case "x":
		return m.prepareClose(r)
	}
	return nil
}

// act does something in the background.
func (m *model) act(what, done string, do func(context.Context) error) tea.Cmd {
	m.status = status{text: what + " …"}
	return func() tea.Msg { return doneMsg{what, done, do(m.ctx)} }
}
