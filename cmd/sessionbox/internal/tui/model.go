package tui

import (
	"context"
	"errors"
	"maps"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/render"
	"github.com/sessionbox/sessionbox/pkg/session"
)

// model is the state of the screen.
type model struct {
	ctx   context.Context
	src   Source
	every time.Duration
	color bool
	// after sends a message when some time has passed.
	after func(time.Duration, tea.Msg) tea.Cmd

	width, height int

	looked bool // at least once
	blind  bool // the latest look failed
	asked  int  // number of the latest look that was asked for
	snap   Snapshot
	past   past
	tops   []*node
	rows   []row

	open   map[string]bool // keys of the lines that are
	by     order
	filter string
	typing bool   // a filter
	cursor string // key of the line that is selected
	at     int    // its index, and the place of the next one when it goes
	offset int    // of the first line that is seen

	question *question
	help     bool
	status   status
	stopped  bool // by Ctrl-C
}

// status is the line at the bottom.
type status struct {
	text string
	bad  bool
}

// Messages.
type (
	// lookedMsg is the answer to a look.
	lookedMsg struct {
		number int
		snap   Snapshot
		err    error
	}
	// tickMsg says that the time for a look has come, unless one was asked for since
	// that with the number.
	tickMsg struct{ number int }
	// doneMsg says what came of an action; an empty text that it is well done.
	doneMsg struct {
		what, text string
		err        error
	}
)

func newModel(ctx context.Context, src Source, every time.Duration, color bool) *model {
	return &model{ctx: ctx, src: src, every: every, color: color, open: map[string]bool{}, width: 80, height: 24, after: later}
}

func later(d time.Duration, msg tea.Msg) tea.Cmd {
	return tea.Tick(d, func(time.Time) tea.Msg { return msg })
}

// Init asks for the first look.
func (m *model) Init() tea.Cmd { return m.look() }

// look looks in the background.
func (m *model) look() tea.Cmd {
	m.asked++
	number, open, all := m.asked, maps.Clone(m.open), m.filter != ""
	return func() tea.Msg {
		snap, err := m.src.Look(m.ctx, func(id string) bool { return all || open[id] })
		return lookedMsg{number, snap, err}
	}
}

// Update takes a message.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		m.scroll()
	case tea.KeyPressMsg:
		return m, m.key(msg)
	case lookedMsg:
		return m, m.see(msg)
	case tickMsg:
		if msg.number == m.asked {
			return m, m.look()
		}
	case askedMsg:
		m.ask(msg)
	case doneMsg:
		m.report(msg)
		return m, m.look()
	}
	return m, nil
}

// see takes a look, unless a later one has come before it.
func (m *model) see(l lookedMsg) tea.Cmd {
	switch {
	case l.err != nil:
		m.blind = true
		m.report(doneMsg{what: "look", err: l.err})
	case l.snap.At.Before(m.snap.At):
	default:
		if m.blind {
			m.blind, m.status = false, status{}
		}
		m.looked = true
		m.snap = l.snap
		r := m.past.add(l.snap, m.every)
		m.tops = forest(&m.snap, r, m.past.trends)
		m.arrange()
		m.recheck()
	}
	if l.number == m.asked {
		return m.after(m.every, tickMsg{m.asked})
	}
	return nil
}

// arrange makes the lines anew. The cursor stays on its line; when that has gone, it
// stays where it is.
func (m *model) arrange() {
	m.rows = rows(m.tops, m.open, m.filter, m.by)
	for i := range m.rows {
		if m.rows[i].key == m.cursor {
			m.at = i
		}
	}
	m.move(0)
}

// move moves the cursor.
func (m *model) move(by int) {
	m.at = max(0, min(m.at+by, len(m.rows)-1))
	m.cursor = ""
	if len(m.rows) > 0 {
		m.cursor = m.rows[m.at].key
	}
	m.scroll()
}

// scroll keeps the cursor on the screen, and the screen full.
func (m *model) scroll() {
	n := m.body()
	m.offset = max(0, min(m.offset, len(m.rows)-n))
	m.offset = max(min(m.offset, m.at), m.at-n+1, 0)
}

// selected is the line with the cursor, nil if there is none.
func (m *model) selected() *row {
	if m.at >= len(m.rows) {
		return nil
	}
	return &m.rows[m.at]
}

// report says what came of an action.
func (m *model) report(d doneMsg) {
	if d.err == nil {
		m.status = status{text: render.Clean(d.text)}
		return
	}
	text := d.what + ": " + d.err.Error()
	if e, ok := errors.AsType[*session.Error](d.err); ok && e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	m.status = status{render.Clean(text), true}
}
