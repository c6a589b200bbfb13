package memlimit

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// scenario is one of facts/memory.md §4, as far as arithmetic can show it.
type scenario struct {
	name    string
	make    func() *world
	until   time.Duration
	may     Steps
	blame   string        // the place whose warning counts, by the start of its name
	target  time.Duration // the least lead of the first warning; 0: there must be none
	crit    time.Duration // the least lead of the first critical one
	victims []string      // exactly those are acted on; nil: nobody
	lives   bool          // and with that nobody is killed
	closes  bool          // work had to be lost
	check   func(t *testing.T, w *world, m *watchman)
}

func scenarios() []scenario {
	return []scenario{
		{
			name: "1 a leak of 20 MB/s under 400M, no swap",
			make: func() *world {
				return &world{ram: 1024 * mib, base: 150 * mib, sessions: []*boxed{session("a", 400*mib, linear(0, 20)), session("b", Infinity, flat(50))}}
			},
			until: 60 * time.Second, may: MayFreeze, blame: "a", target: 8 * time.Second, crit: 3 * time.Second, victims: []string{"a"}, lives: true,
		},
		{
			name: "2 a burst of 4 processes to 900M under 500M, with a brake",
			make: func() *world {
				a := session("a", 500*mib, upTo(900, func(t time.Duration) uint64 { return linear(20, 0)(t) + linear(0, 800)(max(0, t-5*time.Second)) }))
				return &world{ram: 2048 * mib, base: 150 * mib, sessions: []*boxed{a, session("b", Infinity, flat(50))}}
			},
			until: 60 * time.Second, may: MayBrake | MayFreeze, blame: "a", target: 1, victims: []string{"a"}, lives: true,
			check: func(t *testing.T, _ *world, m *watchman) {
				if len(m.done) < 2 || !strings.Contains(m.done[0], "arm a") || !strings.HasPrefix(m.done[0], "0.") {
					t.Errorf("did %v, want the brake armed from the start", m.done)
				}
			},
		},
		{
			name: "2b the same without a brake",
			make: func() *world {
				return &world{ram: 2048 * mib, base: 150 * mib, sessions: []*boxed{session("a", 500*mib, upTo(900, func(t time.Duration) uint64 { return linear(20, 0)(t) + linear(0, 400)(max(0, t-5*time.Second)) }))}}
			},
			until: 60 * time.Second, may: MayFreeze, blame: "a", target: 1, victims: []string{"a"}, lives: true,
		},
		{
			name: "3 600 MB of files are read four times, then 60 MB of tmpfs",
			make: func() *world {
				a := session("a", 400*mib, func(t time.Duration) uint64 {
					n := uint64(40 * mib)
					if t > 40*time.Second {
						n += uint64(60 * mib)
					}
					return n
				})
				a.cache = linear(0, 100)
				return &world{ram: 1024 * mib, base: 150 * mib, sessions: []*boxed{a}}
			},
			until: 2 * time.Minute, may: MayFreeze | MayClose,
		},
		{
			name: "4 twenty sessions of +1 MB/s each, no ceilings, no swap",
			make: func() *world {
				w := &world{ram: 1024 * mib, base: 150 * mib}
				for i := range 20 {
					s := session(fmt.Sprintf("s%02d", i), Infinity, linear(8, 1))
					s.born = time.Duration(i) * time.Second
					s.inUse = i < 10
					if !s.inUse {
						s.idle = 5 * time.Minute
					}
					w.sessions = append(w.sessions, s)
				}
				return w
			},
			until: 90 * time.Second, may: MayHold | MayFreeze, blame: "this host", target: 15 * time.Second, lives: true,
			victims: []string{"*"},
			check: func(t *testing.T, w *world, m *watchman) {
				if w.sessions[0].frozen {
					t.Error("the oldest session was frozen")
				}
				first := slices.IndexFunc(m.done, func(d string) bool { return strings.Contains(d, "freeze") })
				if first < 0 || !strings.HasSuffix(m.done[first], "s19") {
					t.Errorf("did %v, want the newest idle one frozen first", m.done)
				}
				if !slices.ContainsFunc(m.done, func(d string) bool { return strings.Contains(d, " hold") }) {
					t.Errorf("did %v, want new sessions held", m.done)
				}
				for _, x := range m.said {
					if x.Level >= Warn && x.Limit.Kind == KindHost && len(x.Sessions) != 3 {
						t.Errorf("%d sessions are named", len(x.Sessions))
					}
				}
			},
		},
		{
			name: "6 three idle sessions of 250M and one that needs 600M, 1 GB of swap",
			make: func() *world {
				w := &world{ram: 1024 * mib, swap: 1024 * mib, base: 150 * mib}
				for i := range 3 {
					s := session(fmt.Sprintf("idle%d", i), Infinity, upTo(250, linear(0, 50)))
					s.inUse, s.idle = false, 20*time.Minute
					w.sessions = append(w.sessions, s)
				}
				w.sessions = append(w.sessions, session("active", Infinity, func(t time.Duration) uint64 { return upTo(600, linear(0, 10))(max(0, t-20*time.Second)) }))
				return w
			},
			until: 2 * time.Minute, may: MayHibernate, victims: []string{"idle0", "idle1", "idle2"}, lives: true,
		},
		{
			name: "7 anonymous memory parked above the brake, no swap",
			make: func() *world {
				a := session("a", 264*mib, upTo(250, linear(0, 50)))
				return &world{ram: 2048 * mib, base: 150 * mib, sessions: []*boxed{a}}
			},
			until: time.Minute, may: MayBrake, blame: "a", target: 1, victims: []string{"a"}, lives: true,
			check: func(t *testing.T, w *world, m *watchman) {
				if len(m.done) != 2 || !strings.Contains(m.done[0], "arm a") || !strings.Contains(m.done[1], "lift a") {
					t.Fatalf("did %v, want the brake armed and lifted once", m.done)
				}
				var at float64
				fmt.Sscanf(m.done[1], "%fs", &at)
				if at > 4+10+1 { // it is throttled from 4 s on
					t.Errorf("lifted after %v s", at)
				}
				if got := w.sessions[0].got; got != 250*mib {
					t.Errorf("it has %d MiB, want all that it wanted", got/mib)
				}
			},
		},
		{
			name: "7h the same at a memory.high of its user's, far from its ceiling",
			make: func() *world {
				// It gives most of it back a minute later.
				a := session("a", 1024*mib, func(t time.Duration) uint64 {
					if t > time.Minute {
						return 100 * mib
					}
					return upTo(280, linear(0, 50))(t)
				})
				a.asked, a.high = 200*mib, 200*mib
				return &world{ram: 1536 * mib, base: 150 * mib, sessions: []*boxed{a, session("b", Infinity, flat(30))}}
			},
			until: 110 * time.Second, may: MayBrake, blame: "a", target: 1, victims: []string{"a"}, lives: true,
			check: func(t *testing.T, w *world, m *watchman) {
				if len(m.done) != 2 || !strings.Contains(m.done[0], "lift a") || !strings.Contains(m.done[1], "restore a") {
					t.Fatalf("did %v, want memory.high lifted and set again", m.done)
				}
				var lifted, restored float64
				fmt.Sscanf(m.done[0], "%fs", &lifted)
				fmt.Sscanf(m.done[1], "%fs", &restored)
				if lifted < 4+8 || lifted > 4+10+1 { // it stands there from 4 s on
					t.Errorf("lifted after %v s", lifted)
				}
				if restored < lifted+60 || restored > lifted+80 {
					t.Errorf("set again after %v s, lifted after %v", restored, lifted)
				}
				if s := w.sessions[0].stall.Full; s > 8*time.Second { // it waits for 70 % of the time
					t.Errorf("it stalled for %v", s)
				}
				if at, ok := m.warned(Warn, "a"); !ok || at.Seconds() >= lifted {
					t.Errorf("warned at %v, %v, and lifted after %v s", at, ok, lifted)
				}
				if n := len(m.said); n != 2 || m.said[1].Change != Cleared || m.saidAt[1].Seconds() > lifted+1 {
					t.Errorf("said %d things, want it over at once when it was lifted", n)
				}
				if text := m.said[0].String(); !strings.Contains(text, "session a: ") || !strings.Contains(text, "stalled at its memory.high of 200 MiB") || !strings.Contains(text, "memory.high is lifted in 3 s") {
					t.Errorf("said %q", text)
				}
			},
		},
		{
			name: "7i the same, and nothing may be done",
			make: func() *world {
				a := session("a", Infinity, upTo(280, linear(0, 50)))
				a.asked, a.high = 200*mib, 200*mib
				return &world{ram: 1536 * mib, base: 150 * mib, sessions: []*boxed{a}}
			},
			until: time.Minute, may: MayFreeze | MayClose, blame: "a", target: 1, lives: true,
			check: func(t *testing.T, w *world, m *watchman) {
				if w.sessions[0].got == 280*mib {
					t.Error("it does not stall")
				}
				if at, ok := m.warned(Warn, "a"); !ok || at > (4+10)*time.Second {
					t.Errorf("warned at %v, %v", at, ok)
				}
				if text := m.said[0].String(); !strings.Contains(text, "stalled at its memory.high of 200 MiB") || !strings.Contains(text, "nothing is done about it") || !strings.Contains(text, "sessionbox limit a --memory-high") {
					t.Errorf("said %q", text)
				}
			},
		},
		{
			name: "8a swap full of cold pages, 40 % available",
			make: func() *world {
				return &world{ram: 1024 * mib, swap: 1024 * mib, swapBase: 1024 * mib, base: 610 * mib}
			},
			until: 2 * time.Minute, may: MayFreeze | MayClose,
		},
		{
			name: "8b and then it thrashes",
			make: func() *world {
				return &world{ram: 1024 * mib, swap: 1024 * mib, swapBase: 1024 * mib, base: 760 * mib, thrash: func(t time.Duration) bool { return t > 30*time.Second }}
			},
			until: 2 * time.Minute, blame: "this host", target: 1,
			check: func(t *testing.T, _ *world, m *watchman) {
				if at, ok := m.warned(Warn, "this host"); !ok || at > 40*time.Second {
					t.Errorf("warned at %v, want within 10 s of 30 s", at)
				}
			},
		},
		{
			name: "9 a slice of 300M around, a sibling of 150M",
			make: func() *world {
				return &world{ram: 1024 * mib, base: 100 * mib, slice: 300 * mib, sessions: []*boxed{session("sibling", Infinity, flat(150)), session("a", Infinity, linear(0, 5))}}
			},
			until: time.Minute, may: MayFreeze, blame: "sessionbox.slice", target: 8 * time.Second, victims: []string{"a"}, lives: true,
			check: func(t *testing.T, _ *world, m *watchman) {
				for _, x := range m.said {
					if x.Limit.Kind == KindHost {
						t.Errorf("the host is blamed: %v", &x)
					}
				}
			},
		},
		{
			name: "10 nothing but old stalls",
			make: func() *world {
				return &world{ram: 1024 * mib, base: 300 * mib, hostStall: Pressure{Some: time.Hour, Full: time.Hour}, sessions: []*boxed{{id: "a", max: 400 * mib, high: Infinity, swapMax: Infinity,
					want: noisy(20, flat(100)), stall: Pressure{Some: time.Minute, Full: time.Minute}, events: Events{High: 99, Max: 99, OOM: 3}}}}
			},
			until: 2 * time.Minute, may: MayFreeze | MayClose,
		},
		{
			name: "11 twelve processes grow to 300 MB each in 2 GB, the jetsam story",
			make: func() *world {
				w := &world{ram: 2048 * mib, base: 250 * mib}
				for i := range 4 {
					s := session(fmt.Sprintf("s%d", i), Infinity, upTo(120, linear(10, 8)))
					s.born = time.Duration(i) * time.Second
					w.sessions = append(w.sessions, s)
				}
				hog := session("hog", Infinity, upTo(12*300, linear(10, 60)))
				w.sessions = append(w.sessions, hog)
				return w
			},
			until: 3 * time.Minute, may: MayFreeze, blame: "this host", target: 10 * time.Second, victims: []string{"hog"}, lives: true,
		},
		{
			name: "11b the same, and closed",
			make: func() *world {
				w := &world{ram: 2048 * mib, base: 250 * mib}
				for i := range 4 {
					s := session(fmt.Sprintf("s%d", i), Infinity, upTo(120, linear(10, 8)))
					w.sessions = append(w.sessions, s)
				}
				w.sessions = append(w.sessions, session("hog", Infinity, upTo(12*300, linear(10, 60))))
				return w
			},
			until: 3 * time.Minute, may: MayClose, blame: "this host", target: 10 * time.Second, victims: []string{"hog"}, lives: true, closes: true,
		},
		{
			name: "12 the machine is paused for 30 s in a steady state of growth",
			make: func() *world {
				return &world{ram: 4096 * mib, base: 250 * mib, sessions: []*boxed{session("a", 2048*mib, func(t time.Duration) uint64 {
					n := upTo(1200, linear(600, 5))(t)
					if t > 60*time.Second {
						n += uint64(200 * mib) // what happened meanwhile
					}
					return n
				})}}
			},
			until: 80 * time.Second, may: MayFreeze,
		},
	}
}

// guiltyOf gives the sessions that something was done to.
func (m *watchman) guiltyOf() []string {
	var who []string
	for _, d := range m.done {
		if f := strings.Fields(d); len(f) == 3 && !slices.Contains(who, f[2]) {
			who = append(who, f[2])
		}
	}
	slices.Sort(who)
	return who
}

// score is that of facts/memory.md §4, for one run beside one without a guard.
func score(s *scenario, bare, w *world, m *watchman) (points float64, lead time.Duration, falseWarnings int) {
	for _, x := range m.said {
		if x.Change == Raised && x.Level >= Warn && (s.target == 0 || !strings.HasPrefix(x.Limit.Name, s.blame)) {
			falseWarnings++
		}
	}
	if bare.killedAt > 0 && w.killedAt > 0 && s.lives {
		return 0, 0, falseWarnings
	}
	points = 35
	if s.target > 0 && bare.killedAt > 0 {
		at, ok := m.warned(Warn, s.blame)
		if ok {
			lead = bare.killedAt - at
		}
		want := min(10*time.Second, bare.killedAt/2)
		points = 35 * min(1, max(0, float64(lead)/float64(want)))
	}
	want := s.victims
	if slices.Equal(want, []string{"*"}) || slices.Equal(m.guiltyOf(), want) {
		points += 25
	}
	hours := w.now.Hours()
	points += 25 * max(0, 1-float64(falseWarnings)/max(1, hours))
	if s.closes || !slices.ContainsFunc(m.done, func(d string) bool { return strings.Contains(d, "close") }) {
		points += 15
	}
	return points, lead, falseWarnings
}

// TestScenarios runs each scenario three times, with the first look at another time
// after the start.
func TestScenarios(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(strings.ReplaceAll(s.name, "/", " per "), func(t *testing.T) {
			bare := s.make()
			bare.run(s.until, nil)
			var scores, leads []float64
			for _, phase := range []time.Duration{0, 330 * time.Millisecond, 710 * time.Millisecond} {
				points, lead := s.run(t, bare, phase)
				scores, leads = append(scores, points), append(leads, lead.Seconds())
			}
			slices.Sort(scores)
			slices.Sort(leads)
			t.Logf("score %.0f (worst %.0f), lead %.1f s (worst %.1f)", scores[1], scores[0], leads[1], leads[0])
		})
	}
}

func (s *scenario) run(t *testing.T, bare *world, phase time.Duration) (points float64, lead time.Duration) {
	w := s.make()
	m := newWatchman(w, s.may)
	m.stall = [2]time.Duration{0, phase}
	if strings.HasPrefix(s.name, "12") {
		w.run(phase, nil)
		m.stall = [2]time.Duration{40 * time.Second, 70 * time.Second}
	}
	w.run(s.until, m)
	points, lead, wrong := score(s, bare, w, m)
	t.Logf("%3.0f points; lead %.1f s, false warnings %d, killed %v without, %v with; did %v", points, lead.Seconds(), wrong, bare.kills, w.kills, m.done)
	for i, x := range m.said {
		t.Logf("%6.2fs %-8s %-9s %v", m.saidAt[i].Seconds(), x.Change, x.Level, &x)
	}
	if wrong > 0 {
		t.Errorf("%d false warnings", wrong)
	}
	if s.target > 0 && bare.killedAt > 0 {
		if lead < s.target {
			t.Errorf("the warning came %v before the kill, want %v", lead, s.target)
		}
		at, ok := m.warned(Critical, s.blame)
		if s.crit > 0 && (!ok || bare.killedAt-at < s.crit) {
			t.Errorf("critical %v before the kill, want %v", bare.killedAt-at, s.crit)
		}
	}
	if s.lives && len(w.kills) > 0 {
		t.Errorf("%v were killed", w.kills)
	}
	if got := m.guiltyOf(); !slices.Equal(s.victims, []string{"*"}) && !slices.Equal(got, s.victims) {
		t.Errorf("acted on %v, want %v", got, s.victims)
	}
	if s.check != nil {
		s.check(t, w, m)
	}
	return points, lead
}
