package tui

import (
	"slices"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
)

// key does what a key says.
func (m *model) key(k tea.KeyPressMsg) tea.Cmd {
	name := k.String()
	switch name {
	case "ctrl+c":
		m.stopped = true
		return tea.Quit
	case "ctrl+z":
		return tea.Suspend
	}
	switch {
	case m.question != nil:
		return m.answer(name)
	case m.typing:
		return m.typed(k)
	case m.help:
		m.help = false
		return nil
	}
	m.status = status{}
	switch name {
	case "q":
		return tea.Quit
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup":
		m.move(-m.body())
	case "pgdown":
		m.move(m.body())
	case "home", "g":
		m.move(-len(m.rows))
	case "end", "G":
		m.move(len(m.rows))
	case "enter", "space":
		return m.unfold(func(r *row) bool { return !r.open })
	case "right", "l":
		return m.right()
	case "left", "h":
		return m.left()
	case "s":
		m.by = (m.by + 1) % orders
		m.arrange()
		m.status.text = "sorted by " + m.by.String()
	case "/":
		m.typing = true
	case "esc":
		return m.setFilter("")
	case "?":
		m.help = true
	default:
		return m.command(name)
	}
	return nil
}

// folds says whether there is, or may be, something below a line.
func (r *row) folds() bool {
	return r.more || slices.ContainsFunc(r.children, func(n *node) bool { return !n.isSession() })
}

// unfold opens or closes the selected line; what is below it is looked for.
func (m *model) unfold(open func(*row) bool) tea.Cmd {
	r := m.selected()
	if r == nil || !r.folds() {
		return nil
	}
	m.open[r.key] = open(r)
	if !m.open[r.key] {
		delete(m.open, r.key)
	}
	m.arrange()
	if r.more && m.open[r.key] {
		return m.look()
	}
	return nil
}

// right opens the line; on an open one it goes to the first below.
func (m *model) right() tea.Cmd {
	r := m.selected()
	if r != nil && r.open && m.at+1 < len(m.rows) && m.rows[m.at+1].depth > r.depth {
		m.move(1)
		return nil
	}
	return m.unfold(func(*row) bool { return true })
}

// left closes the line; on a closed one it goes to the one around it.
func (m *model) left() tea.Cmd {
	r := m.selected()
	if r == nil || r.open && r.folds() {
		return m.unfold(func(*row) bool { return false })
	}
	for i := m.at - 1; i >= 0; i-- {
		if m.rows[i].depth < r.depth {
			m.move(i - m.at)
			break
		}
	}
	return nil
}

// typed edits the filter.
func (m *model) typed(k tea.KeyPressMsg) tea.Cmd {
	switch k.String() {
	case "enter":
		m.typing = false
		return nil
	case "esc":
		m.typing = false
		return m.setFilter("")
	case "backspace":
		_, n := utf8.DecodeLastRuneInString(m.filter)
		return m.setFilter(m.filter[:len(m.filter)-n])
	case "ctrl+u":
		return m.setFilter("")
	}
	return m.setFilter(m.filter + k.Text)
}

// setFilter shows what matches. The first letter asks for the processes of all
// sessions, in which it may be found.
func (m *model) setFilter(filter string) tea.Cmd {
	began := m.filter == "" && filter != ""
	m.filter = filter
	m.arrange()
	if began {
		return m.look()
	}
	return nil
}
