package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// CloseOptions say how a session is closed.
type CloseOptions struct {
	// Grace is how long processes may take after SIGTERM; nil is the session's.
	Grace *time.Duration
	// Now kills at once.
	Now bool
	// DryRun changes nothing and says what would be ended.
	DryRun bool
	// Generation is that of the owner the caller acts for, 0 if it does not say.
	Generation int
	// Shared is what is done with daemons in it that serve others.
	Shared Shared
	// Along are references to sessions that the caller closes at the same time: no daemon is
	// spared for who ends with those.
	Along []string
	// Reason is why it is closed, for the receipt; "" when it was asked for.
	Reason string

	// only, if set, is asked under the session's lock whether it still is to be
	// closed.
	only func(*store.Session) bool
	// nested: the session around it is being closed; around is the outermost one of
	// those, if it has its box still.
	nested bool
	around *Session
}

// errNotAnyMore says that a session is not to be closed any more: somebody took it
// over, or woke it up.
var errNotAnyMore = errors.New("the reason to close it has gone")

// fateAlive is the fate of a process in a dry run.
const fateAlive = "alive"

// Close ends everything of a session: ref may be a reference or, with the
// records gone, the id on a box. It returns nil only if the kernel says that
// nothing is left, else an error of kind [ErrSurvivors] with the receipt.
//
// It may be called by several at once and again after any crash: each step can
// be repeated, and who comes second finishes what the first began.
func (m *Manager) Close(ctx context.Context, ref string, o CloseOptions) (Receipt, error) {
	id, err := m.resolve(ref)
	if err != nil {
		var e *Error
		if errors.As(err, &e) && errors.Is(e.Kind, ErrClosed) {
			if r, ok := m.lastReceipt(ref); ok {
				r.AlreadyClosed = true
				return r, nil
			}
		}
		return Receipt{}, err
	}
	return m.closeID(ctx, id, o, true)
}

func (m *Manager) closeID(ctx context.Context, id string, o CloseOptions, outermost bool) (Receipt, error) {
	return m.beginClose(ctx, id, o, outermost).complete(ctx)
}

// beginClose closes a session until its box is empty. [closing.complete] must follow: it does
// the rest, which may have to wait for others.
func (m *Manager) beginClose(ctx context.Context, id string, o CloseOptions, outermost bool) *closing {
	c := &closing{m: m, o: o, began: time.Now(), r: Receipt{Schema: Schema, ID: id, Processes: []Fated{}, Strays: []Fated{},
		Survivors: []proc.Survivor{}, Tasks: []TaskInfo{}, Nested: []Receipt{}}}
	if outermost && !o.DryRun {
		if err := c.stepOut(ctx, id); err != nil {
			return c.without(Receipt{}, err)
		}
	}
	c.unlock = c.lock(ctx, id)
	rec, problem, err := m.load(id)
	if err != nil {
		if r, ok := m.lastReceipt(id); ok && errors.Is(err, store.ErrNotFound) {
			r.AlreadyClosed = true // by whoever held the lock before us
			return c.without(r, nil)
		}
		return c.without(Receipt{}, m.lookupError(id, err))
	}
	c.rec, c.unrecorded = rec, problem != ""
	if problem != "" {
		c.note(problem)
	}
	c.r.Resumed, c.r.Reason = rec.State == store.StateClosing, o.Reason
	c.failed = c.run(ctx)
	return c
}

// without ends a close in which there was nothing to do.
func (c *closing) without(r Receipt, err error) *closing {
	c.over, c.r, c.failed = true, r, err
	return c
}

// complete does what a close does when the box is empty, and gives the receipt.
func (c *closing) complete(ctx context.Context) (Receipt, error) {
	defer c.release()
	if c.over {
		return c.r, c.failed
	}
	m, rec, o := c.m, &c.rec, c.o
	err := c.failed
	if !o.DryRun {
		err = c.rest(ctx)
	}
	c.r.Name, c.r.Opened, c.r.Closed = rec.Name, rec.Created, time.Now()
	c.r.TookSeconds = c.r.Closed.Sub(c.began).Seconds()
	if !rec.Created.IsZero() {
		c.r.AgeSeconds = c.r.Closed.Sub(rec.Created).Seconds()
	}
	if errors.Is(err, ErrHeld) { // nothing was done
		return Receipt{}, err
	}
	if !o.DryRun {
		c.settleServed()
		c.takeReceipt(err == nil)
	}
	if err != nil {
		c.r.Error = err.Error()
		if !o.DryRun && !errors.Is(err, errNotAnyMore) {
			c.keepReceipt()
			m.event(store.Event{Event: "close_failed", ID: rec.ID, Name: rec.Name}, map[string]any{"error": c.r.Error, "processes": len(c.r.Processes)})
		}
	}
	if err != nil || o.DryRun {
		c.r.DryRun = o.DryRun
		return c.r, err
	}
	err = c.forget(ctx)
	c.removeShared(ctx)
	return c.r, err
}

// release lets go of what a close holds.
func (c *closing) release() {
	c.releaseKept()
	if c.hired != nil {
		c.hired.wg.Wait()
	}
	c.passTurn()
	if c.box != nil {
		c.box.Close()
	}
	if c.unlock != nil {
		c.unlock()
	}
}

// closing is one close under way.
type closing struct {
	m          *Manager
	o          CloseOptions
	began      time.Time
	rec        store.Session
	unrecorded bool
	box        Box // nil when the kernel has it no more
	r          Receipt
	seen       map[proc.ID]int // index into r.Processes
	missed     bool            // the last list lacks members that were gone when read
	now        uint64
	records    []store.Task           // as they were when the close began
	running    map[int]bool           // tasks whose command ran then
	tallies    map[int]memlimit.Tally // of tasks, before anything was ended
	shared     []string               // directories for temporary files that stayed for another session
	kept       *Session               // who asked for it was kept in it; nil: nobody
	heirs      []heir                 // who stands still until our keepers are theirs
	pass       func()                 // passes on our turn, nil when it is not ours
	unlock     func()                 // lets go of the lock, nil when there is none
	over       bool                   // there was nothing to do
	failed     error                  // what kept the box from being emptied
	hired      *hired                 // nil until others were asked
	inside     []*closing             // of the sessions inside, whose boxes were emptied
	nested     map[string]error       // of those that were closed, by id
	judged     bool                   // the kernel has said who is left in the box
}

func (c *closing) note(s string) { c.r.Notes = append(c.r.Notes, s) }

// lock makes closers of one session take turns. A close goes on without: what
// it does may be done twice, and whoever holds the lock may be stopped.
func (c *closing) lock(ctx context.Context, id string) func() {
	if c.o.DryRun {
		return func() {}
	}
	wait, cancel := context.WithTimeout(ctx, c.patience(id))
	defer cancel()
	l, err := c.m.store.Lock(wait, id, store.LockClose)
	if err != nil {
		if !errors.Is(err, store.ErrNotFound) {
			c.note("closed without the lock: " + err.Error())
		}
		return func() {}
	}
	return l.Unlock
}

// patience is how long another closer may take before we go on beside it.
func (c *closing) patience(id string) time.Duration {
	grace := DefaultGrace
	if rec, err := c.m.store.Get(id); err == nil {
		grace = max(grace, rec.Grace)
	}
	if c.o.Grace != nil {
		grace = max(grace, *c.o.Grace)
	}
	return grace + min(2*killTime, math.MaxInt64-grace)
}

// run closes the gate and empties the box, those of nested sessions first. It waits for
// nobody but the session's own processes.
func (c *closing) run(ctx context.Context) error {
	c.now = ticksNow()
	c.seen = map[proc.ID]int{}
	box, err := c.m.openBox(&c.rec)
	switch {
	case errors.Is(err, ErrBoxGone):
		c.note("its box was gone already")
	case err != nil:
		return err
	default:
		c.box = box
	}
	c.r.Box = boxInfo(&c.rec, c.box)
	if c.o.only == nil && !c.o.nested { // else what the record says is the reason, not who asks
		if err := c.m.mayAct(&c.rec, c.o.Generation); err != nil {
			return err
		}
	}
	if !c.o.DryRun {
		if err := c.shut(ctx); err != nil {
			return err
		}
	}
	c.records, _, _ = c.m.store.Tasks(c.rec.ID)
	c.running = running(c.records)
	c.serves()
	if c.o.DryRun {
		return c.look(ctx)
	}
	c.takeTurn(ctx)
	c.spareMarked(ctx)
	c.hired = c.beginHired(ctx)
	// A nested session that cannot be closed does not keep this one alive: what
	// is in its box is in ours.
	c.endNested(ctx)
	if c.box == nil {
		c.judged = true
		return nil
	}
	if err := c.end(ctx); err != nil {
		return err
	}
	c.judged = true
	// One may have been opened meanwhile, and the kill may have helped.
	c.endNested(context.WithoutCancel(ctx))
	return nil
}

// rest is what is to be done when the box is empty: what others run for the session ends,
// what is outside of the box, and the box itself.
func (c *closing) rest(ctx context.Context) error {
	whole := ctx
	if c.box != nil || c.failed != nil {
		ctx = context.WithoutCancel(ctx)
	}
	c.releaseHeirs() // when they could not be left our keepers, they need not stand still for others
	waits := c.waits()
	if waits {
		c.passTurn()
	}
	nested := c.completeNested(ctx)
	switch {
	case c.failed != nil && nested == nil:
		return c.failed
	case c.failed != nil:
		return errors.Join(c.failed, nested)
	}
	others := c.hired.finish(whole)
	if waits {
		c.takeTurn(ctx)
	}
	if boot, err := c.m.boot(); err == nil && c.rec.Boot != "" && c.rec.Boot != boot {
		// Nothing of it can have lived on, and no unit either.
		c.note("it ran before the last boot")
		c.r.Tasks = c.tasks()
		if err := errors.Join(nested, others); err != nil {
			return err
		}
		return c.removeTmp(whole)
	}
	failed, left := c.m.deleteContainer(ctx, &c.rec, c.box)
	if failed != nil {
		c.note(failed.Error())
	}
	if err := c.leftover(left); err != nil {
		return errors.Join(err, nested, others)
	}
	others, err := c.sweepAll(ctx, whole, others)
	if err != nil {
		return errors.Join(err, nested, others)
	}
	c.r.Tasks = c.tasks()
	victimsOf(c.r.OOM, c.r.Tasks)
	if nested != nil {
		return errors.Join(nested, others)
	}
	if len(c.r.Survivors) > 0 {
		return errors.Join(survivorsError(c.name(), &proc.SurvivorsError{Path: c.rec.Path, Survivors: c.r.Survivors}), others)
	}
	if others != nil { // the box goes, the record stays: the next close asks again
		if err := c.keepRecord(ctx); err != nil {
			c.note("its box stays, as its record could not: " + err.Error())
			return others
		}
	}
	if err := c.remove(ctx); err != nil {
		return errors.Join(err, others)
	}
	if others != nil {
		return others
	}
	return c.removeTmp(whole)
}

// strayRounds bounds how often others are asked again because strays were ended.
const strayRounds = 3

// sweepAll ends the strays, and what they have had others start until then: others is what
// is known to be left of that, before and after. What asks them ends with whole.
func (c *closing) sweepAll(ctx, whole context.Context, others error) (error, error) {
	for range strayRounds {
		before := len(c.r.Strays)
		if err := c.sweep(ctx, false); err != nil {
			return others, err
		}
		if len(c.r.Strays) == before {
			break
		}
		others = c.hired.finish(whole)
	}
	return others, nil
}

// keepRecord makes sure that a session is found when its box is gone: by its own close, and
// by that of the session around it.
func (c *closing) keepRecord(ctx context.Context) error {
	if err := c.m.store.MarkBoxless(); err != nil {
		return err
	}
	if _, err := c.m.store.Get(c.rec.ID); !errors.Is(err, store.ErrNotFound) {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, forgetTime)
	defer cancel()
	rec, at := c.rec, time.Now()
	rec.State, rec.Closing = store.StateClosing, &at
	err := c.m.store.Claim(wait, rec)
	if errors.As(err, new(*store.NameTakenError)) {
		rec.Name = ""
		err = c.m.store.Claim(wait, rec)
	}
	return err
}

// shut closes the gate: after it no task can be started. A state directory that
// cannot be written, or a starter that was stopped, must not stop a close; one that
// depends on what the record says waits for another time.
func (c *closing) shut(ctx context.Context) error {
	if c.unrecorded {
		c.repair()
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, gatePatience)
	defer cancel()
	at := time.Now()
	judged := false
	_, err := c.m.store.Update(wait, c.rec.ID, func(r *store.Session) error {
		if c.o.only != nil && !c.o.only(r) {
			return errNotAnyMore
		}
		judged = true
		if r.Closing == nil {
			r.Closing = &at
		}
		r.State = store.StateClosing
		return nil
	})
	if err != nil && c.o.only != nil && !judged { // else it could not be written: a full disk stops no close
		return err
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		c.note("its record could not be marked: " + err.Error())
	}
	return nil
}

// repair replaces a record that cannot be used by what the box says, so that a close
// which is broken off when the box is gone can still be finished.
func (c *closing) repair() {
	if _, err := c.m.store.Get(c.rec.ID); !errors.As(err, new(*store.BadRecord)) {
		return // there is none, and nothing to leave behind
	}
	rec, at := c.rec, time.Now()
	rec.State, rec.Closing = store.StateClosing, &at
	if err := c.m.store.Put(rec); err != nil {
		c.m.log.Debug("replace an unusable record", "session", rec.ID, "err", err)
	}
}

// spareMarked moves who wants to be kept out of the way. Where that cannot be done they
// end with the others: nothing stands between a close and its end.
func (c *closing) spareMarked(ctx context.Context) {
	if c.box == nil || c.rec.Cookie == "" || len(c.rec.KeptFrom) > 0 || c.rec.Container != nil {
		return // what was kept once ends with the session that keeps it, and a container with its first process
	}
	spared := c.spared()
	s := &Session{m: c.m, rec: c.rec, box: c.box}
	beside := c.o.around
	if beside == nil {
		beside = s
	}
	wait, cancel := context.WithTimeout(ctx, spareTime)
	defer cancel()
	before := len(c.r.Kept)
	for { // what was forked meanwhile is in the next list
		c.oneLook(true)
		var moved []Process
		var err error
		c.kept, moved, err = s.keepMarked(wait, c.kept, beside, spared)
		c.r.Kept = append(c.r.Kept, moved...)
		if err == nil && len(moved) > 0 {
			err = wait.Err()
		}
		if err != nil {
			c.note("processes that were to be kept could not all be: " + err.Error())
		}
		if err != nil || len(moved) == 0 {
			break
		}
		c.stopHeirs(wait)
	}
	if c.kept == nil || len(c.r.Kept) == before {
		return
	}
	c.sparedNote(c.kept)
	if n := markedKept(c.r.Kept[before:], spared); n > 0 {
		c.note(fmt.Sprintf("%d processes with %s=1 were kept, as %s", n, EnvKeep, c.kept.Name()))
	}
	if c.rec.Shims {
		c.note("what was kept looks for this session's shims, which go with it: what it has docker and others start from now on is marked by nobody")
	}
	c.m.event(store.Event{Event: "kept", ID: c.rec.ID, Name: c.rec.Name}, map[string]any{"session": c.kept.ID(), "name": c.kept.Name(), "processes": len(c.r.Kept) - before})
}

// markedKept counts those that were kept for their own mark.
func markedKept(kept []Process, spared map[proc.ID]bool) (n int) {
	for i := range kept {
		if !spared[proc.ID{PID: kept[i].PID, Start: kept[i].Start}] {
			n++
		}
	}
	return n
}

// waits says whether the rest of the close may wait for what others run: engines, and the
// runtime of a container, which cannot be started before what is around it was thawed.
func (c *closing) waits() bool {
	return c.rec.Shims || c.rec.Container != nil || slices.ContainsFunc(c.inside, (*closing).waits)
}

// endNested empties the boxes of the sessions inside this one, and closes those that need
// not wait for anybody.
func (c *closing) endNested(ctx context.Context) {
	for _, id := range c.m.children(&c.rec, c.box) {
		if slices.ContainsFunc(c.inside, func(n *closing) bool { return n.r.ID == id }) {
			continue
		}
		n := c.m.beginClose(ctx, id, c.inner(), false)
		if n.over || n.failed != nil || !n.waits() {
			r, err := n.complete(ctx)
			c.add(id, r, err)
		} else {
			n.bequeath() // before our own kill comes upon what was kept of it
			c.inside = append(c.inside, n)
		}
		c.lookAnew()
	}
}

// add takes over what became of a session inside. That there is none any more is no error, and
// the last time that one is closed counts.
func (c *closing) add(id string, r Receipt, err error) {
	if errors.Is(err, ErrNotFound) {
		err = nil
	} else if r.ID != "" && !r.AlreadyClosed {
		c.r.addNested(&r)
	}
	if c.nested == nil {
		c.nested = map[string]error{}
	}
	c.nested[id] = err
}

// nestedErrors are those of sessions inside that are not closed by now.
func (c *closing) nestedErrors() error {
	var failed error
	for _, id := range slices.Sorted(maps.Keys(c.nested)) {
		if err := c.nested[id]; err != nil {
			if _, gone := c.m.store.Get(id); !errors.Is(gone, store.ErrNotFound) { // else by somebody else
				failed = errors.Join(failed, err)
			}
		}
	}
	return failed
}

// completeNested closes those that had to wait, each with its own receipt.
func (c *closing) completeNested(ctx context.Context) error {
	for _, n := range c.inside {
		r, err := n.complete(ctx)
		if len(r.Survivors) > 0 && c.failed == nil { // our own kill may have helped
			c.add(n.rec.ID, r, nil)
			r, err = c.m.closeID(ctx, n.rec.ID, c.inner(), false)
		}
		c.add(n.rec.ID, r, err)
		c.oneLook(false)
	}
	c.inside = nil
	return c.nestedErrors()
}

// inner says how a session inside this one is closed: whoever owns it, and whatever
// becomes of the reason to close this one meanwhile.
func (c *closing) inner() CloseOptions {
	o := c.o
	o.Generation, o.only, o.nested = 0, nil, true
	if o.around == nil && c.box != nil {
		o.around = &Session{m: c.m, rec: c.rec, box: c.box}
	}
	return o
}

// end empties the box.
func (c *closing) end(ctx context.Context) error {
	c.list()
	c.count()
	used, known := c.used()
	c.oneLook(false)
	grace := c.grace()
	asked := grace > 0 && c.othersThan(helperLeaf)
	if asked {
		c.passTurn()
		c.ask(ctx, grace)
	}
	if grace > 0 {
		c.lastWords(ctx)
	}
	if asked {
		c.list() // who is there now was not listed before, or did not listen
		if err := ctx.Err(); err != nil {
			// Broken off in the grace: nobody is killed for that.
			for i := range c.r.Processes {
				if c.r.Processes[i].Fate == FateKilled {
					c.r.Processes[i].Fate = fateAlive
				}
			}
			return err
		}
	}
	// From here on there is no way back, and the receipt must say what was done.
	ctx = context.WithoutCancel(ctx)
	if c.missed {
		// Who is another process by the time it is read is seen only while the box
		// stands still; the kill thaws it.
		still, done := context.WithTimeout(ctx, stillTime)
		if err := c.box.Freeze(still); err != nil {
			c.m.log.Debug("freeze before the list", "err", err)
		}
		done()
		c.list()
	}
	c.holdHeirs(ctx)
	kill, cancel := context.WithTimeout(ctx, killTime)
	defer cancel()
	err := c.leftover(c.box.Kill(kill, ""))
	if err == nil && len(c.r.Survivors) == 0 {
		c.bequeath() // what others run may be waited for after this
	}
	c.aftermath()
	if !known {
		used, _ = c.used()
	}
	c.r.Usage = used
	c.r.OOM = c.m.oomOf(c.box, &c.rec, true)
	return err
}

// leftover notes whom a kill of the box did not end. The error is one that says nothing of
// them.
func (c *closing) leftover(err error) error {
	left, ok := errors.AsType[*proc.SurvivorsError](err)
	if !ok {
		return err
	}
	for _, s := range left.Survivors {
		if i, ok := c.seen[proc.ID{PID: s.PID, Start: s.Start}]; ok {
			c.r.Processes[i].Fate = FateSurvived
		}
	}
	c.r.Survivors = append(c.r.Survivors, left.Survivors...)
	return nil
}

// used is what the box has used, and whether that can be told of the living only: then it is
// asked before they are ended.
func (c *closing) used() (UsageInfo, bool) {
	_, living := c.box.(*lineageBox)
	u, err := c.box.Usage("")
	if err != nil {
		return UsageInfo{}, false
	}
	return usage(u), living
}

// oneLook has one look at a lineage box serve all that is asked of it, or no more.
func (c *closing) oneLook(on bool) {
	if b, ok := c.box.(*lineageBox); ok {
		b.oneLook(on)
	}
}

// lookAnew has a lineage box look anew when a session inside was emptied: its processes have
// gone, and who was kept of it is another session's, that was not there at the last look.
func (c *closing) lookAnew() {
	if b, ok := c.box.(*lineageBox); ok {
		b.survey.forget()
		b.oneLook(false)
	}
}

// count reads what the leaves of all tasks tell, before anything is ended: the leaves of a
// box that systemd keeps go with the last process.
func (c *closing) count() {
	if c.tallies == nil { // else the box was entered again
		c.tallies = map[int]memlimit.Tally{}
		for i := range c.records {
			if t := &c.records[i]; t.Moved == "" {
				c.tallies[t.N] = c.m.tally(c.box, &c.rec, t)
			}
		}
	}
}

// told is what the leaf of a task tells still, or has told before the kill.
func (c *closing) told(t *store.Task) memlimit.Tally {
	y := c.m.tally(c.box, &c.rec, t)
	if before := c.tallies[t.N]; y.OOM == nil || y.Shared {
		if y.PeakBytes != nil {
			before.PeakBytes = y.PeakBytes
		}
		return before
	}
	return y
}

// tally puts into the record of a task that the close ended what its leaf tells.
func (c *closing) tally(t *store.Task) {
	if c.box == nil {
		return
	}
	y := c.told(t)
	t.PeakBytes = y.PeakBytes
	r := Result{State: t.State, Reason: t.Reason, Signal: syscall.SIGKILL, OOM: y.OOM, shared: y.Shared}
	r.explain(t, true)
	t.State, t.Reason, t.OOM = r.State, r.Reason, r.OOM
}

func (c *closing) grace() time.Duration {
	switch {
	case c.o.Now:
		return 0
	case c.o.Grace != nil:
		return *c.o.Grace
	}
	return c.rec.Grace
}

// ask sends SIGTERM and waits until all tasks are gone or the grace is over.
// SIGCONT lets stopped ones hear it, thawing frozen ones.
func (c *closing) ask(ctx context.Context, grace time.Duration) {
	wait, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} {
		if _, err := c.box.Signal(wait, "", sig); err != nil {
			c.m.log.Debug("signal", "sig", sig, "err", err) // the kill reaches them
		}
	}
	if frozen, err := c.box.Frozen(); err == nil && frozen {
		c.box.Thaw(wait)
	}
	c.m.thawAbandoned(&c.rec, c.box)
	leaves, err := c.box.Leaves()
	if err != nil {
		return
	}
	for _, leaf := range leaves {
		if c.box.WaitEmpty(wait, leaf) != nil {
			return
		}
	}
	// Members can move themselves up, out of the leaves: rare, so looked at
	// in intervals.
	for c.othersThan(helperLeaf) && wait.Err() == nil {
		select {
		case <-wait.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// othersThan says whether the box holds a process that is not in our own leaf.
func (c *closing) othersThan(leaf string) bool {
	members, err := c.box.Members("")
	if err != nil {
		return true
	}
	return slices.ContainsFunc(members, func(m proc.Member) bool { return m.Leaf != leaf })
}

// list adds what is alive in the box to the receipt, and settles the fate of
// those listed before: who is not there any more ended when asked.
func (c *closing) list() {
	for i := range c.r.Processes {
		c.r.Processes[i].Fate = FateEnded
	}
	members, err := c.box.Members("")
	if err != nil {
		c.note("the box could not be listed: " + err.Error())
		return
	}
	few, d := len(members) <= detailedUpTo, brief
	if few {
		d = named
	}
	described := describeAll(members, c.rec.ID, c.records, few, d, c.now)
	others := slices.DeleteFunc(members, func(m proc.Member) bool { return m.Leaf == helperLeaf })
	c.missed = len(described) < len(others)
	for _, p := range described {
		id := proc.ID{PID: p.PID, Start: p.Start}
		i, ok := c.seen[id]
		if !ok {
			i = len(c.r.Processes)
			c.seen[id] = i
			c.r.Processes = append(c.r.Processes, Fated{Process: p})
		}
		c.r.Processes[i].Fate = FateKilled
	}
}

// stillTime bounds the wait for a box to stand still: one with a vfork under way
// never does.
const stillTime = 100 * time.Millisecond

// detailedUpTo bounds how many processes are described with command line and
// ports: a close of thousands must not wait for the telling.
const detailedUpTo = 200

// sweep ends what carries the session's cookie outside the box. Where it cannot
// be looked for, it cannot be said that nothing is left.
//
// The kill of a lineage box has looked for it itself, and knows what has better claims.
func (c *closing) sweep(ctx context.Context, dry bool) error {
	if b, ok := c.box.(*lineageBox); ok {
		if dry {
			c.r.Strays = append(c.r.Strays, b.strays(ctx)...)
		}
		return nil
	}
	skip := c.listed(dry)
	for _, pid := range c.watching() {
		skip[pid] = true
	}
	w, err := c.m.endStrays(ctx, &c.rec, skip, dry, c.now)
	c.r.Strays = append(c.r.Strays, w.ended...)
	c.r.Suspects = append(c.r.Suspects, w.suspects...)
	c.r.Survivors = append(c.r.Survivors, w.left...)
	c.r.Notes = append(c.r.Notes, w.notes...)
	if err != nil {
		return &Error{Kind: ErrUnsupported, Session: c.name(), Text: "processes outside its box could not be looked for", Err: err,
			Hint: "close it from where /proc shows all of this user's processes"}
	}
	return nil
}

// listed says which pids are accounted for by the box: in a dry run they live.
func (c *closing) listed(dry bool) map[int]bool {
	pids := map[int]bool{}
	if dry && c.box != nil {
		members, _ := c.box.Members("") // with our own, which the receipt leaves out
		for _, m := range members {
			pids[m.PID] = true
		}
	}
	return pids
}

// look is the dry run.
func (c *closing) look(ctx context.Context) error {
	if c.box != nil {
		c.list()
		for i := range c.r.Processes {
			c.r.Processes[i].Fate = fateAlive
		}
		if u, err := c.box.Usage(""); err == nil {
			c.r.Usage = usage(u)
		}
	}
	for _, id := range c.m.children(&c.rec, c.box) {
		if r, err := c.m.closeID(ctx, id, c.inner(), false); err == nil {
			c.r.Nested = append(c.r.Nested, r)
		}
	}
	var problems []string
	c.r.Containers, c.r.Units, c.r.Jobs, problems = c.m.lookHired(ctx, &c.rec, true)
	c.r.Notes = append(c.r.Notes, problems...)
	if err := c.sweep(ctx, true); err != nil {
		c.note(err.Error())
	}
	c.r.Tasks = c.tasks()
	return nil
}

// running gives the tasks whose end is not recorded.
func running(tasks []store.Task) map[int]bool {
	running := map[int]bool{}
	for i := range tasks {
		if !tasks[i].State.Ended() {
			running[tasks[i].N] = true
		}
	}
	return running
}

// tasks gives the session's tasks for the receipt; what was running was killed.
func (c *closing) tasks() []TaskInfo {
	tasks, _, err := c.m.store.Tasks(c.rec.ID)
	if err != nil {
		return []TaskInfo{}
	}
	infos := make([]TaskInfo, 0, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		if t.Moved != "" {
			continue
		}
		if !t.State.Ended() && !c.o.DryRun {
			now := time.Now()
			t.State, t.Ended, t.Reason = store.TaskKilled, &now, c.why()
			c.tally(t)
		} else if c.r.OOM != nil && c.box != nil { // of what it left, perhaps
			if y := c.told(t); y.OOM != nil && !y.Shared {
				t.OOM = y.OOM
			}
		}
		ti := taskInfo(t)
		for i := range c.r.Processes {
			if p := &c.r.Processes[i]; p.Task == t.N && !c.running[t.N] {
				ti.Leftovers++
			}
		}
		infos = append(infos, ti)
	}
	return infos
}

// why is the reason that a task which the close ended is given.
func (c *closing) why() string {
	if c.o.Reason == "" {
		return "the session was closed"
	}
	return "the session was closed: " + c.o.Reason
}

// removeTries is how often a box that was entered again is emptied again.
const removeTries = 3

// remove takes the empty box away.
func (c *closing) remove(ctx context.Context) error {
	if c.rec.Kind == store.KindSystemd {
		defer c.m.turn(ctx, closeTurn)()
	}
	wait, cancel := context.WithTimeout(ctx, killTime)
	defer cancel()
	var err error
	for range removeTries {
		if c.box == nil {
			err = c.m.removeUnit(wait, &c.rec)
		} else {
			err = c.box.Remove(wait)
		}
		if !errors.Is(err, syscall.EBUSY) {
			break
		}
		// Somebody came in after the kill: a process elsewhere may move itself.
		if err := c.end(ctx); err != nil {
			return err
		}
		if len(c.r.Survivors) > 0 {
			return survivorsError(c.name(), &proc.SurvivorsError{Path: c.rec.Path, Survivors: c.r.Survivors})
		}
	}
	if c.box != nil {
		c.sweepUp()
	}
	if isUnitLeft(err) {
		c.m.store.Owe(c.rec.Unit) // the manager is told at the next open
		c.note(err.Error())
		return nil
	}
	if errors.Is(err, syscall.EBUSY) {
		return &Error{Kind: ErrSurvivors, Session: c.name(), Text: "processes keep entering its box", Err: err, Retry: true}
	}
	if err != nil {
		return fmt.Errorf("remove the box %s: %w", c.rec.Path, err)
	}
	return nil
}

// forget moves the session from the records to the history. That it is closed
// is true whatever happens here, so failures are notes.
func (c *closing) forget(ctx context.Context) error {
	if err := c.m.appendReceipt(&c.r); err != nil {
		c.note("not written to the history: " + err.Error())
	}
	wait, cancel := context.WithTimeout(ctx, forgetTime)
	defer cancel()
	if err := c.m.store.Remove(wait, c.rec.ID); err != nil {
		c.note("its record could not be removed: " + err.Error())
	}
	return nil
}

// forgetTime bounds waiting for the lock of the names: a busy machine may have
// hundreds opening and closing at once.
const forgetTime = 30 * time.Second

func (c *closing) name() string {
	if c.rec.Name != "" {
		return c.rec.Name
	}
	return c.rec.ID
}
