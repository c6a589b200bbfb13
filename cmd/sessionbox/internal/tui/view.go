package tui

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
)

// View is the screen: never wider or higher than the terminal.
func (m *model) View() tea.View {
	v := tea.NewView(strings.Join(m.screen(), "\n"))
	v.AltScreen = true
	return v
}

// Lines around the tree: a title, the heads of the columns, the status. On a very
// low screen the tree comes before them.
func (m *model) withStatus() bool { return m.height >= 2 }
func (m *model) withHeads() bool  { return m.height >= 4 }
func (m *model) withTitle() bool  { return m.height >= 6 }

// body is how many lines of the tree are seen.
func (m *model) body() int {
	n := m.height
	for _, taken := range []bool{m.withTitle(), m.withHeads(), m.withStatus()} {
		if taken {
			n--
		}
	}
	return max(1, n)
}

func (m *model) screen() []string {
	var lines []string
	if m.withTitle() {
		lines = append(lines, m.paint(bold, cut(m.title(), m.width)))
	}
	n := m.body()
	switch {
	case m.question != nil:
		if m.withHeads() {
			n++
		}
		lines = append(lines, full(m.questionLines(n), n)...)
	case m.help:
		if m.withHeads() {
			n++
		}
		lines = append(lines, full(m.helpLines(), n)...)
	default:
		columns := layout(m.width)
		if m.withHeads() {
			lines = append(lines, m.paint(dim, m.heads(columns)))
		}
		lines = append(lines, full(m.tree(columns), n)...)
	}
	if m.withStatus() {
		lines = append(lines, m.statusLine())
	}
	return lines
}

// full makes it n lines.
func full(lines []string, n int) []string {
	lines = lines[:min(n, len(lines))]
	return append(lines, make([]string, n-len(lines))...)
}

func (m *model) title() string {
	if !m.looked {
		return "sessionbox"
	}
	var processes, left int
	for i := range m.snap.Sessions {
		processes += m.snap.Sessions[i].Processes
		left += m.snap.Sessions[i].Leftovers
	}
	parts := []string{"sessionbox", count(len(m.snap.Sessions), "session", "sessions"), count(processes, "process", "processes")}
	if left > 0 {
		parts = append(parts, fmt.Sprintf("%d left over", left))
	}
	parts = append(parts, "by "+m.by.String(), fmt.Sprintf("every %v", m.every))
	return strings.Join(parts, "  ")
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func (m *model) heads(columns []column) string {
	w := treeWidth(m.width, columns)
	parts := []string{fit("  SESSION, TASK, PROCESS", w)}
	for _, c := range columns {
		parts = append(parts, c.fit(c.head))
	}
	return cut(strings.Join(parts, " "), m.width)
}

func (c *column) fit(text string) string {
	if c.left {
		return fit(text, c.width)
	}
	return fitRight(text, c.width)
}

// tree are the lines that are seen.
func (m *model) tree(columns []column) []string {
	switch {
	case !m.looked:
		return []string{cut("  looking …", m.width)}
	case len(m.snap.Sessions) == 0:
		return []string{cut("  No session is open. `sessionbox run -- COMMAND` opens one.", m.width)}
	case len(m.rows) == 0:
		return []string{cut("  Nothing matches. Esc shows all.", m.width)}
	}
	var lines []string
	for i := m.offset; i < min(len(m.rows), m.offset+m.body()); i++ {
		lines = append(lines, m.line(&m.rows[i], i == m.at, columns))
	}
	return lines
}

// line is one line: the mark of the cursor, the tree with name and command, the
// figures.
func (m *model) line(r *row, selected bool, columns []column) string {
	w := treeWidth(m.width, columns)
	mark := " "
	if selected {
		mark = ">"
	}
	fold := "  "
	switch {
	case r.open && r.folds():
		fold = "▾ "
	case r.folds():
		fold = "▸ "
	}
	head := mark + strings.Repeat("  ", r.depth) + fold
	name := r.name
	switch {
	case !r.isSession():
	case r.session.Box.Hibernated:
		name += " (hibernated)"
	case r.session.Box.Frozen:
		name += " (frozen)"
	}
	tree := fit(head+name+"  "+r.command, w)
	if m.color {
		tree = m.paintTree(r, selected, cut(head+name, w), tree)
	}
	var b strings.Builder
	b.WriteString(tree)
	for _, c := range columns {
		text := c.cell(r, c.width)
		b.WriteString(" " + m.paint(text.style, c.fit(text.text)))
	}
	return strings.TrimRight(b.String(), " ")
}

// paintTree paints the name in the colour of its state, or the whole when selected.
func (m *model) paintTree(r *row, selected bool, start, tree string) string {
	s := plain
	switch {
	case selected:
		return m.paint(reverse, tree)
	case len(r.session.Problems) > 0 && r.isSession():
		s = red
	case r.session.Box.Frozen:
		s = cyan
	case r.isSession():
		s = bold
	case r.task != nil && !running(r.task):
		s = yellow
	}
	rest, ok := strings.CutPrefix(tree, start)
	if !ok { // it was cut
		return m.paint(s, tree)
	}
	return m.paint(s, start) + rest
}

// questionLines are the question, what would end, as far as there is room, and the
// keys.
func (m *model) questionLines(n int) []string {
	q := m.question
	keys := cut("y: yes, end it   n: no", m.width)
	head := m.paint(red, cut(q.text, m.width))
	room := max(0, n-2)
	lines := []string{head}
	if n < 2 {
		return []string{m.paint(red, cut(q.text+" (y/n)", m.width))}
	}
	ends := q.ends
	if len(ends) > room {
		ends = ends[:max(0, room-1)]
	}
	for _, e := range ends {
		lines = append(lines, cut("  "+e, m.width))
	}
	if more := len(q.ends) - len(ends); more > 0 && room > 0 {
		lines = append(lines, cut(fmt.Sprintf("  and %d more", more), m.width))
	}
	return append(lines, m.paint(bold, keys))
}

func (m *model) helpLines() []string {
	var lines []string
	for _, l := range [][2]string{
		{"↑ ↓ j k", "move; PgUp, PgDn, g, G move further"},
		{"Enter Space", "open or close a session or task; → ← do, too"},
		{"f  t", "freeze the session, thaw it"},
		{"K", "kill the task, with all it started (asks)"},
		{"x", "close the session (asks)"},
		{"s", "sort by age, cpu, memory, name"},
		{"/", "show only what has a text in its name or command; Esc ends it"},
		{"q", "quit"},
		{"", ""},
		{"CPU", "of one processor, between two looks"},
		{"MEM", "memory that cannot be had back without killing or swapping"},
		{"FULL", "of the limit it meets first: █ its own, ▒ others', · free"},
		{"TREND", "of MEM, from the least to the most of what is seen"},
		{"PRESS", "share of the last 10 s in which something waited for memory"},
		{"LEFT", "processes that outlived their command"},
	} {
		lines = append(lines, cut("  "+fit(l[0], 12)+l[1], m.width))
	}
	return lines
}

// statusLine says what came of the last action or, if nothing, which keys there are.
func (m *model) statusLine() string {
	switch {
	case m.typing:
		return cut("filter: "+m.filter+"_", m.width)
	case m.question != nil:
		return ""
	case m.help:
		return m.paint(dim, cut("any key: back", m.width))
	case m.status.bad:
		return m.paint(red, cut(m.status.text, m.width))
	case m.status.text != "":
		return cut(m.status.text, m.width)
	case m.filter != "":
		return cut("filter: "+m.filter+"   Esc: show all", m.width)
	}
	return m.paint(dim, cut("Enter open  f freeze  t thaw  K kill  x close  / filter  s sort  ? help  q quit", m.width))
}
