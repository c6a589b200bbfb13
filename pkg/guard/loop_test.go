package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// rig is a guard's loop with everything around it made up, in fake time.
type rig struct {
	t     *testing.T
	began time.Time
	g     *guard
	ctx   context.Context
	end   context.CancelFunc
	ended chan string // why

	mu       sync.Mutex
	watches  map[string]session.Watch
	calls    []string // what was reconciled, "" is all
	times    []time.Duration
	active   map[string]int
	reads    int
	reported int
	do       func(ctx context.Context, id string) (session.Reconciled, error)
	learnt   map[proc.ID]syscall.WaitStatus // what reconciles were told of ends

	// The waiter.
	gone map[proc.ID]bool
	// statuses are how processes ended, of those of whom it can be known.
	statuses map[proc.ID]syscall.WaitStatus
	held     map[proc.ID]bool
	pending  map[string]bool
	all      bool
	unsure   bool
	waits    int
	wakes    chan wake
}

func newRig(t *testing.T, onDemand bool) *rig {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	st, err := store.Open(store.Dirs{State: dir, History: filepath.Join(dir, "history"), UID: os.Geteuid(), Given: true})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, began: time.Now(), ended: make(chan string, 1), watches: map[string]session.Watch{}, active: map[string]int{},
		learnt: map[proc.ID]syscall.WaitStatus{}, statuses: map[proc.ID]syscall.WaitStatus{}, gone: map[proc.ID]bool{}, held: map[proc.ID]bool{}, pending: map[string]bool{}, wakes: make(chan wake, 10000)}
	r.ctx, r.end = context.WithCancel(t.Context())
	r.g = &guard{sessions: r, w: r, clock: r.clock, log: slog.New(slog.DiscardHandler), store: st, onDemand: onDemand, plan: newPlan(), statuses: map[string]map[proc.ID]syscall.WaitStatus{}}
	if r.g.lock, err = r.g.tryLock(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// start runs the loop until it ends by itself or the test does.
func (r *rig) start() {
	go func() {
		why, err := r.g.loop(r.ctx)
		if err != nil {
			why = err.Error()
		}
		r.ended <- why
	}()
	synctest.Wait()
}

func (r *rig) stop() string {
	r.t.Helper()
	r.end()
	why := <-r.ended
	r.g.workers.Wait()
	r.g.lock.Unlock()
	return why
}

func (r *rig) clock() time.Duration { return time.Since(r.began) + time.Hour }

// put changes a session's record, as seen by the guard; a nil one is removed.
func (r *rig) put(id string, w *session.Watch) {
	r.mu.Lock()
	if w == nil {
		delete(r.watches, id)
	} else {
		w.Session = id
		r.watches[id] = *w
	}
	tell := len(r.pending) == 0
	r.pending[id] = true
	r.mu.Unlock()
	if tell {
		r.wakes <- wake{changed: true}
	}
	synctest.Wait()
}

func (r *rig) kill(id proc.ID) {
	r.mu.Lock()
	r.gone[id] = true
	held := r.held[id]
	delete(r.held, id)
	status, known := r.statuses[id]
	r.mu.Unlock()
	if held {
		w := wake{ended: []proc.ID{id}}
		if known {
			w.status = map[proc.ID]syscall.WaitStatus{id: status}
		}
		r.wakes <- w
	}
	synctest.Wait()
}

// done are the sessions that were reconciled since it was asked last.
func (r *rig) done() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	list := slices.Clone(r.calls[r.reported:])
	r.reported = len(r.calls)
	slices.Sort(list)
	return list
}

// see reads a counter.
func (r *rig) see(n *int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return *n
}

func (r *rig) Watches() ([]session.Watch, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.watches)), nil
}

func (r *rig) WatchOf(id string) (session.Watch, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads++
	w, ok := r.watches[id]
	if !ok {
		return w, fmt.Errorf("%s: %w", id, store.ErrNotFound)
	}
	return w, nil
}

func (r *rig) Reconcile(ctx context.Context, o session.ReconcileOptions) (session.Reconciliation, error) {
	id := "all"
	if o.Sessions != nil {
		id = o.Sessions[0]
	}
	r.mu.Lock()
	r.calls = append(r.calls, id)
	r.times = append(r.times, r.clock())
	maps.Copy(r.learnt, o.Ended)
	r.active[id]++
	if r.active[id] > 1 {
		r.t.Errorf("%s is reconciled twice at once", id)
	}
	do := r.do
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.active[id]--
		r.mu.Unlock()
	}()
	if do == nil || id == "all" {
		return session.Reconciliation{}, nil
	}
	one, err := do(ctx, id)
	return session.Reconciliation{Sessions: []session.Reconciled{one}}, err
}

func (r *rig) Hold(id proc.ID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone[id] {
		return fmt.Errorf("pid %d: %w", id.PID, proc.ErrGone)
	}
	r.held[id] = true
	return nil
}

func (r *rig) Release(id proc.ID) (status syscall.WaitStatus, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, id)
	status, known = r.statuses[id]
	return status, known
}

func (r *rig) Follow(string) {}
func (r *rig) Forget(string) {}
func (r *rig) Sure() bool    { r.mu.Lock(); defer r.mu.Unlock(); return !r.unsure }
func (r *rig) Close() error  { return nil }
func (r *rig) Wake()         { r.wakes <- wake{} }

func (r *rig) Wait(until time.Duration) (wake, error) {
	r.mu.Lock()
	r.waits++
	r.mu.Unlock()
	var timer <-chan time.Time
	if until != 0 {
		timer = time.After(max(0, until-r.clock()))
	}
	select {
	case w := <-r.wakes:
		return w, nil
	case <-timer:
		return wake{}, nil
	}
}

func (r *rig) Changes() (sessions []string, all bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sessions, all = slices.Collect(maps.Keys(r.pending)), r.all
	r.pending, r.all = map[string]bool{}, false
	return sessions, all
}

// sleep lets time pass, and what happens then happen.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func in(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func TestLoopOwner(t *testing.T) {
	in(t, func(t *testing.T) {
		r := newRig(t, false)
		r.watches["a"] = session.Watch{Session: "a", Ends: []proc.ID{p(7)}, Policy: true}
		r.start()
		want(t, "at the start", r.done(), []string{"all"})
		r.put("b", &session.Watch{Ends: []proc.ID{p(7)}, Policy: true})
		sleep(debounce)
		want(t, "nothing happened", r.done(), []string{})
		r.kill(p(7))
		want(t, "both", r.done(), []string{"a", "b"})
		// It was gone before it could be held.
		r.gone[p(8)] = true
		r.put("c", &session.Watch{Ends: []proc.ID{p(8)}, Policy: true})
		sleep(debounce)
		want(t, "c", r.done(), []string{"c"})
		r.stop()
	})
}

// A reconcile is told how processes of its session ended, also of one that was ended
// when the record said so, before the guard was told of the end.
func TestLoopStatus(t *testing.T) {
	in(t, func(t *testing.T) {
		r := newRig(t, false)
		r.watches["a"] = session.Watch{Session: "a", Ends: []proc.ID{p(7), p(8), p(9)}, Policy: true}
		r.start()
		r.done()
		r.statuses[p(7)] = 3 << 8
		r.kill(p(7))
		want(t, "for the end", r.done(), []string{"a"})
		want(t, "told", r.learnt, map[proc.ID]syscall.WaitStatus{p(7): 3 << 8})
		r.mu.Lock()
		r.statuses[p(8)] = 4 << 8
		r.mu.Unlock()
		r.put("a", &session.Watch{Ends: []proc.ID{p(9)}, Policy: true})
		sleep(debounce)
		want(t, "for the status", r.done(), []string{"a"})
		want(t, "told", r.learnt, map[proc.ID]syscall.WaitStatus{p(7): 3 << 8, p(8): 4 << 8})
		want(t, "statuses that are kept", len(r.g.statuses), 0)
		r.stop()
	})
}

// Without cause nobody wakes, but for the net, and for that only while it is wanted.
func TestLoopSleeps(t *testing.T) {
	in(t, func(t *testing.T) {
		r := newRig(t, false)
		for i := range 100 {
			id := fmt.Sprint(i)
			r.watches[id] = session.Watch{Session: id, Ends: []proc.ID{p(i + 2)}, Policy: true}
		}
		r.start()
		r.done()
		sleep(time.Second)
		waits := r.see(&r.waits)
		sleep(netTime - 2*time.Second)
		want(t, "waits", r.see(&r.waits), waits)
		sleep(2 * time.Second)
		want(t, "net", r.done(), []string{"all"})
		for i := range 100 {
			r.put(fmt.Sprint(i), nil)
		}
		sleep(time.Second)
		waits = r.see(&r.waits)
		sleep(24 * time.Hour)
		want(t, "waits with nothing to watch", r.see(&r.waits), waits)
		want(t, "why", r.stop(), "asked to")
		want(t, "held", len(r.held), 0)
	})
}

// A close that takes its time delays no other one.
func TestLoopSlow(t *testing.T) {
	in(t, func(t *testing.T) {
		r := newRig(t, false)
		r.watches["slow"] = session.Watch{Session: "slow", Ends: []proc.ID{p(2)}, Policy: true}
		r.watches["quick"] = session.Watch{Session: "quick", Ends: []proc.ID{p(3)}, Policy: true}
		r.do = func(_ context.Context, id string) (session.Reconciled, error) {
			if id == "slow" {
				time.Sleep(30 * time.Second)
			}
			return session.Reconciled{Action: session.ActionEnded}, nil
		}
		r.start()
		r.done()
		r.kill(p(2))
		want(t, "slow", r.done(), []string{"slow"})
		r.kill(p(3))
		want(t, "quick", r.done(), []string{"quick"})
		r.stop()
	})
}

// No more than so many at once, and the rest after them.
func TestLoopMany(t *testing.T) {
	in(t, func(t *testing.T) {
		r := newRig(t, false)
		for i := range 1000 {
			id := fmt.Sprint(i)
			r.watches[id] = session.Watch{Session: id, Ends: []proc.ID{p(2)}, Policy: true}
		}
		at, most := 0, 0
		r.do = func(context.Context, string) (session.Reconciled, error) {
			r.mu.Lock()
			at++
			most = max(most, at)
			r.mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			r.mu.Lock()
			at--
			r.mu.Unlock()
			return session.Reconciled{Action: session.ActionEnded}, nil
		}
		r.start()
		r.done()
		r.kill(p(2))
		sleep(2 * time.Second)
		want(t, "all of them", len(r.done()), 1000)
		want(t, "at once", most, atOnce)
		r.stop()
	})
}

func TestLoopRetries(t *testing.T) {
	in(t, func(t *testing.T) {
		r := newRig(t, false)
		r.watches["a"] = session.Watch{Session: "a", Ends: []proc.ID{p(2)}, Policy: true}
		tries := 0
		r.do = func(context.Context, string) (session.Reconciled, error) {
			switch tries++; tries {
			case 1:
				return session.Reconciled{}, errors.New("no")
			case 2, 3:
				return session.Reconciled{Action: session.ActionFailed, Error: "survivors"}, nil
			}
			return session.Reconciled{Action: session.ActionEnded}, nil
		}
		r.start()
		r.done()
		r.kill(p(2))
		sleep(time.Hour)
		r.stop()
		var pauses []time.Duration
		last := time.Duration(0)
		for i, c := range r.calls {
			if c == "a" {
				if last != 0 {
					pauses = append(pauses, r.times[i]-last)
				}
				last = r.times[i]
			}
		}
		want(t, "pauses", pauses, []time.Duration{s, 2 * s, 4 * s})
		events, err := r.g.store.ReadHistory(store.Filter{Events: []string{"guard_failed"}})
		if err != nil || len(events.Events) != 1 {
			t.Errorf("%d events, %v; want one for all tries", len(events.Events), err)
		}
	})
}

func TestLoopDue(t *testing.T) {
	in(t, func(t *testing.T) {
		r := newRig(t, false)
		now := r.clock()
		r.watches["lease"] = session.Watch{Session: "lease", Due: now + 10*s, Policy: true}
		r.start()
		r.done()
		sleep(9 * time.Second)
		r.put("lease", &session.Watch{Due: now + 20*s, Policy: true}) // renewed
		sleep(5 * time.Second)
		want(t, "renewed", r.done(), []string{})
		sleep(6*time.Second - time.Millisecond)
		want(t, "a little before 20 s", r.done(), []string{})
		sleep(time.Millisecond)
		want(t, "at 20 s", r.done(), []string{"lease"})
		// The record stays as it is: it is tried again, ever less often.
		sleep(10 * time.Minute)
		if n := len(r.done()); n < 10 || n > 20 {
			t.Errorf("%d times in ten minutes", n)
		}
		r.stop()
	})
}

// A storm of changes is read now and then, not one by one.
func TestLoopStorm(t *testing.T) {
	in(t, func(t *testing.T) {
		r := newRig(t, false)
		r.start()
		for range 1000 {
			r.put("a", &session.Watch{Policy: true})
			time.Sleep(time.Millisecond)
		}
		sleep(time.Second)
		r.stop()
		if most := 1000/int(debounce/time.Millisecond) + 2; r.reads > most {
			t.Errorf("read %d times, want at most %d", r.reads, most)
		}
		want(t, "policies", r.g.plan.policies(), 1)
	})
}

// Where changes are not told, or some were missed, everything is read.
func TestLoopUnsure(t *testing.T) {
	in(t, func(t *testing.T) {
		r := newRig(t, false)
		r.unsure = true
		r.start()
		r.done()
		r.mu.Lock()
		r.watches["a"] = session.Watch{Session: "a", Due: r.clock(), Policy: true}
		r.mu.Unlock()
		sleep(lookTime)
		want(t, "found", r.done(), []string{"a"})
		r.mu.Lock()
		delete(r.watches, "a")
		r.watches["b"] = session.Watch{Session: "b", Policy: true}
		r.unsure, r.all = false, true
		r.mu.Unlock()
		r.wakes <- wake{changed: true}
		time.Sleep(debounce)
		synctest.Wait()
		r.stop()
		want(t, "sessions", slices.Collect(maps.Keys(r.g.plan.sessions)), []string{"b"})
	})
}

func TestLoopEndsByItself(t *testing.T) {
	in(t, func(t *testing.T) {
		r := newRig(t, true)
		r.watches["a"] = session.Watch{Session: "a", Policy: true}
		r.start()
		sleep(5 * time.Minute)
		r.put("a", nil)
		sleep(linger - time.Second)
		r.put("b", &session.Watch{Policy: true})
		sleep(5 * time.Minute)
		select {
		case why := <-r.ended:
			t.Fatalf("ended while there is something to watch: %s", why)
		default:
		}
		r.put("b", &session.Watch{}) // its owner is gone, and it is kept
		sleep(linger + time.Second)
		want(t, "why", <-r.ended, "nothing is left to watch")
		if _, held, _ := r.g.store.Guard(); held {
			t.Error("the lock is held")
		}
	})
}

// A session that is opened in the instant in which the guard gives up is watched.
func TestLoopLastMoment(t *testing.T) {
	in(t, func(t *testing.T) {
		r := newRig(t, true)
		r.start()
		sleep(linger - time.Second)
		// Its record is there, what tells of it comes late.
		r.mu.Lock()
		r.watches["late"] = session.Watch{Session: "late", Ends: []proc.ID{p(9)}, Policy: true}
		r.mu.Unlock()
		sleep(time.Minute)
		if _, held, _ := r.g.store.Guard(); !held {
			t.Error("the lock is not held")
		}
		r.kill(p(9))
		want(t, "reconciled", slices.Contains(r.done(), "late"), true)
		r.stop()
	})
}

// A guard whose directory was replaced ends: another one finds no lock of its.
func TestLoopReplaced(t *testing.T) {
	in(t, func(t *testing.T) {
		r := newRig(t, false)
		r.start()
		if err := os.RemoveAll(r.g.store.Dirs().State); err != nil {
			t.Fatal(err)
		}
		r.mu.Lock()
		r.all = true
		r.mu.Unlock()
		r.wakes <- wake{changed: true}
		sleep(time.Second)
		want(t, "why", <-r.ended, errReplaced.Error())
	})
}
