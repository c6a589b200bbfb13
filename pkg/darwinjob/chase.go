package darwinjob

import (
	"context"
	"slices"
	"syscall"
	"time"
)

// children records children of members, and of reapers, that are not known yet, without
// a reading of the whole table: a [Table] that can list one process's children
// guarantees whose they are. New ones are looked at in their turn.
func (j *Lineage) children() []Proc {
	var found []Proc
	type parent struct {
		id   ID
		node *Node // nil for a reaper
		leaf string
	}
	var todo []parent
	for _, r := range j.l.Reapers {
		todo = append(todo, parent{r.ID, nil, r.Leaf})
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
		if err != nil {
			continue
		}
		for _, p := range ps {
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
			found = append(found, p)
			todo = append(todo, parent{p.ID, n, n.Leaf})
		}
	}
	return found
}

// chaseFor bounds one chase, so that something that forks faster than it is met does not
// keep a kill from its deadline.
const chaseFor = 50 * time.Millisecond

// chase sends sig to children of members that came since the last reading, until there
// are none, and says to how many. A process that forks and exits in a loop is gone when a
// reading of the whole table ends; its child is met here, as it becomes a reaper's.
func (j *Lineage) chase(ctx context.Context, leaf string, sig syscall.Signal) int {
	n := 0
	for end := j.t.Clock() + chaseFor; j.t.Clock() < end && ctx.Err() == nil; {
		found := j.children()
		if len(found) == 0 {
			return n
		}
		for _, p := range found {
			n++
			m := &Member{Proc: p, node: j.live[p.ID]}
			if j.shield[p.PID] == "" && !j.isStub(m) && (leaf == "" || m.node.Leaf == leaf) {
				j.send(m, sig)
			}
		}
	}
	return n
}
