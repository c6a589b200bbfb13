package guard

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
)

const mib = 1 << 20

// ground is memory that is made up, in fake time, and what a watcher says of it.
type ground struct {
	t      *testing.T
	began  time.Time
	m      *memory
	end    context.CancelFunc
	ended  chan struct{}
	wakes  chan struct{}
	mu     sync.Mutex
	boxes  map[string]*madeUp // by path
	host   madeUp
	woken  []meter
	told   []told
	deeds  []memlimit.Action
	closed int
	// glances counts the looks at what the machine has left.
	glances int

	swapFree uint64
}

// madeUp is a place.
type madeUp struct {
	g       *ground
	around  []string
	hard    func(time.Duration) uint64
	max     uint64
	high    uint64 // 0: none
	cost    time.Duration
	tier    memlimit.Tier
	err     error
	frozen  bool
	events  memlimit.Events
	cpu     time.Duration
	samples int
	stills  int
	last    memlimit.Sample
	procs   []memlimit.Process
}

func newGround(t *testing.T) *ground {
	g := &ground{t: t, began: time.Now(), boxes: map[string]*madeUp{}, wakes: make(chan struct{}, 1), ended: make(chan struct{})}
	g.host = madeUp{g: g, hard: constant(1000), max: 4000 * mib}
	g.m = newMemory(g, g.clock, slog.New(slog.DiscardHandler))
	g.m.told = func(w *told) { g.mu.Lock(); g.told = append(g.told, *w); g.mu.Unlock() }
	g.m.act = func(a memlimit.Action, _ uint64) { g.mu.Lock(); g.deeds = append(g.deeds, a); g.mu.Unlock() }
	return g
}

func (g *ground) start() {
	ctx, end := context.WithCancel(g.t.Context())
	g.end = end
	go func() { g.m.run(ctx); close(g.ended) }()
	synctest.Wait()
}

func (g *ground) stop() {
	g.end()
	<-g.ended
	g.mu.Lock()
	defer g.mu.Unlock()
	if open := len(g.m.byMeter); open != 0 && g.closed < open {
		g.t.Errorf("%d meters are open at the end", open-g.closed)
	}
}

// open makes a session with a box and says so.
func (g *ground) open(id string, b *madeUp, w session.MemoryWatch) {
	g.mu.Lock()
	b.g = g
	if b.tier == "" {
		b.tier = memlimit.TierCgroup
	}
	w.Path = "/sys/fs/cgroup/sessionbox.slice/" + id
	g.boxes[w.Path] = b
	g.mu.Unlock()
	if w.Ceiling == 0 {
		w.Ceiling = memlimit.Infinity
	}
	if w.High == 0 {
		w.High = memlimit.Infinity
	}
	g.m.set(id, &session.Watch{Session: id, Name: "name-" + id, Memory: w})
	synctest.Wait()
}

func (g *ground) clock() time.Duration { return time.Since(g.began) + time.Hour }

func (g *ground) Session(w *session.MemoryWatch) (meter, error) { return g.Group(w.Path) }

func (g *ground) Around(box string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b := g.boxes[box]; b != nil {
		return b.around
	}
	return nil
}

func (g *ground) Group(dir string) (meter, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b := g.boxes[dir]; b != nil {
		return b, nil
	}
	return nil, errGone
}

func (g *ground) Host(out *memlimit.Sample) (swapFree uint64, worth float64, err error) {
	err = g.host.Sample(out)
	out.Tier = memlimit.TierHost
	return g.swapFree, memlimit.WorthDisk, err
}

func (g *ground) Available() (uint64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.glances++
	return g.host.max - g.host.hard(g.clock()), nil
}

func (g *ground) Hidden() bool { return false }

func (g *ground) Wait(until time.Duration) []meter {
	var timer <-chan time.Time
	if until != 0 {
		timer = time.After(max(0, until-g.clock()))
	}
	select {
	case <-timer:
	case <-g.wakes:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.woken
	g.woken = nil
	return w
}

func (g *ground) Wake() {
	select {
	case g.wakes <- struct{}{}:
	default:
	}
}

func (g *ground) Close() error { return nil }

func (b *madeUp) Sample(out *memlimit.Sample) error {
	defer time.Sleep(b.cost) // beside the lock
	b.g.mu.Lock()
	defer b.g.mu.Unlock()
	b.samples++
	if b.err != nil {
		return b.err
	}
	now := b.g.clock()
	*out = memlimit.Sample{At: now, Done: now + b.cost, Tier: b.tier, Hard: b.hard(now), Max: b.max, High: cmp.Or(b.high, memlimit.Infinity), SwapMax: memlimit.Infinity, Frozen: b.frozen, Events: b.events}
	b.last = *out
	return nil
}

func (b *madeUp) Still(out *memlimit.Sample) bool {
	b.g.mu.Lock()
	defer b.g.mu.Unlock()
	now := b.g.clock()
	if b.err != nil || b.hard(now) != b.last.Hard || b.stills%10 == 9 {
		b.stills++
		return false
	}
	b.stills++
	b.last.At, b.last.Done = now, now
	*out = b.last
	return true
}

func (b *madeUp) Processes() []memlimit.Process { return b.procs }

func (b *madeUp) Fresh() {}

func (b *madeUp) CPU() (time.Duration, bool) { return b.cpu, true }

func (b *madeUp) Close() error {
	b.g.mu.Lock()
	defer b.g.mu.Unlock()
	b.g.closed++
	return nil
}

func constant(n uint64) func(time.Duration) uint64 {
	return func(time.Duration) uint64 { return n * mib }
}

// rising is a leak of n MiB/s that begins now.
func (g *ground) rising(from, perSecond uint64) func(time.Duration) uint64 {
	began := g.clock()
	return func(t time.Duration) uint64 {
		return (from + uint64((t-began).Seconds()*float64(perSecond))) * mib
	}
}

// said are the warnings so far that people see, as level/change of whom.
func (g *ground) said() (all []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.told {
		if !w.quiet {
			all = append(all, w.warning.Level.String()+" "+string(w.warning.Change)+" "+w.warning.Who.Name)
		}
	}
	return all
}

func ceilinged(ceiling uint64) session.MemoryWatch {
	return session.MemoryWatch{Policy: true, Warn: true, Ceiling: ceiling}
}

// A session that leaks is warned of well before it is full, with who takes it.
func TestMemoryWarns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGround(t)
		g.start()
		defer g.stop()
		box := &madeUp{hard: g.rising(20, 20), max: 400 * mib, procs: []memlimit.Process{{PID: 7, Comm: "leak", Anon: 300 * mib, Leaf: "task-3"}, {PID: 9, Comm: "sh"}}}
		g.open("a", box, ceilinged(400*mib))
		time.Sleep(17 * time.Second) // it is full after 19 s
		synctest.Wait()
		said := g.said()
		if len(said) == 0 || said[0] != "warn raised name-a" || !slices.Contains(said, "emergency raised name-a") {
			t.Fatalf("said %v", said)
		}
		g.mu.Lock()
		w := g.told[slices.IndexFunc(g.told, func(w told) bool { return !w.quiet })]
		g.mu.Unlock()
		if full := w.warning.FullSeconds; full == nil || *full < 4 {
			t.Errorf("the first warning is %s", w.warning.String())
		}
		if len(w.warning.Processes) != 2 || w.warning.Processes[0].Task != 3 || w.warning.Limit.Session != "a" || len(w.who) != 1 {
			t.Errorf("it does not say who: %+v", w.warning)
		}
	})
}

// Where nobody's memory is to be watched nothing is looked at; what is at rest is
// looked at seldom, and cheaply.
func TestMemoryAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGround(t)
		g.start()
		defer g.stop()
		plain := &madeUp{hard: constant(5), max: memlimit.Infinity}
		g.open("plain", plain, session.MemoryWatch{})
		time.Sleep(time.Minute)
		if plain.samples+g.host.samples > 0 {
			t.Errorf("%d looks at a session, %d at the host, and nobody asked", plain.samples, g.host.samples)
		}
		limited := &madeUp{hard: constant(20), max: 400 * mib}
		summed := &madeUp{hard: constant(20), max: memlimit.Infinity, tier: memlimit.TierProcesses}
		g.open("limited", limited, ceilinged(400*mib))
		g.open("summed", summed, ceilinged(400*mib))
		time.Sleep(time.Minute)
		synctest.Wait()
		if limited.samples > 14 || limited.stills > 62 || plain.samples > 13 || summed.samples > 14 {
			t.Errorf("in a minute %d whole looks and %d short ones at a session at rest, %d at one without a ceiling, %d sums", limited.samples, limited.stills, plain.samples, summed.samples)
		}
		if said := g.said(); len(said) > 0 {
			t.Errorf("said %v", said)
		}
		if g.glances < 100 || g.glances > 245 {
			t.Errorf("%d glances at the machine in a minute", g.glances)
		}
		g.m.set("limited", nil)
		g.m.set("summed", nil)
		g.open("roomy", &madeUp{hard: constant(20), max: 4000 * mib}, ceilinged(4000*mib))
		time.Sleep(time.Second)
		synctest.Wait()
		glances := g.glances
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := g.glances - glances; n > 1 {
			t.Errorf("%d glances for a session that takes five seconds to be filled", n)
		}
		g.m.set("roomy", nil)
		synctest.Wait()
		before := g.host.samples
		time.Sleep(time.Minute)
		if g.host.samples > before {
			t.Error("it looks on when nobody's memory is to be watched any more")
		}
	})
}

// A session that was at rest and fills its ceiling in half a second is warned of, and
// frozen, before that, whenever it begins.
func TestMemoryBurst(t *testing.T) {
	for phase := 5100 * time.Millisecond; phase < 6100*time.Millisecond; phase += 70 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			g := newGround(t)
			began := g.clock() + phase
			const full = 475 * time.Millisecond // at 800 MiB/s
			hard := func(at time.Duration) uint64 {
				if at < began {
					return 20 * mib
				}
				return 20*mib + uint64(float64(at-began)/float64(time.Second)*800)*mib
			}
			g.host.hard = func(at time.Duration) uint64 { return 1000*mib + hard(at) }
			g.start()
			defer g.stop()
			w := ceilinged(400 * mib)
			w.Steps = memlimit.MayFreeze
			g.open("a", &madeUp{hard: hard, max: 400 * mib}, w)
			g.open("b", &madeUp{hard: constant(20), max: 400 * mib}, ceilinged(400*mib))
			time.Sleep(phase + full - 100*time.Millisecond)
			synctest.Wait()
			if said := g.said(); len(said) == 0 || !slices.Contains(said, "emergency raised name-a") {
				t.Errorf("begun at %v: said %v 100 ms before it is full", phase, said)
			}
			if got := g.deedsOf(); !slices.Equal(got, []string{"freeze a"}) {
				t.Errorf("begun at %v: done: %v", phase, got)
			}
		})
	}
}

// A limit around several sessions warns of itself and names the sessions in it.
func TestMemoryAround(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGround(t)
		g.start()
		defer g.stop()
		const slice = "/sys/fs/cgroup/sessionbox.slice"
		leak, rest := g.rising(50, 10), constant(100)
		g.boxes[slice] = &madeUp{g: g, tier: memlimit.TierCgroup, max: 400 * mib, hard: func(d time.Duration) uint64 { return leak(d) + rest(d) }}
		g.open("a", &madeUp{hard: leak, max: memlimit.Infinity, around: []string{slice}}, session.MemoryWatch{Policy: true, Warn: true, OnWarn: "x"})
		g.open("b", &madeUp{hard: rest, max: memlimit.Infinity, around: []string{slice}}, session.MemoryWatch{})
		time.Sleep(22 * time.Second)
		synctest.Wait()
		said := g.said()
		if len(said) == 0 || said[0] != "critical raised sessionbox.slice" { // 12 s before it is full
			t.Fatalf("said %v", said)
		}
		last := g.told[len(g.told)-1]
		if s := last.warning.Sessions; len(s) != 2 || s[0].ID != "a" || s[1].ID != "b" {
			t.Errorf("it names %+v", s)
		}
		if len(last.who) != 1 || last.who[0].watch.OnWarn != "x" {
			t.Errorf("it concerns %+v", last.who)
		}
	})
}

// What the kernel wakes for is looked at at once, and not again and again.
func TestMemoryWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGround(t)
		g.start()
		defer g.stop()
		box := &madeUp{hard: constant(20), max: 400 * mib}
		g.open("a", box, ceilinged(400*mib))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		before := box.samples
		for range 100 { // a second of storm
			g.mu.Lock()
			g.woken = []meter{box}
			g.mu.Unlock()
			g.Wake()
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if n := box.samples - before; n < 5 || n > 11 {
			t.Errorf("%d looks in a second of being woken all the time", n)
		}
	})
}

// Files that cannot be read for a while, and a machine that was paused, warn of
// nothing; what is measured after that counts.
func TestMemoryBadInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGround(t)
		g.start()
		defer g.stop()
		size := constant(50)
		box := &madeUp{hard: func(d time.Duration) uint64 { return size(d) }, max: 400 * mib}
		g.open("a", box, ceilinged(400*mib))
		time.Sleep(5 * time.Second)
		g.mu.Lock()
		box.err = errGone
		g.mu.Unlock()
		time.Sleep(30 * time.Second)
		g.mu.Lock()
		box.err, size = nil, constant(250) // grown by 200 MiB, nobody knows how
		g.mu.Unlock()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if said := g.said(); len(said) > 0 {
			t.Errorf("said %v", said)
		}
		g.mu.Lock()
		size = constant(390)
		g.mu.Unlock()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if said := g.said(); !slices.Contains(said, "emergency raised name-a") {
			t.Errorf("said %v of one that is full", said)
		}
	})
}

// That adding up processes takes long, or that of many sessions together, is no gap: what
// grows meanwhile is forecast.
func TestMemoryDearSums(t *testing.T) {
	for _, c := range []struct {
		sessions int
		cost     time.Duration
	}{{1, 60 * time.Millisecond}, {1, 3 * time.Second}, {12, 400 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			g := newGround(t)
			l := &logged{}
			g.m.log = slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
			g.start()
			defer g.stop()
			for i := range c.sessions {
				g.open(string(rune('a'+i)), &madeUp{hard: g.rising(20, 3), max: memlimit.Infinity, tier: memlimit.TierProcesses, cost: c.cost}, ceilinged(400*mib))
			}
			time.Sleep(105 * time.Second)
			gaps := strings.Count(l.String(), "its past is forgotten")
			if said := g.said(); gaps > 0 || !slices.ContainsFunc(said, func(s string) bool {
				return strings.HasPrefix(s, "warn raised") || strings.HasPrefix(s, "critical raised")
			}) {
				t.Errorf("%d sessions at %v: %d gaps, said %v", c.sessions, c.cost, gaps, said)
			}
		})
	}
}

// A session that must not be warned of is not, and still is named by what is around it.
func TestMemoryWarnOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGround(t)
		g.start()
		defer g.stop()
		g.open("off", &madeUp{hard: constant(390), max: 400 * mib}, session.MemoryWatch{Ceiling: 400 * mib})
		g.open("on", &madeUp{hard: constant(10), max: 400 * mib}, ceilinged(400*mib))
		time.Sleep(time.Minute)
		synctest.Wait()
		if said := g.said(); len(said) > 0 {
			t.Errorf("said %v", said)
		}
	})
}

// A round over sessions at rest makes nothing: a guard may watch for weeks.
func TestMemoryRoundAllocatesNothing(t *testing.T) {
	g := newGround(t)
	const slice = "/sys/fs/cgroup/sessionbox.slice"
	g.boxes[slice] = &madeUp{g: g, tier: memlimit.TierCgroup, max: 4000 * mib, hard: constant(300)}
	for _, id := range []string{"a", "b", "c"} {
		g.boxes["/sys/fs/cgroup/sessionbox.slice/"+id] = &madeUp{g: g, tier: memlimit.TierCgroup, max: 400 * mib, hard: constant(20), around: []string{slice}}
		w := ceilinged(400 * mib)
		w.Path = "/sys/fs/cgroup/sessionbox.slice/" + id
		g.m.set(id, &session.Watch{Session: id, Memory: w})
	}
	g.m.learn()
	looks := 0
	round := func() {
		g.began = g.began.Add(-time.Second)
		before := g.host.samples
		g.m.round(g.m.clock())
		looks += g.host.samples - before
	}
	for range 20 {
		round()
	}
	if n := testing.AllocsPerRun(100, round); n > 0 {
		t.Errorf("a round allocates %v times", n)
	}
	if looks < 100 {
		t.Errorf("%d looks at the host in 120 rounds: nothing was tested", looks)
	}
}
