package darwinjob

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"
)

// children records children of members, and of reapers, that are not known yet, without
// a reading of the whole table: a [Table] that can list one process's children
// guarantees whose they are. New ones are looked at in their turn. Not settled says that
// there are more in the leaf, or in the session with leaf "", which were not met.
func (j *Lineage) children(leaf string) (found []*Member, settled bool) {
	settled = true
	type parent struct {
		id   ID
		node *Node // nil for a reaper
		leaf string
	}
	var todo []parent
	for _, r := range j.l.Reapers {
		if !j.shared[r.ID] {
			todo = append(todo, parent{r.ID, nil, r.Leaf})
		}
	}
	for id, n := range j.live {
		todo = append(todo, parent{id, n, n.Leaf})
	}
	for len(todo) > 0 {
		up := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		ps, err := j.t.Children(up.id)
		if gone(err) {
			delete(j.live, up.id)
		}
		if errors.Is(err, ErrUnsettled) && (leaf == "" || up.leaf == "" || up.leaf == leaf) {
			settled = false
		}
		for _, p := range ps {
			if j.o.Helper != nil && j.o.Helper(&p, leaf) {
				continue
			}
			if j.l.node(p.ID) != nil || p.PID <= 1 || !p.proven() || p.before(j.l.Since) || slices.ContainsFunc(j.l.Away, p.Same) {
				continue
			}
			n := &Node{ID: p.ID, Score: hardScore, Evidence: []Evidence{ByReaper}, Comm: p.Comm, UID: p.UID, Leaf: up.leaf, Depth: 1}
			if up.node != nil {
				n.Depth, n.Sealed = up.node.Depth+1, up.node.Sealed
				n.Score, n.Evidence = up.node.Score, []Evidence{ByParent}
			}
			j.l.add(n)
			j.l.versions(n, p.Version)
			j.live[p.ID] = n
			found = append(found, &Member{Proc: p, Leaf: n.Leaf, Depth: n.Depth, Score: n.Score, Evidence: n.Evidence, node: n, fresh: true})
			todo = append(todo, parent{p.ID, n, n.Leaf})
		}
	}
	return found, settled
}

// chaseFor bounds one chase, so that something that forks faster than it is met does not
// keep a kill from its deadline.
const chaseFor = 50 * time.Millisecond

// chase sends sig to children of members that came since the last reading, until there
// are none, and gives those it met. A process that forks and exits in a loop is gone when a
// reading of the whole table ends; its child is met here, as it becomes a reaper's. Not
// settled says that there may be more.
func (j *Lineage) chase(ctx context.Context, leaf string, sig syscall.Signal) (met []*Member, settled bool) {
	for end := j.t.Clock() + chaseFor; j.t.Clock() < end && ctx.Err() == nil; {
		found, calm := j.children(leaf)
		before := len(met)
		for _, m := range found {
			if leaf != "" && m.Leaf != leaf {
				continue
			}
			met = append(met, m)
			if j.shield[m.PID] == "" && !j.isOwn(m) {
				j.send(m, sig)
			}
		}
		if len(met) == before && calm {
			return met, true
		}
	}
	return met, false
}
