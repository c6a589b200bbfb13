package guard

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// errReplaced: another guard finds no lock of ours.
var errReplaced = errors.New("the state directory was removed or replaced")

// loop waits and does what is to be done until the guard is to end, and says why it
// is.
func (g *guard) loop(ctx context.Context) (why string, err error) {
	defer context.AfterFunc(ctx, g.w.Wake)()
	g.refresh()
	g.begun()
	g.full = g.clock()
	for {
		now := g.clock()
		g.collect(now)
		if err := g.learn(now); err != nil {
			return "", err
		}
		g.dispatch(ctx, now)
		if ctx.Err() != nil {
			return "asked to", nil
		}
		if g.nothingToDo(now) && g.release(ctx) {
			return "nothing is left to watch", nil
		}
		w, err := g.w.Wait(g.next(now))
		if err != nil {
			return "", err
		}
		now = g.clock()
		for _, id := range w.ended {
			if ws, ok := w.status[id]; ok {
				for name := range g.plan.waiting[id] {
					g.told(name, id, ws)
				}
			}
			g.plan.end(id, now)
		}
		if w.changed && g.reread == 0 {
			g.reread = max(now+debounce, g.rested)
		}
	}
}

// next is when there is something to be done, if nothing happens.
func (g *guard) next(now time.Duration) time.Duration {
	at := sooner(g.reread, g.look)
	if g.running < atOnce {
		at = sooner(at, g.plan.next())
	}
	if g.full != 0 && !g.pass {
		full := g.full
		if g.running > 0 && full <= now {
			full += passPatience
		}
		at = sooner(at, full)
	}
	if g.idle != 0 {
		at = sooner(at, g.idle+linger)
	}
	return at
}

// learn reads the records that have changed.
func (g *guard) learn(now time.Duration) error {
	changed, look := g.reread != 0 && g.reread <= now, g.look != 0 && g.look <= now
	if changed || look {
		var ids []string
		all := look
		if changed {
			g.reread = 0
			var every bool
			ids, every = g.w.Changes()
			all = all || every
		}
		if all {
			if g.lock != nil && !g.lock.Valid() {
				return errReplaced
			}
			g.refresh()
		} else {
			for _, id := range ids {
				g.read(id)
			}
		}
		end := g.clock()
		g.rested = end + min(restFactor*(end-now), restMost)
	}
	if g.w.Sure() {
		g.look = 0
	} else if g.look <= now {
		g.look = g.clock() + lookTime
	}
	return nil
}

// refresh reads all records.
func (g *guard) refresh() {
	all, err := g.sessions.Watches()
	if err != nil {
		g.log.Warn("read the records", "err", err)
		return
	}
	there := map[string]bool{}
	for _, w := range all {
		there[w.Session] = true
		if g.plan.sessions[w.Session] == nil {
			g.read(w.Session) // again: it may have changed before it was followed
		} else {
			g.take(w)
		}
	}
	for id := range g.plan.sessions {
		if !there[id] {
			g.read(id)
		}
	}
}

// read reads the record of one session. One that cannot be read is watched on as it
// was.
func (g *guard) read(id string) {
	if g.plan.sessions[id] == nil {
		g.w.Follow(id)
	}
	w, err := g.sessions.WatchOf(id)
	switch {
	case err == nil:
		g.take(w)
	case errors.Is(err, store.ErrNotFound):
		g.w.Forget(id)
		for _, p := range g.plan.drop(id) {
			g.w.Release(p)
		}
		delete(g.statuses, id)
		g.memory.set(id, nil)
	default:
		g.log.Debug("read the record of a session", "session", id, "err", err)
	}
}

// take notes what is known of a session and waits for what matters to it.
func (g *guard) take(w session.Watch) {
	old := g.plan.sessions[w.Session]
	if old == nil || old.Name != w.Name || !reflect.DeepEqual(old.Memory, w.Memory) {
		g.memory.set(w.Session, &w)
	}
	hold, release := g.plan.set(w)
	for _, p := range release {
		// Whoever wrote the record may have been quicker to see the end than we.
		if ws, ok := g.w.Release(p); ok {
			g.told(w.Session, p, ws)
			g.plan.news(w.Session, g.clock())
		}
	}
	for _, p := range hold {
		err := g.w.Hold(p)
		if errors.Is(err, proc.ErrGone) || errors.Is(err, proc.ErrReused) {
			g.plan.end(p, g.clock())
		} else if err != nil && !errors.Is(err, proc.ErrElsewhere) {
			g.log.Debug("wait for the end of a process", "process", p, "err", err)
		}
	}
}

// dispatch starts the reconciles that are due.
func (g *guard) dispatch(ctx context.Context, now time.Duration) {
	if ctx.Err() != nil {
		return
	}
	for _, j := range g.plan.begin(now, atOnce-g.running) {
		g.running++
		g.metrics.begun(now - j.cause)
		g.start(ctx, j, session.ReconcileOptions{Sessions: []string{j.id}, Ended: g.statuses[j.id]})
		delete(g.statuses, j.id)
	}
	switch { // after the first one, only while somebody must watch
	case !g.passed:
	case g.plan.policies() == 0:
		g.full = 0
	case g.full == 0:
		g.full = now + g.netTime()
	}
	if g.full == 0 || g.pass || g.full > now || g.running > 0 && g.full+passPatience > now {
		return
	}
	g.pass, g.passed, g.full = true, true, 0
	g.start(ctx, job{cause: now}, session.ReconcileOptions{})
}

// told notes how a process of a session ended, for its next reconcile.
func (g *guard) told(session string, id proc.ID, ws syscall.WaitStatus) {
	if g.statuses[session] == nil {
		g.statuses[session] = map[proc.ID]syscall.WaitStatus{}
	}
	g.statuses[session][id] = ws
}

func (g *guard) netTime() time.Duration {
	if g.w.Sure() {
		return netTime
	}
	return netTimeUnsure
}

func (g *guard) start(ctx context.Context, j job, o session.ReconcileOptions) {
	g.workers.Go(func() {
		r, err := g.sessions.Reconcile(ctx, o)
		g.mu.Lock()
		g.results = append(g.results, result{j, r, err})
		g.mu.Unlock()
		g.w.Wake()
	})
}

// collect takes in the reconciles that have ended.
func (g *guard) collect(now time.Duration) {
	g.mu.Lock()
	ended := g.results
	g.results = nil
	g.mu.Unlock()
	for _, e := range ended {
		failed := e.err != nil
		for i := range e.r.Sessions {
			r := &e.r.Sessions[i]
			failed = failed || r.Action == session.ActionFailed || r.Error != ""
			g.tell(r)
			g.metrics.acted(r)
		}
		if e.id == "" {
			g.pass = false
			if e.err != nil {
				g.log.Warn("reconcile all sessions", "err", e.err)
				g.passed, g.full = false, now+netTimeUnsure
			}
			continue
		}
		g.running--
		g.metrics.done(now - e.cause)
		g.read(e.id)
		if failed && g.plan.firstFailure(e.id) {
			g.event("guard_failed", fmt.Sprintf("reconcile session %s: %v", e.id, problem(e)))
		}
		if e.err != nil {
			g.log.Warn("reconcile a session", "session", e.id, "err", e.err)
		}
		g.plan.finish(e.job, now, failed)
	}
}

func problem(e result) any {
	if e.err != nil {
		return e.err
	}
	for i := range e.r.Sessions {
		if r := &e.r.Sessions[i]; r.Error != "" {
			return r.Error
		}
	}
	return "something is left"
}

// tell logs what was done to a session.
func (g *guard) tell(r *session.Reconciled) {
	if r.Action == session.ActionNone || r.Action == session.ActionSkipped {
		return
	}
	name := r.ID
	if r.Name != "" {
		name = r.Name + " (" + r.ID + ")"
	}
	text := fmt.Sprintf("%s session %s: %s", r.Action, name, r.Reason)
	if r.Receipt != nil && r.Receipt.Swept() > 0 {
		text += fmt.Sprintf("; %d of its processes were alive", r.Receipt.Swept())
	}
	if r.Error != "" {
		g.log.Warn(text, "err", r.Error)
		return
	}
	g.log.Info(text)
}

// nothingToDo says whether a guard that was started on demand may end.
func (g *guard) nothingToDo(now time.Duration) bool {
	if !g.onDemand || g.plan.policies() > 0 || g.running > 0 || g.pass || !g.passed {
		g.idle = 0
		return false
	}
	if g.idle == 0 {
		g.idle = now
	}
	return now >= g.idle+linger
}

// release gives the lock up if there is nothing to watch, and says whether the guard
// is to end. Who opens a session writes its record first and looks for the lock then;
// here the lock is given up first and the records are read then. Of the two, one sees
// the other.
func (g *guard) release(ctx context.Context) bool {
	g.idle = 0
	if g.wanted() {
		g.refresh()
		return false
	}
	g.noting.Lock()
	defer g.noting.Unlock()
	g.lock.Unlock()
	if !g.wanted() {
		return true
	}
	l, err := g.tryLock(ctx)
	if err != nil {
		return true // the opener has started another
	}
	g.lock = l
	g.sayWho()
	g.refresh()
	return false
}

// wanted says whether a session must be watched, by the records as they are now.
func (g *guard) wanted() bool {
	all, err := g.sessions.Watches()
	if err != nil {
		g.log.Warn("read the records", "err", err)
	}
	for _, w := range all {
		if w.Policy {
			return true
		}
	}
	return false
}
