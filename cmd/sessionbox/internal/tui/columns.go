package tui

import (
	"slices"
	"strconv"
	"time"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/render"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// cell is a text with its style.
type cell struct {
	text  string
	style style
}

func unknown() cell { return cell{"-", dim} }

// column is one of the figures, at the right of the tree.
type column struct {
	head  string
	width int
	left  bool // aligned to the left
	cell  func(r *row, width int) cell
}

// leastTree is what the tree takes of the line at least.
const leastTree = 20

// layout chooses the columns for a screen: all of them if it is wide; then the bar,
// the trend and others are left out, until there is room for the tree.
func layout(width int) []column {
	trend, full, limit := 6, 11, 0
	switch {
	case width >= 160:
		trend, full, limit = 30, 25, 24
	case width >= 110:
		trend, full, limit = 12, 15, 14
	}
	all := []column{
		{"CPU", 5, false, func(r *row, _ int) cell { return percent(r.cpu) }},
		{"MEM", 6, false, func(r *row, _ int) cell { return bytes(r.memory) }},
		{"FULL", full, false, fullCell},
		{"LIMIT", limit, true, limitCell},
		{"TREND", trend, false, trendCell},
		{"PRESS", 5, false, pressureCell},
		{"PIDS", 4, false, func(r *row, _ int) cell { return number(r.pids, r.proc != nil, plain) }},
		{"LEFT", 4, false, func(r *row, _ int) cell { return number(r.left, r.proc != nil || r.left == 0, yellow) }},
		{"AGE", 4, false, func(r *row, _ int) cell { return age(r.age) }},
	}
	all = slices.DeleteFunc(all, func(c column) bool { return c.width == 0 })
	at := func(head string) int { return slices.IndexFunc(all, func(c column) bool { return c.head == head }) }
	for _, less := range []string{"TREND", "bar", "PRESS", "AGE", "PIDS", "LEFT", "FULL", "CPU", "MEM"} {
		if treeWidth(width, all) >= leastTree {
			break
		}
		if less == "bar" {
			all[at("FULL")].width = 4
			continue
		}
		i := at(less)
		all = slices.Delete(all, i, i+1)
	}
	return all
}

// treeWidth is what the columns leave.
func treeWidth(width int, columns []column) int {
	for _, c := range columns {
		width -= c.width + 1
	}
	return width
}

func percent(p *float64) cell {
	if p == nil {
		return unknown()
	}
	return cell{render.Percent(*p), plain}
}

func bytes(n *uint64) cell {
	if n == nil {
		return unknown()
	}
	return cell{memlimit.FormatBytes(*n), plain}
}

func age(d time.Duration) cell {
	if d < 0 {
		return unknown()
	}
	return cell{render.Age(d), plain}
}

func number(n int, none bool, s style) cell {
	if none {
		return unknown()
	}
	return cell{strconv.Itoa(n), s}
}

// Widths of a bar's percentage, and of the least bar worth drawing.
const percentWidth, leastBar = 4, 4

// fullCell is the memory bar against the limit that binds, with how full it is.
func fullCell(r *row, width int) cell {
	if !r.isSession() {
		return cell{}
	}
	l := r.session.Usage.Limit
	if l == nil {
		return unknown()
	}
	c := cell{text: fitRight(render.Percent(l.UsedPercent), percentWidth)}
	switch {
	case l.UsedPercent >= 90:
		c.style = red
	case l.UsedPercent >= 80:
		c.style = yellow
	}
	if n := width - percentWidth - 1; n >= leastBar {
		c.text = bar(value(r.memory), l.UsedBytes, l.LimitBytes, n) + " " + c.text
	}
	return c
}

func limitCell(r *row, _ int) cell {
	if l := r.session.Usage.Limit; l != nil && r.isSession() {
		return cell{render.Limit(l), dim}
	}
	return cell{}
}

func trendCell(r *row, width int) cell {
	if !r.isSession() {
		return cell{}
	}
	return cell{spark(r.trend, width), cyan}
}

func pressureCell(r *row, _ int) cell {
	if !r.isSession() {
		return cell{}
	}
	p := r.session.Usage.PressurePercent
	c := percent(p)
	switch {
	case p == nil:
	case *p >= 10:
		c.style = red
	case *p >= 1:
		c.style = yellow
	}
	return c
}
