package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
	"golang.org/x/sys/unix"
)

// gather moves the tree until a look at all processes that began after the last move
// shows nobody outside: everyone seen is inside by then, so that whoever is born after
// it is, too.
func (a *adoption) gather(ctx context.Context) error {
	for {
		moved, err := a.pass(ctx)
		switch {
		case err != nil:
			return err
		case moved == 0 && ctx.Err() == nil:
			return nil
		case a.s.closing():
			return &Error{Kind: ErrClosed, Session: a.s.Name(), Text: "was closed during the adoption"}
		case ctx.Err() != nil:
			return &Error{Kind: ErrTimeout, Session: a.s.Name(), Text: "not all of the tree is in it: processes are born outside faster than they are moved",
				Retry: true, Hint: "adopt it again"}
		}
	}
}

// pass looks at all processes once and moves those of the tree that are outside.
func (a *adoption) pass(ctx context.Context) (moved int, err error) {
	table, err := processTable()
	if err != nil {
		return 0, err
	}
	a.tree.walk(table, func(st *proc.Stat) (alien bool) {
		id := idOf(st)
		if err != nil || a.settled[id] || isZombie(st) {
			return a.tree.alien[id]
		}
		var again bool
		again, err = a.place(ctx, st)
		if again {
			moved++
		}
		return a.tree.alien[id]
	})
	if err != nil {
		return moved, err
	}
	if a.claim(table) {
		moved++ // that is, in the next pass, with their children
	}
	return moved, nil
}

// claim adds orphans to the tree, and says whether there were any. Those that are not
// proven to be of the tree must also be where the tree was.
func (a *adoption) claim(table []proc.Stat) bool {
	own, likely, suspects := a.tree.orphans(table, a.began, a.upward)
	beside := func(st *proc.Stat) bool {
		from, err := proc.Cgroup(st.PID)
		return err == nil && a.sources[from]
	}
	own = append(own, slices.DeleteFunc(likely, func(st proc.Stat) bool { return !beside(&st) })...)
	for i := range own {
		a.tree.add(idOf(&own[i]))
	}
	for i := range suspects {
		if st := &suspects[i]; !a.settled[idOf(st)] && beside(st) {
			a.skip(st, errors.New("it was born during the adoption and may be of the tree, which cannot be proven"))
		}
	}
	return len(own) > 0
}

// endingTries is how often one is looked at again that is about to end, and does not.
const endingTries = 100

// place moves one process, unless there is a reason not to, and says whether there is
// reason for another pass. That the first one cannot be moved is an error: then nothing
// is changed.
func (a *adoption) place(ctx context.Context, st *proc.Stat) (again bool, err error) {
	id := idOf(st)
	if st.PID == os.Getpid() {
		a.caller, a.settled[id] = true, true
		return false, nil
	}
	h, err := proc.Open(id)
	if errors.Is(err, proc.ErrGone) || errors.Is(err, proc.ErrReused) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer h.Close()
	v := a.judge(st)
	if v.already || v.err != nil {
		if !h.Ended() {
			a.settle(st, v)
		}
		return false, nil
	}
	err = a.s.box.Move(ctx, a.leaf, st.PID)
	switch {
	case h.Ended(): // before or after it arrived
		a.returnStranger(st)
		return false, nil
	case (errors.Is(err, cgroup.ErrNotArrived) || errors.Is(err, unix.ESRCH)) && a.ending[id] < endingTries:
		a.ending[id]++
		return true, nil
	case err != nil && len(a.r.Processes) == 0:
		return false, err
	case err != nil:
		a.skip(st, err)
		a.failed = append(a.failed, fmt.Errorf("move process %d (%s): %w", st.PID, st.Comm, err))
		return false, nil
	}
	a.settled[id] = true
	a.sources[v.from] = true
	a.r.Processes = append(a.r.Processes, adopted(st))
	return true, nil
}

// settle notes of a process why it is not moved.
func (a *adoption) settle(st *proc.Stat, v finding) {
	if v.already {
		a.settled[idOf(st)] = true
		if ownHelper(st.PID) == "" {
			a.r.Already++
		}
		return
	}
	if errors.Is(v.err, proc.ErrGone) {
		a.settled[idOf(st)] = true
		return
	}
	a.tree.alien[idOf(st)] = v.alien
	a.skip(st, v.err)
	if v.fatal { // it was not there when the tree was looked at first
		a.failed = append(a.failed, v.err)
	}
}

func (a *adoption) skip(st *proc.Stat, why error) {
	a.settled[idOf(st)] = true
	reason := why.Error()
	if e, ok := errors.AsType[*Error](why); ok && e.Hint != "" {
		reason += "; " + e.Hint
	}
	a.r.Skipped = append(a.r.Skipped, SkippedProcess{adopted(st), reason})
}

// returnStranger takes back a move that met another process. The kernel moves whoever
// has a number; if the one who had it ended in between, and was reaped, and the number
// was given out again, that is a stranger. Parents stand still while their children are
// moved, so it takes one who does not wait for his children, and as many forks as there
// are pids.
func (a *adoption) returnStranger(st *proc.Stat) {
	now, err := proc.ReadStat(st.PID)
	if err != nil || now.Start == st.Start || a.tree.seen[idOf(&now)] {
		return
	}
	h, err := proc.Open(idOf(&now))
	if err != nil {
		return
	}
	defer h.Close()
	if !isMember(a.s.box, a.leaf, now.PID) || isMember(a.s.box, a.leaf, now.PPID) {
		return // it is not in, or was born in
	}
	if err := moveBeside(now.PID, now.PPID); err != nil {
		a.failed = append(a.failed, fmt.Errorf("process %d (%s) got the number of one that ended, and cannot be moved back: %w", now.PID, now.Comm, err))
	}
	a.skip(&now, errors.New("it got the number of one that ended, and was moved back"))
}

// moveBeside moves a process to where another one is.
func moveBeside(pid, other int) error {
	to, err := proc.Cgroup(other)
	if err != nil {
		return err
	}
	mount, err := cgroup.FindMount()
	if err != nil {
		return err
	}
	dir, err := mount.Dir(to)
	if err != nil {
		return err
	}
	g, err := cgroup.Open(dir)
	if err != nil {
		return err
	}
	defer g.Close()
	return g.Add(pid)
}

// thawAbandoned lets leaves run on whose adoption was broken off and whose anchor could
// not help, because it was killed as well.
func (m *Manager) thawAbandoned(rec *store.Session, b Box) {
	box, ok := b.(adopter)
	if !ok {
		return
	}
	leaves, err := b.Leaves()
	if err != nil {
		return
	}
	for _, leaf := range leaves {
		if frozen, err := box.LeafFrozen(leaf); err != nil || !frozen {
			continue
		}
		t, err := m.store.Task(rec.ID, taskOfLeaf(leaf))
		if err == nil && t.State == store.TaskStarting && proc.FateOf(proc.ID(t.Supervisor)) == proc.Alive {
			continue // it is under way
		}
		if err := box.ThawLeaf(leaf); err != nil {
			m.log.Warn("thaw a leaf", "leaf", leaf, "err", err)
		}
	}
}

// processTable reads the stat of every process.
func processTable() ([]proc.Stat, error) {
	pids, err := proc.PIDs()
	if err != nil {
		return nil, err
	}
	table := make([]proc.Stat, len(pids))
	each(len(pids), func(i int) {
		if st, err := proc.ReadStat(pids[i]); err == nil {
			table[i] = st
		}
	})
	return slices.DeleteFunc(table, func(st proc.Stat) bool { return st.PID == 0 || st.Kernel }), nil
}
