package memlimit

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

const mib = 1 << 20

// world is a machine with sessions that want memory, as far as the kernel's part in
// running out of it goes: ceilings, brakes, swap, reclaim of page cache, and kills.
// It is the ground truth that judges and the ladder are scored against; what they
// get to see are samples of it.
type world struct {
	now       time.Duration
	ram, swap uint64
	base      uint64 // what the rest of the machine holds
	swapBase  uint64 // what the rest has in swap
	slice     uint64 // ceiling of the slice around all sessions; 0 for none
	sessions  []*boxed
	hostStall Pressure
	scans     uint64
	refaults  uint64
	thrash    func(t time.Duration) bool

	kills    []string // "a: limit of a", in order
	killedAt time.Duration
	outside  bool // the machine itself ran out
}

// boxed is a session of the world.
type boxed struct {
	id         string
	max, high  uint64
	asked      uint64 // the memory.high that its user wants; 0 for none
	lifted     bool
	swapMax    uint64
	want       func(t time.Duration) uint64 // what it would hold by then if let
	cache      func(t time.Duration) uint64 // page cache that it would have
	got        uint64                       // hard and swapped
	out        uint64                       // swapped
	cached     uint64
	lag        time.Duration // for how long it stood still: its clock
	events     Events
	stall      Pressure
	scans      uint64
	frozen     bool
	frozenAt   time.Duration
	hibernated bool
	dead       bool
	closed     bool
	born       time.Duration
	idle       time.Duration
	inUse      bool
}

func (b *boxed) hard() uint64 { return b.got - b.out }

const step = 10 * time.Millisecond

func (w *world) swapFree() uint64 {
	used := w.swapBase
	for _, b := range w.sessions {
		used += b.out
	}
	return w.swap - min(w.swap, used)
}

func (w *world) hard() (sum uint64) {
	for _, b := range w.sessions {
		sum += b.hard()
	}
	return sum
}

func (w *world) available() uint64 {
	return w.ram - min(w.ram, w.base+w.hard())
}

// tick lets time go on by a step.
func (w *world) tick() {
	w.now += step
	if w.thrash != nil && w.thrash(w.now) {
		w.hostStall.Some += step * 6 / 10
		w.hostStall.Full += step / 2
		w.refaults += 100
		w.scans += 200
	}
	for _, b := range w.sessions {
		if b.dead {
			continue
		}
		if b.frozen {
			b.lag += step
			continue
		}
		target := b.want(w.now - b.lag)
		if target < b.got {
			b.got = target
			b.out = min(b.out, target)
			continue
		}
		grow := target - b.got
		if b.high != Infinity && b.hard()+grow > b.high {
			// The kernel lets it go on slowly: 0.5 MB/s (facts/memory.md, fact 3).
			if b.swapOut(w, min(grow, 50*mib*uint64(step)/uint64(time.Second))) == 0 {
				b.events.High++
				b.stall.Some += step * 8 / 10
				b.stall.Full += step * 7 / 10
				b.scans += 100
				slow := uint64(0)
				if b.hard() < b.high {
					slow = b.high - b.hard()
				}
				b.lag += step
				grow = min(grow, slow+mib/2*uint64(step)/uint64(time.Second))
			}
		}
		b.got += grow
		w.reclaim(b)
	}
	if w.slice != 0 && w.hard() > w.slice {
		w.kill("slice", w.biggest())
	}
	for w.available() < 30*mib {
		victim := w.biggest()
		if victim == nil || victim.swapOut(w, 8*mib) == 0 {
			w.kill("host", victim)
			w.outside = true
			break
		}
		w.hostStall.Some += step / 3
		w.scans += 50
	}
}

// reclaim keeps a session below its ceiling, or kills in it.
func (w *world) reclaim(b *boxed) {
	if b.max == Infinity {
		return
	}
	b.cached = 0
	if b.cache != nil {
		b.cached = min(b.cache(w.now), b.max-min(b.max, b.hard()))
	}
	for b.hard() > b.max {
		b.events.Max++
		b.scans += 10
		if b.swapOut(w, b.hard()-b.max) == 0 {
			b.events.OOM++
			w.kill(b.id, b)
			return
		}
	}
}

func (b *boxed) swapOut(w *world, n uint64) uint64 {
	n = min(n, w.swapFree(), b.hard())
	if b.swapMax != Infinity {
		n = min(n, b.swapMax-min(b.swapMax, b.out))
	}
	b.out += n
	return n
}

func (w *world) biggest() *boxed {
	var most *boxed
	for _, b := range w.sessions {
		if !b.dead && (most == nil || b.hard() > most.hard()) {
			most = b
		}
	}
	return most
}

func (w *world) kill(limit string, b *boxed) {
	if b == nil {
		return
	}
	w.kills = append(w.kills, b.id+": limit of "+limit)
	if w.killedAt == 0 {
		w.killedAt = w.now
	}
	b.events.OOMKill++
	b.dead, b.got, b.out = true, 0, 0
}

// watchman is a guard's part: it looks when the judges say, tells what the crier
// says, and does at once what the ladder says.
type watchman struct {
	w       *world
	may     Steps
	judges  map[Place]*Judge
	due     map[Place]time.Duration
	latest  map[Place]*Verdict
	crier   Crier
	ladder  Ladder
	said    []Warning
	saidAt  []time.Duration
	done    []string
	samples int
	next    time.Duration    // when the first sample is due
	stall   [2]time.Duration // between these it does not get to look
}

func newWatchman(w *world, may Steps) *watchman {
	return &watchman{w: w, may: may, judges: map[Place]*Judge{}, due: map[Place]time.Duration{}, latest: map[Place]*Verdict{},
		ladder: Ladder{Rules: Rules{Hold: may&MayHold != 0}}}
}

func (m *watchman) places() (places []Place, samples []*Sample) {
	w := m.w
	host := Sample{At: w.now, Done: w.now + time.Millisecond, Pressure: w.hostStall, Scans: w.scans, Refaults: w.refaults}
	Host{Total: w.ram, Available: w.available(), SwapTotal: w.swap, SwapFree: w.swapFree()}.Fill(&host)
	slice := Sample{At: w.now, Done: w.now, Tier: TierCgroup, Hard: w.hard(), Max: Infinity, SwapMax: Infinity}
	if w.slice != 0 {
		slice.Max = w.slice
	}
	for _, b := range w.sessions {
		if b.dead {
			continue
		}
		s := &Sample{At: w.now, Done: w.now, Tier: TierCgroup, Hard: b.hard(), Swap: b.out, Soft: b.cached, Anon: b.hard(), Max: b.max, High: b.high,
			SwapMax: b.swapMax, Events: b.events, Pressure: b.stall, Scans: b.scans, Frozen: b.frozen}
		slice.Swap += b.out
		SpreadSwap([]*Sample{s, &slice, &host}, w.swapFree(), WorthDisk)
		places = append(places, Place{Kind: KindSession, Name: b.id, Session: b.id})
		samples = append(samples, s)
	}
	SpreadSwap([]*Sample{&slice, &host}, w.swapFree(), WorthDisk)
	places = append(places, Place{Kind: KindAncestor, Name: "sessionbox.slice"}, Place{Kind: KindHost, Name: "this host"})
	samples = append(samples, &slice, &host)
	return places, samples
}

// look takes the samples that are due, or woken for.
func (m *watchman) look(woken bool) {
	if m.w.now >= m.stall[0] && m.w.now < m.stall[1] {
		return
	}
	if m.w.now < m.next && !woken {
		return
	}
	places, samples := m.places()
	any := false
	defer func() {
		m.next = m.w.now + tickMost
		for _, p := range places {
			m.next = min(m.next, m.due[p])
		}
	}()
	for i, p := range places {
		j := m.judges[p]
		if j == nil {
			j = &Judge{Host: p.Kind == KindHost}
			m.judges[p] = j
		}
		if m.w.now < m.due[p] && !woken {
			continue
		}
		any = true
		m.samples++
		if last := m.latest[p]; last != nil && p.Kind != KindSession {
			samples[i].Bound = RoomInside(last, m.inside())
		}
		v := j.Observe(samples[i])
		m.latest[p], m.due[p] = &v, m.w.now+v.Next
		if p.Kind != KindSession && v.Level >= Warn { // who is it?
			for q := range m.due {
				m.due[q] = min(m.due[q], m.w.now+time.Second)
			}
		}
		if t, ok := m.crier.Hear(p, &v); ok {
			w := NewWarning(t, p, &v)
			sc := m.scene(places)
			if p.Kind != KindSession {
				w.Name(nil, m.hogs())
			}
			if k := slices.Index(places, p); t.Change != Cleared && k < len(sc.Places) {
				w.Next, w.Prevent = m.ladder.Intent(&sc, k)
			}
			m.said, m.saidAt = append(m.said, w), append(m.saidAt, m.w.now)
		}
	}
	if any {
		sc := m.scene(places)
		for _, a := range m.ladder.Decide(&sc) {
			m.do(a)
		}
	}
}

func (m *watchman) inside() (all []*Verdict) {
	for p, v := range m.latest {
		if p.Kind == KindSession {
			all = append(all, v)
		}
	}
	return all
}

func (m *watchman) hogs() []Hog {
	var all []Hog
	for _, b := range m.w.sessions {
		if !b.dead {
			all = append(all, Hog{Name: b.id, ID: b.id, Bytes: b.hard(), IdleSeconds: b.idle.Seconds()})
		}
	}
	slices.SortFunc(all, func(a, b Hog) int { return int(b.Bytes) - int(a.Bytes) })
	return all
}

func (m *watchman) scene(places []Place) Scene {
	sc := Scene{Now: m.w.now}
	for _, p := range places {
		if v := m.latest[p]; v != nil {
			sc.Places = append(sc.Places, Spot{p, v})
		}
	}
	for _, b := range m.w.sessions {
		if b.dead {
			continue
		}
		c := Candidate{ID: b.id, Name: b.id, Hard: b.hard(), Swap: b.out, Soft: b.cached, Anon: b.hard(), Ceiling: b.max, May: m.may, Age: m.w.now - b.born + time.Minute,
			Idle: b.idle, InUse: b.inUse, Frozen: b.frozen, FrozenAt: b.frozenAt, Hibernated: b.hibernated, Brake: b.high, High: Infinity, Lifted: b.lifted}
		if b.asked != 0 {
			c.High, c.Brake = b.asked, Infinity
		}
		for i, p := range sc.Places {
			if p.Kind != KindSession || p.Session == b.id {
				c.Under = append(c.Under, i)
			}
			if p.Session == b.id {
				c.Slope = p.Slope
			}
		}
		sc.Sessions = append(sc.Sessions, c)
	}
	return sc
}

func (m *watchman) do(a Action) {
	m.done = append(m.done, fmt.Sprintf("%.2fs %s %s", m.w.now.Seconds(), a.Do, a.Session))
	i := slices.IndexFunc(m.w.sessions, func(b *boxed) bool { return b.id == a.Session })
	if i < 0 {
		return
	}
	b := m.w.sessions[i]
	m.due[Place{Kind: KindSession, Name: b.id, Session: b.id}] = m.w.now
	switch a.Do {
	case Freeze, Hibernate, Close:
		for p, j := range m.judges {
			switch own := m.latest[Place{Kind: KindSession, Name: b.id, Session: b.id}]; {
			case p.Kind == KindSession:
			case a.Do != Freeze:
				j.Forget()
			case own != nil:
				j.Without(own.Slope, b.got)
			}
		}
	}
	switch a.Do {
	case Freeze:
		b.frozen, b.frozenAt = true, m.w.now
	case Thaw:
		b.frozen, b.frozenAt = false, 0
	case Hibernate:
		b.frozen, b.hibernated = true, true
		b.swapOut(m.w, b.hard())
	case Close:
		b.dead, b.closed, b.got, b.out = true, true, 0, 0
	case Arm, Brake:
		b.high = a.High
	case Lift:
		b.high, b.lifted = Infinity, a.High != 0
	case Restore:
		b.high, b.lifted = a.High, false
	}
}

// run lets the world go on, watched by m unless nil. The kernel's events wake the
// watchman at most every 100 ms.
func (w *world) run(until time.Duration, m *watchman) {
	var woken time.Duration
	var seen uint64
	for w.now < until {
		w.tick()
		if m == nil {
			continue
		}
		var events uint64
		for _, b := range w.sessions {
			events += b.events.High + b.events.Max
		}
		wake := events != seen && w.now-woken >= tickLeast
		if wake {
			woken, seen = w.now, events
		}
		m.look(wake)
	}
}

// warned is when the first warning was told of a place whose name starts like that.
func (m *watchman) warned(from Level, place string) (at time.Duration, ok bool) {
	for i, w := range m.said {
		if w.Change == Raised && w.Level >= from && strings.HasPrefix(w.Limit.Name, place) {
			return m.saidAt[i], true
		}
	}
	return 0, false
}

// linear is a demand that grows at a rate in MB/s from a start.
func linear(start, rate float64) func(time.Duration) uint64 {
	return func(t time.Duration) uint64 { return uint64((start + rate*t.Seconds()) * mib) }
}

func upTo(most float64, f func(time.Duration) uint64) func(time.Duration) uint64 {
	return func(t time.Duration) uint64 { return min(f(t), uint64(most*mib)) }
}

func flat(amount float64) func(time.Duration) uint64 { return linear(amount, 0) }

// noisy adds what a garbage collector does.
func noisy(amplitude float64, f func(time.Duration) uint64) func(time.Duration) uint64 {
	return func(t time.Duration) uint64 {
		saw := math.Mod(t.Seconds()*1.7, 1) * amplitude
		return f(t) + uint64(saw*mib)
	}
}

func session(id string, max uint64, want func(time.Duration) uint64) *boxed {
	return &boxed{id: id, max: max, high: Infinity, swapMax: Infinity, want: want, inUse: true}
}
