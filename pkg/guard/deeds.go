package guard

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// Keeper does to sessions what a guard decides for want of memory: a
// [session.Manager].
type Keeper interface {
	MemoryFreeze(ctx context.Context, d session.MemoryDeed) error
	MemoryThaw(ctx context.Context, d session.MemoryDeed) error
	MemoryHibernate(ctx context.Context, d session.MemoryDeed) (session.HibernateReport, error)
	MemoryBrake(ctx context.Context, d session.MemoryDeed, high uint64) error
	MemoryLift(ctx context.Context, d session.MemoryDeed) error
	MemoryLiftHigh(ctx context.Context, d session.MemoryDeed, high uint64) error
	MemoryRestoreHigh(ctx context.Context, d session.MemoryDeed) error
	MemoryClose(ctx context.Context, d session.MemoryDeed, grace time.Duration) (session.Receipt, error)
}

var _ Keeper = (*session.Manager)(nil)

// deeds does what the ladder says, beside the watcher: a write to memory.high blocks
// while the kernel reclaims, a close takes its grace. Of one session one thing is done
// at a time.
type deeds struct {
	ctx    context.Context
	keeper Keeper
	log    *slog.Logger
	// hold has new sessions wait, "" lets them; write writes to the history; count is
	// for the metrics; say does both in its turn, after the warnings that were given before;
	// after is told when something was done to a session.
	hold  func(why string)
	write func(e store.Event, detail any)
	count func(memlimit.Deed)
	say   func(func())
	after func(outcome)
	all   sync.WaitGroup

	mu sync.Mutex
	// busy is what is being done to which session, missed what would have stopped it
	// meanwhile: the kernel reclaims for as long as it likes before a brake is set. When it is
	// over that is decided anew, by what is true then.
	busy   map[string]memlimit.Deed
	missed map[string][]memlimit.Action
	cycles cycles
	// ending says that nobody will lift a brake that is set now; lifts are those that wait
	// for something else to be done with the session.
	ending bool
	lifts  map[string]func()
}

// deedTime bounds what is done to a session, but for the grace of a close. One that is
// cut short by the end of the guard is taken up by the next.
const deedTime = 10 * time.Second

// hibernateTime bounds a hibernation: what is written to swap takes its time. One that is
// broken off has left a session that is frozen, and wakes likewise.
const hibernateTime = 2 * time.Minute

// done is the detail of an event of what was done, or not.
type done struct {
	memlimit.Action
	Processes *int `json:"processes,omitempty"` // ended by a close
	// Reclaimed is what a hibernation has freed.
	Reclaimed *uint64 `json:"reclaimed_bytes,omitempty"`
	Error     string  `json:"error,omitempty"`
}

// do never waits. The inode is of the session's box.
func (d *deeds) do(a memlimit.Action, inode uint64) {
	if a.Session == "" || a.Do == memlimit.Helpless {
		d.all.Go(func() { d.shared(a) })
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() != nil || d.ending && a.Do != memlimit.Lift {
		return
	}
	if doing := d.busy[a.Session]; doing != "" {
		if d.ending {
			d.lifts[a.Session] = func() { d.one(a, inode) }
		} else if a.Do != doing && (a.Do == memlimit.Freeze || a.Do == memlimit.Close) {
			d.missed[a.Session] = append(d.missed[a.Session], a)
		}
		return
	}
	d.busy[a.Session] = a.Do
	d.all.Go(func() {
		err := d.one(a, inode)
		d.mu.Lock()
		lift, missed := d.lifts[a.Session], d.missed[a.Session]
		delete(d.busy, a.Session)
		delete(d.missed, a.Session)
		d.mu.Unlock()
		if lift != nil {
			lift()
		}
		d.after(outcome{Action: a, failed: err != nil})
		for _, a := range missed {
			d.after(outcome{Action: a, undone: true})
		}
	})
}

// shared does what is of no session, or to none.
func (d *deeds) shared(a memlimit.Action) {
	switch a.Do {
	case memlimit.Hold:
		d.hold(a.Reason)
	case memlimit.Release:
		d.hold("")
	}
	d.tell(a, done{Action: a}, nil)
}

func (d *deeds) one(a memlimit.Action, inode uint64) error {
	limit := deedTime + a.Grace
	if a.Do == memlimit.Hibernate {
		limit = hibernateTime
	}
	ctx, cancel := context.WithTimeout(d.ctx, limit)
	defer cancel()
	deed := session.MemoryDeed{ID: a.Session, Inode: inode, Reason: "memory: " + a.Reason}
	what := done{Action: a}
	var err error
	switch a.Do {
	case memlimit.Freeze:
		err = d.keeper.MemoryFreeze(ctx, deed)
	case memlimit.Thaw:
		err = d.keeper.MemoryThaw(ctx, deed)
	case memlimit.Hibernate:
		var r session.HibernateReport
		if r, err = d.keeper.MemoryHibernate(ctx, deed); err == nil {
			what.Reclaimed = &r.ReclaimedBytes
		}
	case memlimit.Arm, memlimit.Brake:
		if err = d.keeper.MemoryBrake(ctx, deed, a.High); err == nil && d.isEnding() {
			err = errors.Join(errEnding, d.keeper.MemoryLift(context.WithoutCancel(ctx), deed))
		}
	case memlimit.Lift:
		if a.High != 0 {
			err = d.keeper.MemoryLiftHigh(ctx, deed, a.High)
		} else {
			err = d.keeper.MemoryLift(ctx, deed)
		}
	case memlimit.Restore:
		err = d.keeper.MemoryRestoreHigh(ctx, deed)
	case memlimit.Close:
		var r session.Receipt
		if r, err = d.keeper.MemoryClose(ctx, deed, a.Grace); err == nil {
			n := r.Swept()
			what.Processes = &n
		}
	default:
		err = errors.ErrUnsupported
	}
	d.tell(a, what, err)
	return err
}

// errEnding says that a brake was taken away again: it is no place to rest in.
var errEnding = errors.New("the guard is ending")

// end has nothing more begun but to lift brakes; what runs goes on.
func (d *deeds) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ending, d.lifts = true, map[string]func(){}
}

func (d *deeds) isEnding() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ending
}

func (d *deeds) tell(a memlimit.Action, what done, err error) {
	text := string(a.Do) + ": " + a.Reason
	if err != nil {
		what.Error = err.Error()
		text = "not done: " + text + ": " + what.Error
	}
	level := slog.LevelWarn
	if (a.Do == memlimit.Arm || a.Do == memlimit.Restore) && err == nil { // that stops nobody
		level = slog.LevelInfo
	}
	d.mu.Lock()
	known := d.cycles.known(a, what.Error, time.Now())
	d.mu.Unlock()
	if known {
		level = slog.LevelDebug
	}
	e := store.Event{Event: session.EventMemoryAction, ID: a.Session, Msg: text}
	if a.Name != a.Session {
		e.Name = a.Name
	}
	d.say(func() {
		d.log.Log(context.Background(), level, "memory: "+text, "session", a.Session)
		if err == nil {
			d.count(a.Do)
		}
		if !known {
			d.write(e, &what)
		}
	})
}
