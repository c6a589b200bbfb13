package tui

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	tea "charm.land/bubbletea/v2"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/render"
	"github.com/sessionbox/sessionbox/pkg/session"
)

// question is asked before something ends.
type question struct {
	id   string // of the session
	task int    // 0: all of it
	text string
	ends []string // a line for each thing that would end
	yes  func() tea.Cmd
}

// askedMsg brings the question, when it is known what would end.
type askedMsg struct {
	what string
	q    *question
	err  error
}

func (m *model) prepareKill(r *row) tea.Cmd {
	id, task, ref := r.session.ID, r.taskNumber(), r.ref()
	return m.prepare("kill "+ref, func(ctx context.Context) (*question, error) {
		list, err := m.src.WouldKill(ctx, id, task)
		q := &question{id: id, task: task, text: fmt.Sprintf("Kill task %s? This ends %s", ref, processes(len(list)))}
		for i := range list {
			q.ends = append(q.ends, processLine(&list[i]))
		}
		q.yes = func() tea.Cmd {
			return m.act("kill "+ref, "killed "+ref, func(ctx context.Context) error { return m.src.Kill(ctx, id, task) })
		}
		return q, err
	})
}

func (m *model) prepareClose(r *row) tea.Cmd {
	id, name := r.session.ID, render.Clean(render.Called(r.session))
	return m.prepare("close "+name, func(ctx context.Context) (*question, error) {
		receipt, err := m.src.WouldClose(ctx, id)
		q := &question{id: id, text: fmt.Sprintf("Close session %s? This ends %s", name, processes(receipt.Swept()))}
		q.ends = receiptLines(&receipt, "")
		q.yes = func() tea.Cmd {
			m.status = status{text: "close " + name + " …"}
			return func() tea.Msg {
				receipt, err := m.src.Close(m.ctx, id)
				return doneMsg{"close " + name, render.ReceiptLine(&receipt), err}
			}
		}
		return q, err
	})
}

// prepare finds out in the background what would end.
func (m *model) prepare(what string, find func(context.Context) (*question, error)) tea.Cmd {
	m.status = status{text: what + " …"}
	return func() tea.Msg {
		q, err := find(m.ctx)
		return askedMsg{what, q, err}
	}
}

// ask puts the question, unless another one is on the screen.
func (m *model) ask(a askedMsg) {
	switch {
	case a.err != nil:
		m.report(doneMsg{what: a.what, err: a.err})
	case m.question == nil:
		m.question, m.status, m.help, m.typing = a.q, status{}, false, false
	}
}

// answer takes a key while there is a question: only y says yes.
func (m *model) answer(key string) tea.Cmd {
	q := m.question
	switch key {
	case "y", "Y":
		m.question = nil
		return q.yes()
	case "n", "N", "esc", "q", "enter":
		m.question = nil
		m.status = status{text: "nothing was ended"}
	}
	return nil
}

// recheck takes back a question about what has ended meanwhile.
func (m *model) recheck() {
	q := m.question
	if q == nil {
		return
	}
	i := slices.IndexFunc(m.snap.Sessions, func(i session.Info) bool { return i.ID == q.id })
	if i < 0 || q.task != 0 && !slices.ContainsFunc(m.snap.Sessions[i].Tasks, func(t session.TaskInfo) bool { return t.N == q.task && (running(&t) || t.Leftovers > 0) }) {
		m.question = nil
		m.status = status{text: "it has ended meanwhile"}
	}
}

func processes(n int) string {
	switch n {
	case 0:
		return "nothing: no process is left"
	case 1:
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}

func processLine(p *session.Process) string {
	return strconv.Itoa(p.PID) + " " + render.Command(p.Argv, true)
}

// receiptLines are what a close would end, sessions inside included.
func receiptLines(r *session.Receipt, in string) []string {
	var all []string
	for i := range r.Processes {
		all = append(all, in+processLine(&r.Processes[i].Process))
	}
	for i := range r.Strays {
		all = append(all, in+processLine(&r.Strays[i].Process)+" [outside of its box]")
	}
	for i := range r.Nested {
		name := r.Nested[i].Name
		if name == "" {
			name = r.Nested[i].ID
		}
		all = append(all, in+"session "+render.Clean(name)+":")
		all = append(all, receiptLines(&r.Nested[i], in+"  ")...)
	}
	return all
}
