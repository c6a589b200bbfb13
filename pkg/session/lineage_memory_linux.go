package session

import (
	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// holding is what each member of a leaf holds but our own helpers.
func (b *lineageBox) holding(p *darwinjob.Picture, leaf string) []memlimit.Process {
	var members []proc.Member
	for _, m := range p.Alive(leaf) {
		if !oursByArgs(m.PID) {
			members = append(members, proc.Member{PID: m.PID, Leaf: m.Leaf})
		}
	}
	return cgroup.Holdings(members)
}

// memory adds up what the members of a leaf hold, what they share divided among them.
func (b *lineageBox) memory(p *darwinjob.Picture, leaf string) uint64 {
	all := b.holding(p, leaf)
	cgroup.Exact(all)
	var s memlimit.Sample
	memlimit.FillProcesses(&s, all)
	return s.Hard + s.Swap
}
