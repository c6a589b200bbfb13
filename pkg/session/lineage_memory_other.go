//go:build !linux

package session

import (
	"slices"

	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// holding is what each member of a leaf holds but our own helpers, by phys_footprint: that counts
// what is compressed, or in swap, too, and what is shared with whoever made it alone.
func (b *lineageBox) holding(p *darwinjob.Picture, leaf string) []memlimit.Process {
	members := slices.DeleteFunc(p.Alive(leaf), func(m *darwinjob.Member) bool { return oursByArgs(m.PID) })
	all := []memlimit.Process{}
	for _, h := range darwinjob.Holdings(b.table, members) {
		all = append(all, memlimit.Process{PID: h.PID, Start: h.Start, Comm: h.Comm, Leaf: h.Leaf, Anon: h.Bytes, Exact: true})
	}
	return all
}

// memory adds up what the members of a leaf hold.
func (b *lineageBox) memory(p *darwinjob.Picture, leaf string) uint64 {
	var s memlimit.Sample
	memlimit.FillProcesses(&s, b.holding(p, leaf))
	return s.Hard
}
