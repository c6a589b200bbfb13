package guard

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
)

// meter measures one place.
type meter interface {
	// Sample reads everything. The error is errGone when there is nothing to measure
	// any more.
	Sample(out *memlimit.Sample) error
	// Still takes the sample before for one of now where a cheap look says that it may.
	Still(out *memlimit.Sample) bool
	// Fresh has the next sample read everything anew.
	Fresh()
	// CPU is the processor time that the place has used; false where that is not told.
	CPU() (time.Duration, bool)
	// Processes are those of the place, the biggest first.
	Processes() []memlimit.Process
	Close() error
}

// errGone says that a place is no more.
var errGone = errors.New("it is gone")

// source is where a memory watcher gets its figures from, and what it sleeps in. But
// for Wake it is used by one goroutine.
type source interface {
	// Session measures a session's box.
	Session(w *session.MemoryWatch) (meter, error)
	// Around are the directories around a box that count memory, from the inside out; with
	// "" those around us, which what has no box is in.
	Around(box string) []string
	Group(dir string) (meter, error)
	// Host reads the figures of the machine, what is free of swap and what that is worth.
	Host(out *memlimit.Sample) (swapFree uint64, worth float64, err error)
	// Available is what of memory the machine has left, by a look that costs next to nothing.
	Available() (uint64, error)
	// Hidden says that there are cgroups around all that can be seen from here.
	Hidden() bool
	// Wait returns at the time until (0 is never), or before that when Wake is called or
	// the kernel has something to tell: of which meters, nil for that of the host. The
	// slice is good until the next call.
	Wait(until time.Duration) []meter
	Wake()
	Close() error
}

// spot is a place that is watched.
type spot struct {
	memlimit.Place
	path    string
	meter   meter // nil: the host's
	judge   memlimit.Judge
	sample  memlimit.Sample
	verdict memlimit.Verdict
	known   bool // there is a sample, and a verdict on it
	due     time.Duration
	forced  time.Duration // when it was last looked at for being woken
	whole   bool          // the next sample is to be a whole one
	failed  bool          // the last one was not to be had

	watch  session.MemoryWatch // of a session
	around []*spot             // from the inside out; the host is the last
	// swap is this sample and those around it; inside are the verdicts on the sessions
	// in it. Both are made when something comes or goes, so that a round makes nothing.
	swap   []*memlimit.Sample
	inside []*memlimit.Verdict
	cost   time.Duration // how long it took to measure
	wait   time.Duration // how long after the last sample the next one was meant to be
	spent  time.Duration // what all measuring had taken by the last one
	// moved is when a sample last differed from the one before.
	moved time.Duration
	// busy is when it last used the processor for more than housekeeping, cpu what it had
	// used of it at the time cpuAt.
	busy, cpu, cpuAt time.Duration
}

// memory watches what the sessions of a guard, what is around them and the machine
// have of memory. It has a thread of its own: it must get on while others wait for a
// disk.
type memory struct {
	src   source
	clock func() time.Duration
	log   *slog.Logger
	rules memlimit.Rules
	// told gets what is to be told; it must not wait.
	told func(*told)
	// act gets what is to be done; it must not wait. Nil: nothing may be.
	act func(a memlimit.Action, inode uint64)

	mu sync.Mutex
	// news are the sessions that have changed since the last round; nil: it is no more.
	// acted is what was done since, or could not be.
	news  map[string]*session.Watch
	acted []outcome

	// looking is held while figures change, for who asks for them.
	looking  sync.Mutex
	sessions map[string]*spot // by id
	groups   map[string]*spot // by directory
	host     *spot
	order    []*spot // the deepest first, the host last
	byMeter  map[meter]*spot
	swapFree uint64
	worth    float64
	glance   glance
	spent    time.Duration // what all measuring has taken
	crier    memlimit.Crier
	ladder   memlimit.Ladder
}

// How often places are looked at; a verdict says when one wants to be, up to restTime.
const (
	// grid is what times are rounded up to, so that what is due at about the same time is
	// looked at in one go.
	grid = 50 * time.Millisecond
	// forceRest is between two samples for which the kernel woke us: under pressure it
	// does so 60 times a second.
	forceRest = 100 * time.Millisecond
	// restTime is the longest time between two samples.
	restTime = 5 * time.Second
	// sumFactor is how much longer than adding up the processes of a session took is
	// waited before that is done again: a thousand of them take 50 ms.
	sumFactor = 50
	// sumTime is between two looks at one that is at rest: nobody enforces its ceiling.
	sumTime = 2 * time.Second
	// stirs is by how much a sample differs from the one before if a place is not at rest.
	stirs = 1 << 20
	// whoTime is how old the figures of sessions may be while a place they share is
	// short: it is to be said whose it is.
	whoTime = time.Second
)

func newMemory(src source, clock func() time.Duration, log *slog.Logger) *memory {
	m := &memory{src: src, clock: clock, log: log, news: map[string]*session.Watch{}, sessions: map[string]*spot{},
		groups: map[string]*spot{}, byMeter: map[meter]*spot{}}
	m.host = &spot{Place: memlimit.Place{Kind: memlimit.KindHost, Name: "this host", Hidden: src.Hidden()}, judge: memlimit.Judge{Host: true}}
	return m
}

// set tells what is known of a session now; a nil w says that it is no more.
func (m *memory) set(id string, w *session.Watch) {
	if m == nil {
		return
	}
	m.mu.Lock()
	m.news[id] = w
	m.mu.Unlock()
	m.src.Wake()
}

// outcome is how it went with what was to be done to a session.
type outcome struct {
	memlimit.Action
	failed bool
	undone bool // it was not begun
}

// again has a session looked at: something was done to it, or could not be.
func (m *memory) again(o outcome) {
	m.mu.Lock()
	m.acted = append(m.acted, o)
	m.mu.Unlock()
	m.src.Wake()
}

// run watches until ctx is done.
func (m *memory) run(ctx context.Context) {
	runtime.LockOSThread() // what is read here blocks in the kernel
	defer runtime.UnlockOSThread()
	defer context.AfterFunc(ctx, m.src.Wake)()
	defer m.close()
	for ctx.Err() == nil {
		m.learn()
		now := m.clock()
		if m.wanted() {
			m.round(now)
		} else if m.ladder.Holding() { // nobody is left to wait for
			m.ladder = memlimit.Ladder{}
			m.act(memlimit.Action{Do: memlimit.Release, Reason: "no session's memory is watched any more"}, 0)
		}
		for _, w := range m.src.Wait(m.next()) {
			m.force(w)
		}
	}
}

func (m *memory) close() {
	for _, s := range m.order {
		if s.meter != nil {
			s.meter.Close()
		}
	}
	m.src.Close()
}

// wanted says whether there is a session whose memory is to be watched. Without one
// nothing is looked at.
func (m *memory) wanted() bool {
	for _, s := range m.sessions {
		if s.watch.Policy {
			return true
		}
	}
	return false
}

// next is when the first place is due, 0 if nothing is watched.
func (m *memory) next() time.Duration {
	if !m.wanted() {
		return 0
	}
	var at time.Duration
	for _, s := range m.order {
		at = sooner(at, s.due)
	}
	at = sooner(at, m.glance.due)
	return (at + grid - 1) / grid * grid
}

// aligned is when a place is looked at that wants to be after that time: with others,
// as it is the waking up that costs.
func aligned(now, next time.Duration) time.Duration {
	step := grid
	for _, s := range []time.Duration{2 * time.Second, time.Second, 200 * time.Millisecond} {
		if next >= s {
			step = s
			break
		}
	}
	at := (now + next) / step * step
	if at < now+next/4 { // else it is early once, and with the others from then on
		at += step
	}
	return at
}

// force has a place looked at because the kernel said so, not more often than it is
// of use.
func (m *memory) force(w meter) {
	s := m.host
	if w != nil {
		s = m.byMeter[w]
	}
	if s == nil {
		return
	}
	s.whole = true
	s.due = min(s.due, max(m.clock(), s.forced+forceRest+grid/2))
}
