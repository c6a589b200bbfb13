package session

import (
	"context"
	"errors"
	"math"
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
	// Forget drops the record of a session whose close cannot come to its end: its processes are
	// those of a pid namespace that is gone, or an engine is that held something of it. It is
	// not closed for that: the error is the same, and [Receipt].Forgotten says so. A session of
	// which a process has survived, or whose box is there, is not forgotten.
	Forget bool
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
			if r, ok := m.lastReceipt(ref); ok && !r.Forgotten {
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
		if r, ok := m.lastReceipt(id); ok && !r.Forgotten && errors.Is(err, store.ErrNotFound) {
			r.AlreadyClosed = true // by whoever held the lock before us
			return c.without(r, nil)
		}
		return c.without(Receipt{}, m.lookupError(id, err))
	}
	c.rec, c.unrecorded = rec, problem != ""
	if problem != "" {
		c.note(problem)
		// With its cookie lost, too, it may have had shims: engines are asked for its label.
		c.rec.Shims = c.rec.Shims || c.rec.Cookie == ""
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
	if err != nil && o.Forget && c.mayForget(ctx) {
		c.r.Forgotten = true
		return c.r, errors.Join(err, c.removeTmp(ctx), c.forget(ctx))
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
	removed    bool                   // so is the box
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

func (c *closing) grace() time.Duration {
	switch {
	case c.o.Now:
		return 0
	case c.o.Grace != nil:
		return *c.o.Grace
	}
	return c.rec.Grace
}

// why is the reason that a task which the close ended is given.
func (c *closing) why() string {
	if c.o.Reason == "" {
		return "the session was closed"
	}
	return "the session was closed: " + c.o.Reason
}

func (c *closing) name() string {
	if c.rec.Name != "" {
		return c.rec.Name
	}
	return c.rec.ID
}
