package guard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// Options are how a guard works.
type Options struct {
	// Manager is of the sessions that are watched.
	Manager *session.Manager
	// OnDemand is a guard that the opener of a session started: it ends by itself, and
	// gives way.
	OnDemand bool
	// Metrics is where they are served: "unix:/PATH" or "127.0.0.1:PORT"; "" is nowhere.
	Metrics string
	// Memory are the rules of the ladder that are not of one session.
	Memory memlimit.Rules
	// Version is what the metrics say of the program.
	Version string
	// Log gets a line for everything that is done; nil discards it.
	Log *slog.Logger
	// Ready, if set, is called once, when the guard watches.
	Ready func()
}

// Sessions is what a guard asks of those that it watches: a [session.Manager].
type Sessions interface {
	Watches() ([]session.Watch, error)
	WatchOf(id string) (session.Watch, error)
	Reconcile(ctx context.Context, o session.ReconcileOptions) (session.Reconciliation, error)
}

var _ Sessions = (*session.Manager)(nil)

// guard is one that runs.
type guard struct {
	sessions Sessions
	w        waiter
	clock    func() time.Duration
	log      *slog.Logger
	metrics  *metrics // nil: nobody asks
	store    *store.Store
	keeper   Keeper
	holding  func(id string) (session.Holding, error)
	lock     *store.GuardLock
	noting   sync.Mutex // of note and of who holds the lock
	note     store.GuardNote
	onDemand bool
	ready    func()
	rules    memlimit.Rules
	memory   *memory // nil: it cannot be watched here

	plan *plan
	// statuses are how processes of a session ended of whom no reconcile knows yet.
	statuses map[string]map[proc.ID]syscall.WaitStatus
	// When what is to be done, 0: nothing is. reread is when records that have changed
	// are read, full when everything is reconciled, look when all records are read as
	// changes are not told, idle since when there is nothing to watch.
	reread, full, look, idle time.Duration
	// rested is before when records are not read again, so that a storm of changes
	// costs a twentieth of a processor and not all of it.
	rested  time.Duration
	running int  // reconciles of single sessions
	pass    bool // a reconcile of all is running
	passed  bool // there was one
	workers sync.WaitGroup

	mu      sync.Mutex
	results []result
}

// result is how a reconcile went; of all, if the job has no id.
type result struct {
	job
	r   session.Reconciliation
	err error
}

const (
	// debounce is how long a burst of changes is collected.
	debounce = 20 * time.Millisecond
	// restFactor is how much longer than reading changes took is waited before they are
	// read again, restMost how long at most: a session that is opened meanwhile waits.
	restFactor, restMost = 20, 250 * time.Millisecond
	// netTime is between two looks at everything, netTimeUnsure where changes are not told.
	netTime, netTimeUnsure = 15 * time.Minute, time.Minute
	// lookTime is between two readings of all records there.
	lookTime = 2 * time.Second
	// passPatience is how long a look at everything waits for single sessions.
	passPatience = 5 * time.Second
	// linger is how long a guard that was started on demand stays with nothing to watch.
	linger = 10 * time.Second
	// atOnce is how many sessions are reconciled at once. Most of the time a close
	// waits for processes to end.
	atOnce = 64
	// windUp is how long running reconciles get when the guard is to end. A close that
	// is cut short is resumed by the next guard.
	windUp = 5 * time.Second
)

// Run watches until ctx is done or, on demand, until there is nothing to watch. The
// error is of kind [session.ErrHeld] when another guard does so.
func Run(ctx context.Context, o Options) (err error) {
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	st, err := store.Open(o.Manager.Dirs())
	if err != nil {
		return err
	}
	if o.OnDemand && !exists(o.Manager.Dirs().State) {
		return nil // started again after all was removed: do not make it anew
	}
	self, err := proc.Self()
	if err != nil {
		return err
	}
	g := &guard{sessions: o.Manager, keeper: o.Manager, holding: o.Manager.Holding, clock: proc.Clock, log: log, store: st, onDemand: o.OnDemand, ready: o.Ready, rules: o.Memory, plan: newPlan(), statuses: map[string]map[proc.ID]syscall.WaitStatus{},
		note: store.GuardNote{Process: store.ProcID(self), OnDemand: o.OnDemand, Since: time.Now(), Metrics: o.Metrics}}
	held := false
	if g.lock, err = g.tryLock(ctx); errors.Is(err, session.ErrHeld) {
		// It may be one that gives way, once everything of ours is ready.
		if held = g.givesWay(ctx); held {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	defer func() { g.lock.Unlock() }()
	// The lock, or who holds it, has made the directory.
	if g.w, err = newWaiter(st.SessionsDir()); err != nil {
		return fmt.Errorf("prepare to wait: %w", err)
	}
	defer g.w.Close()
	serve, err := newServer(o, log)
	if err != nil && !o.OnDemand {
		return err
	}
	defer serve.close()
	if err == nil {
		err = serve.listen(held)
	}
	if err != nil && !o.OnDemand {
		return err
	}
	if held {
		if g.lock, err = g.takeOver(ctx); err != nil {
			return err
		}
		err = serve.listen(false)
	}
	if err != nil { // watching matters more
		log.Warn("go on without metrics", "err", err)
		g.event("guard_failed", "its metrics cannot be served: "+err.Error())
	}
	g.metrics = serve.serve()
	return g.main(ctx)
}

// main is the life of a guard that has the lock.
func (g *guard) main(ctx context.Context) error {
	g.noting.Lock()
	g.sayWho()
	g.noting.Unlock()
	unwatch := g.watchMemory()
	why, err := g.loop(ctx)
	unwatch()
	g.finish()
	if g.onDemand && errors.Is(err, errReplaced) {
		g.log.Info("guard ended: " + err.Error())
		return nil
	}
	if err != nil {
		g.event("guard_failed", err.Error())
		return err
	}
	g.event("guard_ended", why)
	if n := g.plan.policies(); n > 0 && !g.onDemand {
		g.log.Warn(plural(n, "session") + " with an owner or a time limit: watched by nobody now")
	}
	g.log.Info("guard ended: " + why)
	return nil
}

// begun says that the guard watches.
func (g *guard) begun() {
	g.noting.Lock()
	g.note.Ready = true
	g.sayWho()
	g.noting.Unlock()
	how := ""
	if g.onDemand {
		how = ", on demand"
	}
	text := plural(len(g.plan.sessions), "session") + how
	g.event("guard_started", text)
	g.log.Info("guard started: " + text)
	if g.ready != nil {
		g.ready()
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// finish waits a moment for reconciles that are running: the lock is held until they
// have ended or this process does.
func (g *guard) finish() {
	done := make(chan struct{})
	go func() { g.workers.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(windUp):
		g.log.Warn("a reconcile did not end in time; the next guard resumes it")
	}
}

// event writes to the history what the guard itself does; what it does to sessions is
// written by the reconcile.
func (g *guard) event(kind, text string) {
	if !exists(g.store.Dirs().State) {
		return // which writing would make anew
	}
	e := store.Event{Event: kind, PID: os.Getpid(), Msg: text}
	if err := g.store.Append(context.Background(), e); err != nil {
		g.log.Debug("write to the history", "event", kind, "err", err)
	}
}
