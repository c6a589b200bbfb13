package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/anchor"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/scope"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// Adopt brings running processes with all their descendants into the session, as one
// new task. It is for an agent that can only call a hook after it has started: the
// caller then is one of the tree.
//
// Either none is moved, and the error says why not, or all are. They stand still
// meanwhile, for milliseconds (two hundred of them for 0.2 s), as they are moved into a
// frozen leaf: parents first, so that none can fork outside, or end and leave its
// children unclaimed, once it was seen. No signal is sent: a shell sees no stopped job, what was stopped before stays
// so. System calls that a stop and continue would interrupt are (epoll_wait gives EINTR).
// If the caller dies meanwhile, or takes longer than [anchor.HoldTime], the session's
// anchor lets them run on where they are then.
//
// What cannot be had any more: memory stays charged to the cgroup in which it was
// touched, and the processes carry no cookie, so that one which leaves the box later
// cannot be found by it. Nobody of ours waits for the task; its own parent has its
// status.
//
// The error is of kind [ErrNoProcess] for a root that is not there, [ErrPermission] for
// one that must not be adopted. An error with a task in the answer says that some could
// not be moved: these are outside.
func (s *Session) Adopt(ctx context.Context, roots []Root, o AdoptOptions) (Adopted, error) {
	a := &adoption{s: s, o: o, tree: newTree(), settled: map[proc.ID]bool{}, ending: map[proc.ID]int{}, sources: map[string]bool{}, began: ticksNow(),
		r: Adopted{Schema: Schema, Session: s.rec.ID, Processes: []AdoptedProcess{}, Skipped: []SkippedProcess{}}}
	if s.Name() != s.rec.ID {
		a.r.Name = s.Name()
	}
	lineage, inLineage := s.box.(*lineageBox)
	if s.box != nil && !inLineage {
		box, ok := s.box.(adopter)
		if !ok {
			return a.r, &Error{Kind: ErrUnsupported, Session: s.Name(), Text: "its box takes in no running processes",
				Hint: "start the command in it: `sessionbox exec`"}
		}
		a.box = box
	}
	// Two hooks of one agent at once: the second is to find everything inside.
	turn, cancel := context.WithTimeout(ctx, adoptTurn)
	done := s.m.store.Turn(turn)
	cancel()
	defer done()
	if s.IsContainer() {
		return a.r, &Error{Kind: ErrUnsupported, Session: s.Name(), Text: "is a container: what runs outside of it cannot be brought in", Hint: "`sessionbox open` a session without --oci for it"}
	}
	if s.rec.Strict {
		return a.r, &Error{Kind: ErrUnsupported, Session: s.Name(), Text: "is strict: the doors of a process that runs already cannot be closed", Hint: "`sessionbox open` a session without --strict for it"}
	}
	lock, err := s.enter(ctx)
	if err != nil {
		return a.r, err
	}
	defer lock.Unlock()
	s.m.thawAbandoned(&s.rec, s.box)
	if inLineage {
		if a.inLineage, err = s.m.lineageMembers(); err != nil {
			return a.r, err
		}
	}
	if err = a.look(roots); err != nil || !a.outside {
		return a.r, err
	}
	if inLineage {
		err = a.runLineage(ctx, lineage, lock)
		return a.r, err
	}
	err = a.run(ctx, lock)
	return a.r, err
}

const (
	// adoptTurn bounds waiting for others who adopt.
	adoptTurn = 10 * time.Second
	// adoptTime bounds the search for more: who forks faster than he is moved is never
	// all inside.
	adoptTime = anchor.HoldTime
)

// adopter is a box that can have a part of it stand still while processes come in.
type adopter interface {
	FreezeLeaf(leaf string) error
	ThawLeaf(leaf string) error
	LeafFrozen(leaf string) (bool, error)
}

// adoption is one under way.
type adoption struct {
	s   *Session
	o   AdoptOptions
	box adopter
	r   Adopted

	above   []int // our own ancestors, nearest first
	upward  map[int]bool
	began   uint64 // clock ticks since boot
	first   proc.Stat
	outside bool // there is something to move
	tree    *tree
	settled map[proc.ID]bool // those that need no second look
	ending  map[proc.ID]int  // how often one was seen on its way out
	sources map[string]bool  // cgroups that they came from
	caller  bool             // the calling process is one of them
	failed  []error
	leaf    string
	// inLineage says of processes in lineage boxes in which they are.
	inLineage map[int]string
}

// look decides, before anything is changed, whether the tree may be adopted.
func (a *adoption) look(roots []Root) error {
	if len(roots) == 0 {
		return &Error{Kind: ErrUsage, Text: "no process named", Hint: "give the pid of the agent; in a hook $PPID often is it"}
	}
	if err := proc.OwnNamespace(); err != nil {
		return &Error{Kind: ErrUnsupported, Text: "the processes that /proc shows are not ours to name", Err: err,
			Hint: "adopt from the pid namespace of the agent, with its own /proc"}
	}
	a.above = lineage(os.Getpid())
	a.upward = map[int]bool{1: true}
	for i, r := range roots {
		st, err := a.checkRoot(r)
		if err != nil {
			return err
		}
		if i == 0 {
			a.first = st
		}
		a.tree.add(idOf(&st))
		for _, pid := range lineage(r.PID) {
			a.upward[pid] = true
		}
	}
	asked := slices.Clone(a.tree.order)
	table, err := processTable()
	if err != nil {
		return err
	}
	var refused error
	found := map[proc.ID]finding{}
	var all []*proc.Stat
	visit := func(st *proc.Stat) (alien bool) {
		id := idOf(st)
		if v, judged := found[id]; judged || isZombie(st) || st.PID == os.Getpid() && a.o.LeaveCaller {
			return v.alien
		}
		v := a.judge(st)
		found[id], all = v, append(all, st)
		switch {
		case v.already:
		case v.err == nil:
			a.outside = true
		case refused == nil && (v.fatal || slices.Contains(asked, id)):
			refused = v.err
		}
		return v.alien
	}
	for more := true; more; more = a.claim(table) {
		a.tree.walk(table, visit)
	}
	if refused == nil && !a.outside {
		for _, st := range all {
			a.settle(st, found[idOf(st)])
		}
	}
	return refused
}

// finding says what is to become of a process of the tree.
type finding struct {
	from    string // its cgroup
	already bool   // it is in the session
	err     error  // why it is not moved
	fatal   bool   // that is a reason to move none
	alien   bool   // what it started is not ours either
}

// judge looks at one process of the tree.
func (a *adoption) judge(st *proc.Stat) (v finding) {
	var err error
	if v.from, err = proc.Cgroup(st.PID); err != nil {
		v.err, v.fatal = err, !errors.Is(err, proc.ErrGone)
		return v
	}
	ids := idsOfPath(v.from)
	if in := a.inLineage[st.PID]; in != "" {
		ids = a.s.m.chainOf(in)
	}
	if slices.Contains(ids, a.s.rec.ID) {
		v.already = true
		return v
	}
	if verb := ownHelper(st.PID); verb != "" && st.PID != os.Getpid() {
		v.err = fmt.Errorf("it is a process of sessionbox (%s) and ends with what it serves", verb)
		return v
	}
	if len(ids) > 0 && !a.o.FromSession && !a.around(ids) {
		v.alien = true
		v.err = refusal(ErrPermission, st.PID, st.Comm, "it belongs to session "+ids[len(ids)-1], "--from-session takes it all the same")
		return v
	}
	if err := a.checkUser(st); err != nil {
		v.err, v.fatal = err, true
	}
	return v
}

// around says whether a session, by the ids on its path, is one of those that our
// session is in: what comes from there stays within their boxes.
func (a *adoption) around(ids []string) bool {
	own := idsOfPath(a.s.rec.Path)
	if a.s.rec.Kind == store.KindLineage {
		own = a.s.m.chainOf(a.s.rec.ID)
	}
	return len(own) > len(ids) && slices.Equal(own[:len(ids)], ids)
}

// run moves the tree.
func (a *adoption) run(ctx context.Context, lock *store.Lock) error {
	s := a.s
	t, err := s.newTask(lock, proc.Args(a.first.PID), proc.Link(a.first.PID, "cwd"), StartOptions{adopted: true})
	if err != nil {
		return err
	}
	a.leaf = t.rec.Leaf
	hold, err := s.hold(ctx, &t.rec)
	if err == nil {
		err = a.box.FreezeLeaf(a.leaf)
		if err == nil {
			// From the first move on there is no way back.
			still, cancel := context.WithTimeout(context.WithoutCancel(ctx), adoptTime)
			err = a.gather(still)
			cancel()
		}
		if terr := a.box.ThawLeaf(a.leaf); terr != nil {
			s.m.log.Warn("let the adopted processes run on", "err", terr) // the anchor does
			hold.Drop()
		} else {
			hold.Release()
		}
	}
	if a.caller && !a.o.LeaveCaller && err == nil {
		err = a.enterSelf(ctx)
	}
	if len(a.r.Processes) == 0 {
		if err == nil {
			err = refusal(ErrNoProcess, a.first.PID, a.first.Comm, "it ended meanwhile", "")
		}
		t.fail(err)
		return a.failure(err)
	}
	return a.record(t, err)
}

// hold has the session's anchor, which is started if need be, watch over the leaf while
// it is frozen.
func (s *Session) hold(ctx context.Context, t *store.Task) (*anchor.Tie, error) {
	inode, err := s.box.Prepare(ctx, t.Leaf)
	if err != nil {
		return nil, err
	}
	s.dieTogether(ctx, t.Leaf)
	dir := s.m.store.SessionDir(s.rec.ID)
	hold, err := anchor.Hold(dir, t.Leaf, t.N, inode)
	if err == nil {
		return hold, nil
	}
	if aerr := s.box.EnsureAnchor(ctx); aerr != nil {
		return nil, fmt.Errorf("start the session's anchor: %w", aerr)
	}
	// Under systemd the unit, and with it our leaf, may be a new one now.
	if inode, err = s.box.Prepare(ctx, t.Leaf); err != nil {
		return nil, err
	}
	s.dieTogether(ctx, t.Leaf)
	return anchor.HoldRetry(ctx, dir, t.Leaf, t.N, inode)
}

// enterSelf moves the calling process, when everything else runs again.
func (a *adoption) enterSelf(ctx context.Context) error {
	st, err := proc.ReadStat(os.Getpid())
	if err != nil {
		return err
	}
	if v := a.judge(&st); v.already {
		a.r.Already++
		return nil
	} else if v.err != nil {
		return v.err
	}
	if err := a.s.box.Enter(ctx, a.leaf); err != nil {
		return fmt.Errorf("move the calling process: %w", err)
	}
	a.r.Processes = append(a.r.Processes, adopted(&st))
	return nil
}

// record notes what is in the session now, whether or not all of it came.
func (a *adoption) record(t *Task, err error) error {
	s := a.s
	a.r.Task = t.rec.N
	first := slices.IndexFunc(a.r.Processes, func(p AdoptedProcess) bool { return p.PID == a.first.PID && p.Start == a.first.Start })
	who := a.r.Processes[max(0, first)] // it was in already, or has ended
	t.rec.State, t.rec.PID, t.rec.Start, t.rec.Supervisor = store.TaskRunning, who.PID, who.Start, store.ProcID{}
	if who.PID != a.first.PID {
		if argv := proc.Args(who.PID); len(argv) > 0 {
			t.rec.Argv = argv
		}
	}
	for _, p := range a.r.Processes {
		if s.rec.Kind != store.KindLineage { // which charges nobody
			a.r.ChargedElsewhereBytes += proc.Memory(p.PID)
		}
	}
	perr := s.m.store.PutTask(s.rec.ID, t.rec)
	if s.overtaken(perr, t.rec.Started) {
		// The closer ends what it finds in the box, and finds it: it is not gone
		// before nobody is in it.
		return errors.Join(err, &Error{Kind: ErrClosed, Session: s.Name(), Text: "was closed during the adoption"})
	}
	if perr != nil {
		s.m.log.Warn("record the adoption", "task", t.rec.N, "err", perr)
	}
	s.m.event(store.Event{Event: "adopted", ID: s.rec.ID, Name: s.rec.Name, Task: t.rec.N},
		map[string]any{"argv": t.rec.Argv, "pid": t.rec.PID, "processes": len(a.r.Processes), "skipped": len(a.r.Skipped)})
	for _, from := range slices.Sorted(maps.Keys(a.sources)) {
		if ids := idsOfPath(from); len(ids) > 0 && !a.around(ids) {
			a.r.Notes = append(a.r.Notes, fromNote(ids[len(ids)-1]))
		}
	}
	if err = errors.Join(append(a.failed, err)...); err != nil {
		return a.failure(err)
	}
	return nil
}

func fromNote(id string) string {
	return "what came from session " + id + " carries its cookie, and ends with it as well"
}

// failure gives an error a kind and says what to do about it.
func (a *adoption) failure(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	e := &Error{Session: a.s.Name(), Text: "not all of the tree could be moved into it", Err: err}
	if a.r.Task == 0 {
		e.Text = "the tree could not be moved into it"
	}
	if errors.Is(err, cgroup.ErrCannotEnter) || errors.Is(err, scope.ErrAttach) || errors.Is(err, fs.ErrPermission) {
		e.Kind, e.Hint = ErrPermission, "the kernel moves a process only for who may write both its part of the cgroup tree and the session's; `sessionbox doctor` says more"
	}
	return e
}
