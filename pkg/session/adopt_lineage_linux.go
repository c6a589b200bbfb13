package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// A lineage box takes a running tree in by recording it: nothing stands still, and nothing is
// moved. It looks until a reading of all processes finds nobody of the tree who is not
// recorded; from then on whoever is born is known by its parent. Only its watcher sees to
// that: there is no keeper to which its orphans would be given.

// runLineage records the tree.
func (a *adoption) runLineage(ctx context.Context, b *lineageBox, lock *store.Lock) error {
	s := a.s
	t, err := s.newTask(lock, proc.Args(a.first.PID), proc.Link(a.first.PID, "cwd"), StartOptions{adopted: true})
	if err != nil {
		return err
	}
	a.leaf = t.rec.Leaf
	again := true
	for pass := 0; again && err == nil && ctx.Err() == nil && pass < adoptPasses; pass++ {
		again, err = a.passLineage(b)
	}
	if again && err == nil {
		a.r.Notes = append(a.r.Notes, "it forks all the time: who lost his parent between two looks may not be seen")
	}
	if len(a.r.Processes) == 0 {
		if err == nil {
			err = refusal(ErrNoProcess, a.first.PID, a.first.Comm, "it ended meanwhile", "")
		}
		t.fail(err)
		return a.failure(err)
	}
	a.r.Notes = append(a.r.Notes, "it is watched, not held: a daemon that one of it starts between two looks may not be seen")
	return a.record(t, err)
}

// adoptPasses bounds the looks at a tree that forks all the time. Those of it that are known by
// their parents need no further one; there are always some that lose theirs.
const adoptPasses = 10

// passLineage looks at all processes once and records those of the tree that are not yet.
func (a *adoption) passLineage(b *lineageBox) (again bool, err error) {
	table, err := processTable()
	if err != nil {
		return false, err
	}
	if a.inLineage, err = a.s.m.lineageMembers(); err != nil {
		return false, err
	}
	var take []darwinjob.Proc
	before := map[int]bool{} // pids of those that were recorded in an earlier pass
	for id := range a.settled {
		before[id.PID] = true
	}
	gone := map[string][]darwinjob.ID{}
	a.tree.walk(table, func(st *proc.Stat) (alien bool) {
		id := idOf(st)
		if a.settled[id] || isZombie(st) || st.PID == os.Getpid() && a.o.LeaveCaller {
			return a.tree.alien[id]
		}
		v := a.judge(st)
		if v.already || v.err != nil {
			a.settle(st, v)
			return a.tree.alien[id]
		}
		p, lerr := b.table.Lookup(st.PID)
		if lerr != nil || p.Start != st.Start {
			return false
		}
		take = append(take, p)
		again = again || !before[st.PPID] // else it was known by its parent
		if from := a.inLineage[st.PID]; from != "" {
			gone[from] = append(gone[from], p.ID)
		}
		a.settled[id] = true
		a.sources[v.from] = true
		a.r.Processes = append(a.r.Processes, adopted(st))
		return false
	})
	if len(take) > 0 {
		if err := b.receive(a.leaf, take); err != nil {
			return false, err
		}
	}
	for from, ids := range gone {
		if note := fromNote(from); !slices.Contains(b.chain(), from) && !slices.Contains(a.r.Notes, note) {
			a.r.Notes = append(a.r.Notes, note)
		}
		if err := a.s.m.letGo(from, b, ids); err != nil {
			a.failed = append(a.failed, err)
		}
	}
	return a.claim(table) || again, nil
}

// letGo has another session give up processes that b has received, unless b is inside of it.
func (m *Manager) letGo(from string, b *lineageBox, ids []darwinjob.ID) error {
	if slices.Contains(b.chain(), from) {
		return nil
	}
	rec, err := m.store.Get(from)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	other, err := m.openLineage(&rec)
	if err == nil {
		err = other.giveAway(ids)
	}
	if err != nil {
		return fmt.Errorf("take processes out of session %s: %w", from, err)
	}
	return nil
}

// lineageMembers says of each process that is in a lineage box in which, the innermost.
func (m *Manager) lineageMembers() (map[int]string, error) {
	recs, _, err := m.store.Sessions()
	if err != nil {
		return nil, err
	}
	all, err := surveyAll(m)
	if err != nil {
		return nil, err
	}
	in, depth := map[int]string{}, map[int]int{}
	for i := range recs {
		if recs[i].Kind != store.KindLineage {
			continue
		}
		b, err := m.lineageIn(&recs[i], all)
		if err != nil {
			continue // of another pid namespace: none of it can be adopted here
		}
		_, p, err := b.look()
		if err != nil {
			return nil, err
		}
		for _, mem := range p.Alive("") {
			if d := len(b.chain()); d > depth[mem.PID] {
				in[mem.PID], depth[mem.PID] = b.rec.ID, d
			}
		}
	}
	return in, nil
}
