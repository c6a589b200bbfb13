package guard

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// told is a warning on its way to those who want to know.
type told struct {
	warning memlimit.Warning
	quiet   bool // for the record only
	who     []concern
}

// concern is a session that a warning is about.
type concern struct {
	place memlimit.Place
	watch session.MemoryWatch
}

// teller tells of memory: it writes the history, which may wait for a disk or a lock,
// so that the watcher need not. What is told it one after the other it tells in that
// order: what was done comes after the warning that explains it.
type teller struct {
	store   *store.Store
	log     *slog.Logger
	metrics *metrics
	run     *commands
	desktop desktop

	mu     sync.Mutex
	queue  []telling
	queued chan struct{} // says that there is something in it
	ended  bool          // nobody tells any more
	// waiting counts the warnings in the queue; lost those that did not fit into it since
	// one did.
	waiting, lost int
}

// telling is one thing to tell: a warning, or what somebody has to say of a deed.
type telling struct {
	warning *told
	deed    func()
}

// tellRoom is how many warnings may wait; a Crier lets through fewer in a minute. Deeds
// are spaced, and each waits for the one before with its session.
const tellRoom = 128

func newTeller(st *store.Store, log *slog.Logger, m *metrics) *teller {
	return &teller{store: st, log: log, metrics: m, queued: make(chan struct{}, 1), run: newCommands(log)}
}

// tell never waits.
func (t *teller) tell(w *told) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting >= tellRoom {
		t.lost++
		return
	}
	w.warning.LeftOut += t.lost
	t.lost = 0
	t.waiting++
	t.add(telling{warning: w})
}

// say has something said after all that was told before. It never waits, but at the end.
func (t *teller) say(f func()) {
	t.mu.Lock()
	if !t.ended {
		t.add(telling{deed: f})
		t.mu.Unlock()
		return
	}
	t.mu.Unlock()
	f()
}

func (t *teller) add(x telling) {
	t.queue = append(t.queue, x)
	select {
	case t.queued <- struct{}{}:
	default:
	}
}

// next takes the first of the queue. At the end, when there is none, nobody tells any more.
func (t *teller) next(ending bool) (x telling, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) == 0 {
		t.ended = ending
		return telling{}, false
	}
	x, t.queue = t.queue[0], t.queue[1:]
	if x.warning != nil {
		t.waiting--
	}
	return x, true
}

// serve tells until ctx is done; what was handed to it before is told all the same,
// but for commands.
func (t *teller) serve(ctx context.Context) {
	defer t.run.wait()
	for {
		ending := ctx.Err() != nil
		x, ok := t.next(ending)
		switch {
		case ok && x.warning != nil:
			t.one(ctx, x.warning)
		case ok:
			x.deed()
		case ending:
			return
		default:
			select {
			case <-t.queued:
			case <-ctx.Done():
			}
		}
	}
}

func (t *teller) one(ctx context.Context, w *told) {
	text := w.warning.String()
	level := slog.LevelWarn
	if w.quiet || w.warning.Change == memlimit.Cleared {
		level = slog.LevelInfo
	}
	t.log.Log(context.Background(), level, "memory: "+text)
	t.metrics.warned(&w.warning)
	e := store.Event{Event: session.EventMemoryWarning, ID: w.warning.Who.Session, Msg: text}
	if e.ID != "" && w.warning.Who.Name != e.ID {
		e.Name = w.warning.Who.Name
	}
	var run []*concern
	if !w.quiet && ctx.Err() == nil {
		run = t.book(w)
	}
	t.write(e, &w.warning)
	if !w.quiet && ctx.Err() == nil {
		t.call(ctx, w, run)
	}
}

// book finds the sessions that a warning is about and whose command is run; the warning
// says of which it is not.
func (t *teller) book(w *told) (run []*concern) {
	for i := range w.who {
		c := &w.who[i]
		if c.watch.OnWarn == "" {
			continue
		}
		if why := t.run.book(c.place.Session); why != "" {
			w.warning.Skipped = append(w.warning.Skipped, memlimit.Skipped{Session: c.place.Session, Why: why})
			t.log.Warn("a warning's command is not run: "+why, "session", c.place.Session)
			continue
		}
		run = append(run, c)
	}
	return run
}

// call runs the commands that were booked, and tells the desktop once.
func (t *teller) call(ctx context.Context, w *told, run []*concern) {
	onDesktop := false
	for i := range w.who {
		onDesktop = onDesktop || w.who[i].watch.Notify == "desktop"
	}
	for _, c := range run {
		of := w.warning // as it concerns this session
		of.Who = c.place
		t.run.run(ctx, c.place.Session, c.watch.OnWarn, c.watch.Cwd, of.Env())
	}
	if onDesktop {
		if err := t.desktop.notify(ctx, &w.warning); err != nil {
			t.log.Debug("tell the desktop of memory", "err", err)
		}
	}
}

// write writes an event; it is a log, and stops nothing.
func (t *teller) write(e store.Event, detail any) {
	b, err := json.Marshal(detail)
	if err == nil {
		e.Detail = b
		if exists(t.store.Dirs().State) { // which writing would make anew
			err = t.store.Append(context.Background(), e)
		}
	}
	if err != nil {
		t.log.Debug("write to the history", "event", e.Event, "err", err)
	}
}
