package render

import (
	"bufio"
	"io"
	"slices"
	"strings"
)

// cell is one entry of a table.
type cell struct {
	text  string
	paint paint
	// tail is kept when the cell is cut, and painted dim.
	tail string
}

func (c cell) width() int {
	w := width(c.text)
	if c.tail != "" {
		w += 1 + width(c.tail)
	}
	return w
}

// column of a table; the last one may be cut to the width of the terminal.
type column struct {
	head  string
	right bool
}

type table struct {
	columns []column
	rows    [][]cell
	indent  string
}

const gap = "  "

func (t *table) add(cells ...cell) { t.rows = append(t.rows, cells) }

// shed leaves out columns, as many as it takes for the table to fit: those named,
// one after the other, but first those of them that say nothing.
func (t *table) shed(st Style, names ...string) {
	drop := func(i int) {
		t.columns = slices.Delete(t.columns, i, i+1)
		for r := range t.rows {
			t.rows[r] = slices.Delete(t.rows[r], i, i+1)
		}
	}
	says := func(c cell) bool { return !slices.Contains([]string{"-", "0", "0B", "0%"}, c.text) }
	for _, dull := range []bool{true, false} {
		for _, name := range names {
			if !st.cut() || t.width() <= st.Width {
				return
			}
			i := slices.IndexFunc(t.columns, func(c column) bool { return c.head == name })
			if i >= 0 && (!dull || !slices.ContainsFunc(t.rows, func(row []cell) bool { return says(row[i]) })) {
				drop(i)
			}
		}
	}
}

// width is that of the whole table.
func (t *table) width() int {
	w := width(t.indent) - len(gap)
	for _, n := range t.widths() {
		w += n + len(gap)
	}
	return w
}

func (t *table) widths() []int {
	widths := make([]int, len(t.columns))
	for i, c := range t.columns {
		widths[i] = width(c.head)
	}
	for _, row := range t.rows {
		for i, c := range row {
			widths[i] = max(widths[i], c.width())
		}
	}
	return widths
}

// write writes the table. Its last column takes the rest of the line, unless it
// holds numbers.
func (t *table) write(w io.Writer, st Style) error {
	last := len(t.columns) - 1
	widths := t.widths()
	if st.cut() && !t.columns[last].right {
		used := width(t.indent)
		for i := range last {
			used += widths[i] + len(gap)
		}
		widths[last] = max(8, st.Width-used)
	}
	b := bufio.NewWriter(w)
	var line strings.Builder
	heads := make([]cell, len(t.columns))
	for i, c := range t.columns {
		heads[i] = cell{text: c.head, paint: dim}
	}
	for _, row := range append([][]cell{heads}, t.rows...) {
		line.Reset()
		line.WriteString(t.indent)
		for i, c := range row {
			t.writeCell(&line, st, i, c, widths[i])
		}
		b.WriteString(strings.TrimRight(line.String(), " "))
		b.WriteByte('\n')
	}
	return b.Flush()
}

func (t *table) writeCell(b *strings.Builder, st Style, i int, c cell, w int) {
	last := i == len(t.columns)-1
	text, tail := c.text, c.tail
	if last && st.cut() {
		if tail != "" {
			// It may have half of the room, and what the text leaves.
			tail = fit(tail, max(w/2, w-1-width(text)))
			text = fit(text, max(1, w-1-width(tail)))
		} else {
			text = fit(text, w)
		}
	}
	pad := ""
	if n := w - (cell{text: text, tail: tail}).width(); n > 0 {
		pad = strings.Repeat(" ", n)
	}
	if t.columns[i].right {
		b.WriteString(pad)
	}
	b.WriteString(st.paint(c.paint, text))
	if tail != "" {
		if text != "" {
			b.WriteByte(' ')
		}
		b.WriteString(st.paint(dim, tail))
	}
	if !last {
		if !t.columns[i].right {
			b.WriteString(pad)
		}
		b.WriteString(gap)
	}
}
