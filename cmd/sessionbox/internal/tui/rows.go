package tui

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// order is what lines beside one another are sorted by.
type order int

const (
	byAge order = iota // oldest first, as in ls
	byCPU
	byMemory
	byName
	orders // how many there are
)

func (o order) String() string { return [...]string{"age", "cpu", "memory", "name"}[o] }

// compare puts what is of most interest first.
func (o order) compare(a, b *node) int {
	switch o {
	case byCPU:
		return cmp.Compare(value(b.cpu), value(a.cpu))
	case byMemory:
		return cmp.Compare(value(b.memory), value(a.memory))
	case byName:
		return natural(a.name, b.name)
	}
	if a.began.IsZero() != b.began.IsZero() { // not known of what is broken
		return cmp.Compare(b.began.Unix(), a.began.Unix())
	}
	return a.began.Compare(b.began)
}

// natural has 9 before 10.
func natural(a, b string) int {
	m, aerr := strconv.Atoi(a)
	n, berr := strconv.Atoi(b)
	if aerr == nil && berr == nil {
		return cmp.Compare(m, n)
	}
	return strings.Compare(a, b)
}

func value[T uint64 | float64](p *T) T {
	if p == nil {
		return 0
	}
	return *p
}

// row is a line on the screen.
type row struct {
	*node
	depth int
	open  bool
}

// rows are the lines that are seen: below those that are open, and with a filter
// those that match, with what is around and below them.
func rows(tops []*node, open map[string]bool, filter string, by order) []row {
	var all []row
	filter = strings.ToLower(filter)
	var walk func(list []*node, depth int, filter string)
	walk = func(list []*node, depth int, filter string) {
		slices.SortStableFunc(list, by.compare)
		for _, n := range list {
			below, open := filter, open[n.key]
			if filter != "" {
				switch {
				case n.matches(filter):
					below = "" // with all that is below it
				case hits(n, filter):
					open = true
				default:
					continue
				}
			}
			all = append(all, row{n, depth, open})
			seen := n.children
			if !open { // a session inside is never hidden
				seen = slices.DeleteFunc(slices.Clone(seen), func(c *node) bool { return !c.isSession() })
			}
			walk(seen, depth+1, below)
		}
	}
	walk(tops, 0, filter)
	return all
}

// hits says whether something below a line matches.
func hits(n *node, filter string) bool {
	return slices.ContainsFunc(n.children, func(c *node) bool { return c.matches(filter) || hits(c, filter) })
}
