package render

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
)

// Stats writes the table of what sessions use.
func Stats(w io.Writer, all []session.Stats, st Style) error {
	t := table{columns: []column{{"NAME", false}, {"CPU", true}, {"MEM", true}, {"LIMIT", false}, {"FULL", true}, {"SWAP", true},
		{"PIDS", true}, {"PRESS", true}, {"OOM", true}, {"LEFT", true}, {"SOURCE", false}}}
	for i := range all {
		s := &all[i]
		u := &s.Usage
		limit, full := limitCells(u.Limit)
		if st.narrow() {
			limit.text = fit(limit.text, narrowLimit)
		}
		t.add(statsName(s, st), percentCell(s.CPUPercent, nil), bytesCell(u.MemoryBytes), limit, full, bytesCell(u.SwapBytes),
			countCell(u.Pids, plain), percentCell(u.PressurePercent, worse(1, 10)), countCell(u.OOMKills, red),
			number(s.Leftovers, false, yellow), sourceCell(u.Source))
	}
	t.shed(st, "SWAP", "PRESS", "OOM", "PIDS", "SOURCE", "LIMIT", "LEFT", "FULL")
	if err := t.write(w, st); err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(s session.Stats) bool { return s.Frozen }) {
		_, err := fmt.Fprintln(w, st.paint(cyan, "* frozen"))
		return err
	}
	return nil
}

// Widths on a narrow terminal.
const narrowName, narrowLimit = 14, 13

func statsName(s *session.Stats, st Style) cell {
	i := session.Info{Name: s.Name, ID: s.ID, State: s.State, Box: session.BoxInfo{Frozen: s.Frozen}}
	c := nameCell(&i, Style{})
	if s.Name == "" {
		c.paint = bold
	}
	c.text = Called(&i)
	switch {
	case st.narrow():
		c.text = fit(c.text, narrowName)
	case st.cut():
		c.text = fit(c.text, nameWidth)
	}
	c.text += markOf(&i)
	return c
}

// Percent writes a share as short as it is understood: 0%, 3.2%, 87%, 150%.
func Percent(p float64) string {
	switch {
	case p < 0.05:
		return "0%"
	case p < 9.95:
		return strconv.FormatFloat(p, 'f', 1, 64) + "%"
	}
	return strconv.FormatFloat(p, 'f', 0, 64) + "%"
}

// Limit writes a limit with whose it is, if not the session's own.
func Limit(l *session.LimitInfo) string {
	text := memlimit.FormatBytes(l.LimitBytes)
	if l.Of != memlimit.BoundOwn {
		text += " " + Clean(l.Of)
	}
	return text
}

// worse paints what is above one of two marks.
func worse(warn, bad float64) func(float64) paint {
	return func(p float64) paint {
		switch {
		case p >= bad:
			return red
		case p >= warn:
			return yellow
		}
		return plain
	}
}

// unknown is a figure that cannot be had here.
func unknown() cell { return cell{text: "-", paint: dim} }

func percentCell(p *float64, how func(float64) paint) cell {
	if p == nil {
		return unknown()
	}
	c := cell{text: Percent(*p)}
	if how != nil {
		c.paint = how(*p)
	}
	return c
}

func bytesCell(n *uint64) cell {
	if n == nil {
		return unknown()
	}
	return cell{text: memlimit.FormatBytes(*n)}
}

// countCell paints what is not 0.
func countCell(n *uint64, p paint) cell {
	switch {
	case n == nil:
		return unknown()
	case *n == 0:
		p = plain
	}
	return cell{text: strconv.FormatUint(*n, 10), paint: p}
}

func limitCells(l *session.LimitInfo) (limit, full cell) {
	if l == nil {
		return unknown(), unknown()
	}
	return cell{text: Limit(l)}, percentCell(&l.UsedPercent, worse(80, 90))
}

func sourceCell(source string) cell {
	if source == "" {
		return unknown()
	}
	return cell{text: source, paint: dim}
}
