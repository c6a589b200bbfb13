package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// ReconcileOptions say what is reconciled.
type ReconcileOptions struct {
	// DryRun changes nothing and says what would be done.
	DryRun bool
	// Sessions are the ids of those to look at; nil is all, and the boxes that have no
	// record.
	Sessions []string
	// Ended is how processes ended, for one who held them: the status of a command that
	// nobody waits for can be known by nobody else.
	Ended map[ProcessID]syscall.WaitStatus
}

// What a reconcile does with a session.
const (
	ActionNone    = "none"    // it is as its record says
	ActionEnded   = "ended"   // it is closed; Reason says why
	ActionFailed  = "failed"  // it was to be closed, and something is left
	ActionKept    = "kept"    // its owner is gone, and it stays
	ActionUpdated = "updated" // records of tasks were set right
	ActionAdopted = "adopted" // its box had no record, and has one now
	ActionWarned  = "warned"  // it is idle
	ActionFrozen  = "frozen"  // it was idle
	ActionSkipped = "skipped" // it cannot be judged from here
)

// Reconciliation is what a reconcile found and did.
type Reconciliation struct {
	Schema   int          `json:"schema"`
	DryRun   bool         `json:"dry_run,omitempty"`
	Sessions []Reconciled `json:"sessions"`
}

// Reconciled is one session: what is really alive, what was done and why.
type Reconciled struct {
	Info          // as it is afterwards
	Action string `json:"action"`
	Reason string `json:"reason,omitempty"`
	// Next is what its harness may do now.
	Next string `json:"next,omitempty"`
	// Receipt is of what was closed.
	Receipt *Receipt `json:"receipt,omitempty"`
	// Error is why it could not be done.
	Error string `json:"error,omitempty"`
}

// reconcilers is how many sessions are reconciled at once: a close may wait for the
// session's grace.
const reconcilers = 16

// Reconcile sets records and policies right: it compares every record with what the
// kernel says, and does what the records say is to be done. Each decision is made
// again under the session's lock before it is carried out, so that any number of
// callers may do this at once, beside whoever opens, attaches to and closes sessions.
func (m *Manager) Reconcile(ctx context.Context, o ReconcileOptions) (Reconciliation, error) {
	r := Reconciliation{Schema: Schema, DryRun: o.DryRun, Sessions: []Reconciled{}}
	list, err := m.chosen(ctx, o.Sessions)
	if err != nil {
		return r, err
	}
	r.Sessions = make([]Reconciled, len(list))
	slots := make(chan struct{}, reconcilers)
	var wg sync.WaitGroup
	for i := range list {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			r.Sessions[i] = m.reconcile(ctx, list[i], &o)
		})
	}
	wg.Wait()
	if !o.DryRun && o.Sessions == nil {
		m.sweepStore(ctx)
	}
	return r, ctx.Err()
}

// sweepStore clears away what was left of openings that were broken off early.
func (m *Manager) sweepStore(ctx context.Context) {
	wait, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	if err := m.store.Sweep(wait); err != nil {
		m.log.Debug("sweep the records", "err", err)
	}
	m.sweepJobs(ctx)
}

// chosen gives the sessions to look at, as they are.
func (m *Manager) chosen(ctx context.Context, ids []string) ([]Info, error) {
	if ids == nil {
		return m.List(ctx, ListOptions{})
	}
	list := make([]Info, 0, len(ids))
	for _, id := range ids {
		info, err := m.Inspect(ctx, id, InspectOptions{})
		switch {
		case err == nil:
			list = append(list, info)
		case errors.Is(err, ErrNotFound), errors.Is(err, ErrClosed): // closed since
		default:
			return nil, err
		}
	}
	return list, nil
}

func (m *Manager) reconcile(ctx context.Context, info Info, o *ReconcileOptions) Reconciled {
	dry := o.DryRun
	r := Reconciled{Info: info, Action: ActionNone}
	rec, err := m.store.Get(info.ID)
	if errors.Is(err, store.ErrNotFound) {
		m.reconcileUnrecorded(ctx, &r, dry)
		return r
	}
	if err != nil {
		r.Action, r.Reason = ActionSkipped, "its record cannot be used"
		r.Next = "look at the record; `sessionbox close " + info.ID + "` ends what its box holds"
		return r
	}
	v := m.judge(&rec)
	if v.action == ActionNone && v.reason == "" {
		v = m.judgeIdle(ctx, &rec, dry)
	}
	r.Action, r.Reason = v.action, v.reason
	if !dry {
		m.carryOut(ctx, &r, &rec, v)
	}
	if r.Action == ActionNone || r.Action == ActionKept || r.Action == ActionWarned {
		m.reconcileTasks(ctx, &r, &rec, o)
		m.reconcileBrake(ctx, &r, &rec, dry)
	}
	if !dry && r.Action != ActionNone && r.Action != ActionEnded {
		if now, err := m.Inspect(ctx, info.ID, InspectOptions{}); err == nil {
			r.Info = now
		}
	}
	r.Next = next(&r)
	return r
}

// reconcileBrake takes a brake away that stands there without a guard, and sets a
// memory.high again that one has lifted.
func (m *Manager) reconcileBrake(ctx context.Context, r *Reconciled, rec *store.Session, dry bool) {
	lifted, err := m.liftLeft(ctx, rec, dry)
	if err != nil {
		r.Error = "lift its brake: " + err.Error()
	}
	if lifted && r.Action == ActionNone {
		r.Action, r.Reason = ActionUpdated, "the brake that a guard had left was taken away"
	}
	restored, err := m.restoreLeft(ctx, rec, dry)
	if err != nil {
		r.Error = "set its memory.high again: " + err.Error()
	}
	if restored && r.Action == ActionNone {
		r.Action, r.Reason = ActionUpdated, "the memory.high that a guard had lifted is in force again"
	}
}

// verdict is what is to be done with a session and why.
type verdict struct {
	action, reason string
	// only says, of the record as it is then, whether that still holds.
	only func(*store.Session) bool
}

// judge tells what is to be done with a session by its record, its owner and its box.
func (m *Manager) judge(rec *store.Session) verdict {
	if err := m.mayJudge(rec); err != nil {
		if !errors.Is(err, ErrBoxGone) {
			return verdict{action: ActionSkipped, reason: err.Error()}
		}
		return verdict{ActionEnded, "host rebooted", func(r *store.Session) bool { return r.Boot == rec.Boot }}
	}
	switch rec.State {
	case store.StateOpening:
		if abandoned(rec) {
			return verdict{ActionEnded, "its opening was interrupted", abandoned}
		}
		return verdict{action: ActionNone}
	case store.StateClosing:
		if m.beingClosed(rec.ID) {
			return verdict{action: ActionNone, reason: "it is being closed"}
		}
		return verdict{ActionEnded, "its close was interrupted", func(r *store.Session) bool { return r.State == store.StateClosing }}
	case store.StateOpen:
	default:
		return verdict{action: ActionNone}
	}
	if m.fateOf(rec) == proc.Gone {
		generation := rec.Generation
		gone := func(r *store.Session) bool { return r.Generation == generation && m.fateOf(r) == proc.Gone }
		if onExit(rec) == store.OwnerExitKeep {
			return verdict{ActionKept, goneText(rec.Owner), gone}
		}
		return verdict{ActionEnded, goneText(rec.Owner), func(r *store.Session) bool { return gone(r) && m.overdue(r) }}
	}
	box, err := m.openBox(rec)
	if err == nil {
		box.Close()
		if m.keepsNothing(rec) {
			return verdict{ActionEnded, "what it was opened to keep never came", m.keepsNothing}
		}
		return verdict{action: ActionNone}
	}
	if !errors.Is(err, ErrBoxGone) {
		return verdict{action: ActionSkipped, reason: err.Error()}
	}
	return verdict{ActionEnded, "its box is gone", func(r *store.Session) bool { return r.State == store.StateOpen && r.Inode == rec.Inode }}
}

// keepsNothing says of a session that was opened to keep something that whoever was to
// move it there died before: it never had a task, and nobody has taken it.
func (m *Manager) keepsNothing(rec *store.Session) bool {
	if rec.State != store.StateOpen || len(rec.KeptFrom) == 0 || rec.Owner != nil || proc.FateOf(proc.ID(rec.Creator)) != proc.Gone {
		return false
	}
	tasks, bad, err := m.store.Tasks(rec.ID)
	if err != nil || len(tasks)+len(bad) > 0 {
		return false
	}
	box, err := m.openBox(rec)
	if err != nil {
		return false
	}
	defer box.Close()
	members, err := box.Members("")
	return err == nil && !slices.ContainsFunc(members, func(m proc.Member) bool { return !isHelper(m) })
}

// beingClosed says whether somebody holds the lock to close a session.
func (m *Manager) beingClosed(id string) bool {
	done, cancel := context.WithCancel(context.Background())
	cancel() // one try
	l, err := m.store.Lock(done, id, store.LockClose)
	if err != nil {
		return !errors.Is(err, store.ErrNotFound)
	}
	l.Unlock()
	return false
}

func goneText(o *store.Owner) string {
	if o.Lease != 0 {
		return fmt.Sprintf("its lease of %v was not renewed", o.Lease)
	}
	return "its owner is gone: " + ownerText(o)
}

// carryOut does what a verdict says.
func (m *Manager) carryOut(ctx context.Context, r *Reconciled, rec *store.Session, v verdict) {
	var err error
	switch v.action {
	case ActionEnded:
		var receipt Receipt
		receipt, err = m.closeID(ctx, rec.ID, CloseOptions{Reason: v.reason, only: v.only}, true)
		if receipt.ID != "" && !errors.Is(err, errNotAnyMore) {
			r.Receipt = &receipt
		}
	case ActionKept:
		err = m.orphan(ctx, rec.ID, v)
	}
	switch {
	case err == nil, errors.Is(err, ErrNotFound), errors.Is(err, ErrClosed): // another was quicker
		if v.action == ActionEnded {
			r.State, r.Running, r.Leftovers, r.Processes, r.Problems = string(store.StateClosed), 0, 0, 0, nil
			for i := range r.Tasks {
				r.Tasks[i].Leftovers = 0
			}
			if r.Receipt != nil {
				r.Tasks = r.Receipt.Tasks
			}
		}
	case errors.Is(err, errNotAnyMore):
		r.Action, r.Reason = ActionNone, "somebody has taken care of it meanwhile"
	default:
		r.Action, r.Error = ActionFailed, err.Error()
	}
}

// orphan lets a session whose owner is gone stay with none.
func (m *Manager) orphan(ctx context.Context, id string, v verdict) error {
	wait, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	rec, err := m.store.Update(wait, id, func(r *store.Session) error {
		if !v.only(r) {
			return errNotAnyMore
		}
		handOver(r, nil)
		m.mark(r)
		return nil
	})
	if err == nil {
		m.event(store.Event{Event: "owner_gone", ID: id, Name: rec.Name, Msg: v.reason}, map[string]any{"action": v.action})
	}
	return err
}

// reconcileTasks writes down what became of the tasks that nobody waits for, and ends
// those whose time is over.
func (m *Manager) reconcileTasks(ctx context.Context, r *Reconciled, rec *store.Session, o *ReconcileOptions) {
	box, err := m.openBox(rec)
	if err != nil {
		return
	}
	s := &Session{m: m, rec: *rec, box: box}
	defer s.Release()
	dry := o.DryRun
	if !dry {
		m.thawAbandoned(rec, box)
		if b, ok := box.(*lineageBox); ok {
			b.resume(ctx)
			b.rewatch()
		}
	}
	tasks, _, err := m.store.Tasks(rec.ID)
	if err != nil {
		return
	}
	changed := 0
	for i := range tasks {
		t := &tasks[i]
		if t.Moved != "" {
			continue
		}
		// Also of one that was found gone before anybody could tell how it ended.
		if ws, ok := o.Ended[proc.ID(t.ID(rec.Boot))]; ok && !dry && !toldEnd(t) {
			err := s.recordEnd(ctx, t.N, ws)
			if err == nil {
				changed++
			}
			if err == nil || errors.Is(err, errAlreadyEnded) {
				continue
			}
		}
		if t.State.Ended() {
			continue
		}
		if due := s.timeLimit(t); due != 0 && due <= proc.Clock() {
			changed++
			r.Reason = fmt.Sprintf("task %d timed out after %v", t.N, t.Timeout)
			if !dry {
				if err := s.endOverdue(ctx, t); err != nil {
					r.Error = err.Error()
				}
			}
			continue
		}
		now := s.corrected(*t)
		if now.State == t.State {
			continue
		}
		changed++
		if dry {
			continue
		}
		if err := s.recordCorrected(ctx, t.N); err != nil {
			r.Error = err.Error()
		}
	}
	if changed == 0 || r.Action != ActionNone {
		return
	}
	r.Action = ActionUpdated
	if r.Reason == "" {
		r.Reason = fmt.Sprintf("%d task records set right", changed)
	}
}

// corrected is a task's record with what the kernel says of it.
func (s *Session) corrected(t store.Task) store.Task {
	v := view{m: s.m, rec: &s.rec, box: s.box}
	v.members()
	v.correct(&t)
	return t
}

func (s *Session) recordCorrected(ctx context.Context, n int) error {
	wait, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	t, err := s.m.store.UpdateTask(wait, s.rec.ID, n, func(t *store.Task) error {
		now := s.corrected(*t)
		if now.State == t.State {
			return errNothingToDo // its end was recorded meanwhile
		}
		if now.State.Ended() {
			at := time.Now()
			now.Ended, now.EndClock = &at, proc.Clock()
		}
		*t = now
		return nil
	})
	switch {
	case err == nil:
		s.m.event(store.Event{Event: "task_corrected", ID: s.rec.ID, Name: s.rec.Name, Task: n}, map[string]any{"state": t.State, "reason": t.Reason})
	case !errors.Is(err, errNothingToDo) && !errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("set the record of task %d right: %w", n, err)
	}
	return nil
}

// timeLimit is when a task whose supervisor is gone must be ended, on [proc.Clock];
// 0 is never, or somebody else sees to it.
func (s *Session) timeLimit(t *store.Task) time.Duration {
	if t.Timeout == 0 || t.StartClock == 0 || t.State.Ended() || t.Supervisor.PID != 0 && proc.FateOf(proc.ID(t.Supervisor)) != proc.Gone {
		return 0
	}
	return t.StartClock + t.Timeout
}

// endOverdue ends a task that is out of time, with all it started, in its
// supervisor's stead.
func (s *Session) endOverdue(ctx context.Context, t *store.Task) error {
	after := t.KillAfter
	if after == 0 {
		after = s.rec.Grace
	}
	reason := "timed out after " + t.Timeout.String()
	s.markEnding(ctx, t.N, store.TaskTimedOut, reason)
	err := endLeaf(ctx, s.box, LeafName(t.N), after)
	if err != nil {
		return survivorsError(s.Name(), err)
	}
	wait, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	_, err = s.m.store.UpdateTask(wait, s.rec.ID, t.N, func(t *store.Task) error {
		if t.State.Ended() {
			return errNothingToDo
		}
		at := time.Now()
		t.State, t.Reason, t.Ended, t.EndClock = store.TaskTimedOut, reason, &at, proc.Clock()
		return nil
	})
	if err == nil {
		s.m.event(store.Event{Event: "task_ended", ID: s.rec.ID, Name: s.rec.Name, Task: t.N}, map[string]any{"state": store.TaskTimedOut, "reason": reason})
	}
	if errors.Is(err, errNothingToDo) || errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// reconcileUnrecorded gives a record to a box that has lost it. One whose records are
// kept in another place is left alone, as is one that does not say whose it is.
func (m *Manager) reconcileUnrecorded(ctx context.Context, r *Reconciled, dry bool) {
	for _, f := range m.findBoxes(nil) {
		if f.rec.ID != r.ID {
			continue
		}
		m.adoptBox(ctx, r, f.rec, dry)
		return
	}
	r.Action, r.Reason, r.State = ActionEnded, "it was closed meanwhile", string(store.StateClosed)
}

func (m *Manager) adoptBox(ctx context.Context, r *Reconciled, rec store.Session, dry bool) {
	switch {
	case rec.Cookie == "":
		r.Action, r.Reason = ActionSkipped, "its box has no record and does not say whose it is"
		r.Next = "`sessionbox close " + r.ID + "` ends it"
		return
	case rec.StateDir != m.store.Dirs().State:
		r.Action, r.Reason = ActionSkipped, "its records are kept in "+rec.StateDir
		return
	}
	r.Action, r.Reason = ActionAdopted, "its record was lost"
	// The copy on the box may be older than what was lost: who owns it now, nobody
	// knows.
	rec.Owner, rec.OnOwnerExit, rec.IdleTimeout, rec.IdleAction = nil, "", 0, ""
	if rec.Memory != nil { // who may write to the box must not say what a guard runs
		rec.Memory.OnWarn = ""
	}
	if dry {
		return
	}
	wait, cancel := context.WithTimeout(ctx, claimTime)
	defer cancel()
	if box, err := m.openBox(&rec); err == nil {
		noteBrake(&rec, box)
		box.Close()
	}
	tasks := m.unrecordedTasks(&rec)
	err := m.store.Claim(wait, rec, tasks...)
	if errors.As(err, new(*store.NameTakenError)) {
		rec.Name = ""
		err = m.store.Claim(wait, rec, tasks...)
	}
	switch {
	case err == nil:
		m.renewAnchor(ctx, &rec)
		if _, err := m.liftLeft(ctx, &rec, false); err != nil {
			r.Error = "lift its brake: " + err.Error()
		}
		m.event(store.Event{Event: "box_adopted", ID: rec.ID, Name: rec.Name, Boot: rec.Boot}, nil)
		if info, err := m.Inspect(ctx, rec.ID, InspectOptions{}); err == nil {
			r.Info = info
		}
		r.Next = next(r)
	case errors.Is(err, store.ErrExist):
		r.Action, r.Reason = ActionNone, "somebody has taken care of it meanwhile"
	default:
		r.Action, r.Error = ActionFailed, err.Error()
	}
}

// noteBrake notes in the record of a session, made of the copy on its box, the brake that the
// kernel has: a guard writes it to the record only. Nobody else sets a memory.high that was
// not asked for.
func noteBrake(rec *store.Session, box Box) {
	if rec.Memory == nil || !wantedHigh(rec).IsMax() {
		return
	}
	all, err := box.Limits(memlimit.Limits{MemoryHigh: memlimit.Max()})
	if err != nil {
		return
	}
	for i := range all {
		if n, ok := all[i].Value.Value(); ok && all[i].File == "memory.high" && !all[i].Value.IsMax() {
			rec.Memory.Brake = n
		}
	}
}

// renewAnchor ends the anchor of a session that has new records: it listens in the
// directory of the lost ones.
func (m *Manager) renewAnchor(ctx context.Context, rec *store.Session) {
	box, err := m.openBox(rec)
	if err != nil {
		return
	}
	defer box.Close()
	wait, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	if err := box.RenewAnchor(wait); err != nil {
		m.log.Warn("end the anchor of a session whose records were lost", "session", rec.ID, "err", err)
	}
}

// unrecordedTasks are the tasks of a box whose records were lost, by their leaves. The
// number of one that lives must not be given to another.
func (m *Manager) unrecordedTasks(rec *store.Session) []store.Task {
	box, err := m.openBox(rec)
	if err != nil {
		return nil
	}
	defer box.Close()
	v := view{m: m, rec: rec, box: box, now: ticksNow()}
	v.members()
	var tasks []store.Task
	for n, members := range v.byTsk {
		if n == 0 {
			continue
		}
		t := v.unrecorded(n, members)
		t.Leaf = LeafName(n)
		tasks = append(tasks, t)
	}
	return tasks
}

// next is what the harness may do with a session now.
func next(r *Reconciled) string {
	name := r.Name
	if name == "" {
		name = r.ID
	}
	switch {
	case r.Action == ActionEnded:
		return "nothing of it runs: open a new one"
	case r.Action == ActionFailed:
		return "look at what is left, then `sessionbox close " + name + "` again"
	case r.State == string(store.StateClosing):
		return "somebody is closing it: wait for that"
	case r.Action == ActionSkipped:
		return "reconcile where its processes can be seen"
	case r.Owner != nil && r.Owner.State == OwnerAlive:
		return fmt.Sprintf("leave it to its owner, or `sessionbox open --name %s --take-over --owner-pid PID`", name)
	case r.Owner != nil && r.Owner.State == OwnerUnknown:
		return "its owner cannot be seen from here: leave it"
	case r.Running > 0:
		return fmt.Sprintf("%d of its commands run: do not start them again; `sessionbox open --name %s --attach --owner-pid PID` makes it yours, `sessionbox wait %s/TASK` waits", r.Running, name, name)
	case r.Leftovers > 0:
		return fmt.Sprintf("no command of it runs, %d processes are left: use it on or `sessionbox close %s`", r.Leftovers, name)
	}
	return fmt.Sprintf("nothing runs in it: use it on or `sessionbox close %s`", name)
}
