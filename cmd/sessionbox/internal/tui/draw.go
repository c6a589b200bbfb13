package tui

import (
	"math"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// style is how a text is painted, as in SGR; those of the tables of ls and stats.
type style string

const (
	plain   style = ""
	bold    style = "1"
	dim     style = "2"
	reverse style = "7"
	red     style = "1;31"
	yellow  style = "1;33"
	green   style = "32"
	cyan    style = "36"
)

func (m *model) paint(s style, text string) string {
	if !m.color || s == plain || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// fit makes a text exactly n columns wide: cut, or filled up.
func fit(text string, n int) string {
	text = cut(text, n)
	return text + strings.Repeat(" ", max(0, n-ansi.StringWidth(text)))
}

// fitRight does so with the text at the right.
func fitRight(text string, n int) string {
	text = cut(text, n)
	return strings.Repeat(" ", max(0, n-ansi.StringWidth(text))) + text
}

func cut(text string, n int) string {
	if n <= 0 {
		return ""
	}
	return ansi.Truncate(text, n, "…")
}

// bar shows how full a limit is, n columns wide: of what is used, mine and what is
// the others'.
func bar(mine, used, limit uint64, n int) string {
	columns := func(v uint64) int {
		if limit == 0 {
			return n
		}
		return min(n, int(math.Round(float64(v)/float64(limit)*float64(n))))
	}
	own := columns(min(mine, used))
	if own == 0 && mine > 0 && n > 0 {
		own = 1 // there is something
	}
	all := max(own, columns(used))
	return strings.Repeat("█", own) + strings.Repeat("▒", all-own) + strings.Repeat("·", n-all)
}

// spark draws the newest values, n columns wide. Its lowest line is the least of
// them; a change of less than a tenth does not fill it.
func spark(values []uint64, n int) string {
	values = values[max(0, len(values)-n):]
	if len(values) == 0 {
		return strings.Repeat(" ", n)
	}
	levels := []rune("▁▂▃▄▅▆▇█")
	least, most := values[0], values[0]
	for _, v := range values {
		least, most = min(least, v), max(most, v)
	}
	span := max(float64(most-least), float64(most)/10, 1)
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", n-len(values)))
	for _, v := range values {
		b.WriteRune(levels[int(math.Round(float64(v-least)/span*float64(len(levels)-1)))])
	}
	return b.String()
}
