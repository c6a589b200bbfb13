package session

import (
	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// holding is what each member holds but our own helpers.
func (b *lineageBox) holding() ([]memlimit.Process, error) {
	p, err := b.glance()
	if err != nil {
		return nil, err
	}
	var members []proc.Member
	for _, m := range p.Alive("") {
		if !oursByArgs(m.PID) {
			members = append(members, proc.Member{PID: m.PID, Leaf: m.Leaf})
		}
	}
	return cgroup.Holdings(members), nil
}

// sumsWatched says whether a guard watches what the processes of a session hold together.
const sumsWatched = true
