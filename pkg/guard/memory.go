package guard

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
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
	// Around are the directories around a box that count memory, from the inside out.
	Around(box string) []string
	Group(dir string) (meter, error)
	// Host reads the figures of the machine, what is free of swap and what that is worth.
	Host(out *memlimit.Sample) (swapFree uint64, worth float64, err error)
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
	// host is what was in use of the host when this was last measured, cost how long that
	// took.
	host uint64
	cost time.Duration
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
	act func(memlimit.Action)

	mu sync.Mutex
	// news are the sessions that have changed since the last round; nil: it is no more.
	news map[string]*session.Watch

	// looking is held while figures change, for who asks for them.
	looking  sync.Mutex
	sessions map[string]*spot // by id
	groups   map[string]*spot // by directory
	host     *spot
	order    []*spot // the deepest first, the host last
	byMeter  map[meter]*spot
	swapFree uint64
	worth    float64
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
	return (at + grid - 1) / grid * grid
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

// learn takes in the sessions that have changed.
func (m *memory) learn() {
	m.mu.Lock()
	news := m.news
	if len(news) > 0 {
		m.news = map[string]*session.Watch{}
	}
	m.mu.Unlock()
	if len(news) == 0 {
		return
	}
	m.looking.Lock()
	defer m.looking.Unlock()
	for id, w := range news {
		s := m.sessions[id]
		switch {
		case w == nil || w.Memory.Path == "":
			m.drop(s)
		case s != nil && s.path == w.Memory.Path && s.watch.Inode == w.Memory.Inode:
			s.take(w)
		default:
			m.drop(s)
			m.follow(id, w)
		}
	}
	m.link()
}

func (s *spot) take(w *session.Watch) {
	s.watch, s.Name = w.Memory, cmp.Or(w.Name, w.Session)
	s.due = 0
}

func (m *memory) follow(id string, w *session.Watch) {
	meter, err := m.src.Session(&w.Memory)
	if err != nil {
		m.log.Debug("measure the memory of a session", "session", id, "err", err)
		return
	}
	s := &spot{Place: memlimit.Place{Kind: memlimit.KindSession, Session: id, Hidden: m.host.Hidden}, path: w.Memory.Path, meter: meter}
	s.take(w)
	m.sessions[id], m.byMeter[meter] = s, s
}

func (m *memory) drop(s *spot) {
	if s == nil {
		return
	}
	delete(m.sessions, s.Session)
	delete(m.groups, s.path)
	delete(m.byMeter, s.meter)
	m.crier.Drop(s.Place)
	s.meter.Close()
}

// link finds out what lies in what.
func (m *memory) link() {
	boxes := map[string]*spot{}
	for _, s := range m.sessions {
		boxes[s.path] = s
	}
	used := map[string]bool{}
	m.order = m.order[:0]
	for _, s := range m.sessions {
		s.around = s.around[:0]
		for _, dir := range m.src.Around(s.path) {
			a := boxes[dir]
			if a == nil {
				a = m.group(dir)
			}
			if a == nil {
				continue
			}
			used[dir] = true
			s.around = append(s.around, a)
		}
		s.around = append(s.around, m.host)
		m.order = append(m.order, s)
	}
	for dir, g := range m.groups {
		if !used[dir] {
			m.drop(g)
			continue
		}
		g.around = g.around[:0]
		for _, d := range m.src.Around(dir) {
			if a := m.groups[d]; a != nil {
				g.around = append(g.around, a)
			}
		}
		g.around = append(g.around, m.host)
		m.order = append(m.order, g)
	}
	m.order = append(m.order, m.host)
	for _, s := range m.order {
		s.inside = s.inside[:0]
		s.swap = append(s.swap[:0], &s.sample)
		for _, a := range s.around {
			s.swap = append(s.swap, &a.sample)
		}
	}
	for _, s := range m.sessions {
		// What lies in a session counts as that session's for who is further out.
		for _, a := range s.around {
			a.inside = append(a.inside, &s.verdict)
			if a.Kind == memlimit.KindSession {
				break
			}
		}
	}
	slices.SortStableFunc(m.order, func(a, b *spot) int {
		return cmp.Or(cmp.Compare(len(b.around), len(a.around)), cmp.Compare(a.path, b.path))
	})
}

// group is the place of a directory around boxes, nil if it cannot be measured.
func (m *memory) group(dir string) *spot {
	if g := m.groups[dir]; g != nil {
		return g
	}
	meter, err := m.src.Group(dir)
	if err != nil {
		m.log.Debug("measure the memory of a cgroup", "path", dir, "err", err)
		return nil
	}
	g := &spot{Place: memlimit.Place{Kind: memlimit.KindAncestor, Name: filepath.Base(dir), Hidden: m.host.Hidden}, path: dir, meter: meter}
	m.groups[dir], m.byMeter[meter] = g, g
	return g
}

// round looks at the places that are due: at the host first, as its room in swap is
// everybody's, and judges from the inside out, as what is around something is told
// what that can still take.
func (m *memory) round(now time.Duration) {
	// What is due within the next moment is looked at now.
	horizon := now + grid/2
	any := false
	for _, s := range m.order {
		any = any || s.due <= horizon
	}
	if !any {
		return
	}
	if !m.host.known || m.host.due <= horizon || now-m.host.sample.At >= whoTime {
		m.readHost()
	}
	looked := false
	m.looking.Lock()
	for _, s := range m.order {
		if s.due > horizon {
			continue
		}
		if s == m.host {
			s.forced, s.whole = now, false
			if s.failed {
				s.due = now + restTime
				continue
			}
		} else if !m.read(s, now) {
			continue
		}
		m.judge(s, now)
		looked = true
	}
	m.looking.Unlock()
	if !looked {
		return
	}
	for _, s := range m.order {
		if s.known && s.verdict.At >= now {
			m.hear(s)
		}
	}
	m.decide(now)
}

func (m *memory) readHost() {
	h := m.host
	var err error
	m.looking.Lock()
	m.swapFree, m.worth, err = m.src.Host(&h.sample)
	m.looking.Unlock()
	if err != nil && !h.failed {
		m.log.Warn("measure the memory of the host", "err", err)
	}
	h.failed = err != nil
}

// read takes a sample. What cannot be read is tried again later: it is gone, and soon
// somebody says so, or it is for the moment.
func (m *memory) read(s *spot, now time.Duration) bool {
	if !s.whole && m.atRest(s, now) {
		return true
	}
	if s.whole {
		s.forced = now
	}
	var got memlimit.Sample
	err := s.meter.Sample(&got)
	if err != nil {
		if !s.failed && !errors.Is(err, errGone) {
			m.log.Warn("measure memory", "of", s.Name, "err", err)
		}
		s.failed, s.due = true, now+restTime
		return false
	}
	s.sample, s.failed, s.whole = got, false, false
	s.cost = got.Done - got.At
	if s.Kind == memlimit.KindSession {
		// One that the kernel does not enforce is warned of all the same.
		s.sample.Max = min(s.sample.Max, s.watch.Ceiling)
	}
	s.host = m.host.sample.Hard
	return true
}

// atRest says whether the sample before still holds, and brings it up to date.
func (m *memory) atRest(s *spot, now time.Duration) bool {
	if !s.known || s.verdict.Level > memlimit.OK || s.verdict.Growing {
		return false
	}
	limit := s.sample.Max
	if s.sample.Tier == memlimit.TierProcesses {
		// Nothing there says cheaply whether it has moved; but what it has taken the
		// machine has less.
		if m.host.failed || m.host.sample.Hard > s.host+s.verdict.Headroom/8 || now-s.sample.Done > 2*restTime {
			return false
		}
		s.sample.At = m.clock()
		return true
	}
	room, bound := s.sample.SwapRoom, s.sample.Bound
	if !s.meter.Still(&s.sample) {
		return false
	}
	s.sample.SwapRoom, s.sample.Bound, s.sample.Max = room, bound, limit
	return true
}

func (m *memory) judge(s *spot, now time.Duration) {
	memlimit.SpreadSwap(s.swap, m.swapFree, m.worth)
	s.sample.Bound = 0
	if len(s.inside) > 0 && s.known {
		s.sample.Bound = memlimit.RoomInside(&s.verdict, s.inside)
	}
	s.verdict = s.judge.Observe(&s.sample)
	s.known = true
	next := min(s.verdict.Next, restTime)
	if s.sample.Tier == memlimit.TierProcesses {
		next = max(next, min(sumFactor*s.cost, restTime))
	}
	s.due = now + next
	if s.verdict.Gap > 0 {
		m.log.Debug("nothing was known of a place for a while: its past is forgotten", "of", s.Name, "gap", s.verdict.Gap)
	}
	if s.Kind != memlimit.KindSession && s.verdict.Level >= memlimit.Warn { // whose is it?
		for _, o := range m.sessions {
			if at := max(now, o.sample.At+whoTime); at < o.due {
				o.due, o.whole = at, true
			}
		}
	}
}

// hear asks whether the verdict on a place is to be told.
func (m *memory) hear(s *spot) {
	if s.Kind == memlimit.KindSession && !s.watch.Warn {
		return
	}
	t, ok := m.crier.Hear(s.Place, &s.verdict)
	if !ok || m.told == nil {
		return
	}
	w := memlimit.NewWarning(t, s.Place, &s.verdict)
	if t.Change != memlimit.Cleared {
		sc, at := m.scene()
		if s.Kind == memlimit.KindSession {
			w.Name(hogsOf(s.meter.Processes()), nil)
		} else {
			w.Name(nil, m.hogs(s))
		}
		w.Next, w.Prevent = m.ladder.Intent(&sc, at[s])
	}
	m.told(&told{warning: w, quiet: t.Quiet, who: m.concerned(s, &w)})
}
