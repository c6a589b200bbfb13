package memlimit

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const all = MayHold | MayHibernate | MayBrake | MayFreeze | MayClose

// stage is a scene with a host, a slice and sessions, at rest.
func stage(sessions ...Candidate) *Scene {
	sc := &Scene{Now: time.Hour, Places: []Spot{
		{Place{Kind: KindHost, Name: "this host"}, &Verdict{Max: 8 * gib, Headroom: 6 * gib}},
		{Place{Kind: KindAncestor, Name: "sessionbox.slice"}, &Verdict{Max: Infinity, Headroom: Infinity}},
	}}
	for _, c := range sessions {
		c.Name = c.ID
		if c.Ceiling == 0 {
			c.Ceiling = Infinity
		}
		if c.Brake == 0 {
			c.Brake = Infinity
		}
		if c.High == 0 {
			c.High = Infinity
		}
		if c.Age == 0 {
			c.Age = time.Minute
		}
		c.Under = []int{len(sc.Places), 1, 0}
		sc.Places = append(sc.Places, Spot{place(c.ID), &Verdict{Tier: TierCgroup, Max: c.Ceiling, Headroom: c.Ceiling - min(c.Ceiling, c.Hard), Hard: c.Hard}})
		sc.Sessions = append(sc.Sessions, c)
	}
	return sc
}

// own is the place of the session i.
func (sc *Scene) own(i int) *Verdict { return sc.Places[2+i].Verdict }

// filling makes a verdict one of a place that will be full.
func filling(v *Verdict, l Level, in time.Duration) {
	v.Level, v.Now, v.Full, v.Growing, v.Slope = l, l, in, true, 20*mib
	if v.Max == Infinity {
		v.Max = 4 * gib
	}
	v.Headroom = uint64(in.Seconds() * 20 * mib)
}

// decide asks the ladder with verdicts of now.
func (sc *Scene) decide(l *Ladder) []Action {
	for i := range sc.Places {
		sc.Places[i].At = sc.Now
	}
	return l.Decide(sc)
}

func deeds(actions []Action) (out []string) {
	for _, a := range actions {
		out = append(out, strings.TrimSpace(string(a.Do)+" "+a.Session))
	}
	return out
}

func TestNothingWithoutBeingAsked(t *testing.T) {
	var l Ladder
	sc := stage(Candidate{ID: "a", Hard: gib, Slope: 20 * mib, Ceiling: 2 * gib}, Candidate{ID: "b", Hard: gib, Idle: time.Hour})
	for i := range sc.Places {
		filling(sc.Places[i].Verdict, Emergency, time.Second)
	}
	for range 100 {
		if got := sc.decide(&l); len(got) > 0 {
			t.Fatalf("%v", deeds(got))
		}
		sc.Now += time.Second
	}
}

func TestNeverTouched(t *testing.T) {
	for name, c := range map[string]Candidate{
		"protected":       {Protected: true},
		"attached":        {Attached: true},
		"young":           {Age: 5 * time.Second},
		"thawed by hand":  {ThawedAt: time.Hour - 10*time.Second},
		"not asked for":   {May: MayHold},
		"attached, tight": {Attached: true, Ceiling: gib},
	} {
		c.ID, c.Hard, c.Slope = "a", 2*gib, 20*mib
		if name != "not asked for" {
			c.May = all
		}
		sc := stage(c, Candidate{ID: "other", Hard: 1, Age: time.Hour})
		filling(sc.Places[0].Verdict, Emergency, time.Second)
		filling(sc.own(0), Emergency, time.Second)
		sc.Places[0].SwapRoom = 8 * gib
		l := Ladder{Rules: Rules{Hold: false}}
		for range 60 {
			for _, a := range sc.decide(&l) {
				// A brake stops nobody.
				if a.Do != Helpless && (name == "protected" || name == "not asked for" || a.Do != Arm && a.Do != Brake) {
					t.Errorf("%s: %s %s: %s", name, a.Do, a.Session, a.Reason)
				}
			}
			sc.Now += 100 * time.Millisecond
		}
	}
	// But one that somebody is attached to may be, beyond its own ceiling, if allowed.
	sc := stage(Candidate{ID: "a", Hard: 2 * gib, Ceiling: gib, Attached: true, May: MayFreeze})
	filling(sc.own(0), Emergency, time.Second)
	l := Ladder{Rules: Rules{TakeAttached: true}}
	if got := deeds(sc.decide(&l)); !slices.Equal(got, []string{"freeze a"}) {
		t.Errorf("%v", got)
	}
}

func TestVictimOrder(t *testing.T) {
	order := []Candidate{ // as it is to be
		{ID: "over", Hard: 200 * mib, Ceiling: 100 * mib},
		{ID: "overless", Hard: 3 * gib, Ceiling: 2 * gib},
		{ID: "big", Hard: 4 * gib},
		{ID: "growing", Hard: 100 * mib, Slope: 60 * mib},
		{ID: "idle", Hard: 290 * mib, Idle: time.Hour},
		{ID: "newer", Hard: 300 * mib, Age: 2 * time.Minute},
		{ID: "older", Hard: 310 * mib, Age: time.Hour},
		{ID: "small", Hard: mib},
	}
	rapid.Check(t, func(t *rapid.T) {
		var list []*Candidate
		for _, i := range rapid.Permutation([]int{0, 1, 2, 3, 4, 5, 6, 7}).Draw(t, "order") {
			c := order[i]
			if c.Ceiling == 0 {
				c.Ceiling = Infinity
			}
			list = append(list, &c)
		}
		Order(list)
		for i, c := range list {
			if c.ID != order[i].ID {
				t.Fatalf("%d is %s, want %s", i, c.ID, order[i].ID)
			}
		}
	})
}

func TestIdleBeforeBusyUnlessDwarfs(t *testing.T) {
	for _, c := range []struct {
		idle uint64
		want string
	}{{900 * mib, "freeze idle"}, {20 * mib, "freeze busy"}} {
		sc := stage(Candidate{ID: "old", Hard: mib, Age: time.Hour}, Candidate{ID: "busy", Hard: 2 * gib, Slope: 10 * mib, InUse: true, May: MayFreeze},
			Candidate{ID: "idle", Hard: c.idle, Slope: mib, May: MayFreeze})
		filling(sc.Places[0].Verdict, Emergency, 4*time.Second)
		var l Ladder
		if got := deeds(sc.decide(&l)); !slices.Equal(got, []string{c.want}) {
			t.Errorf("idle with %d MiB: %v, want %s", c.idle/mib, got, c.want)
		}
	}
}

func TestHoldAndRelease(t *testing.T) {
	l := Ladder{Rules: Rules{Hold: true}}
	sc := stage(Candidate{ID: "a"})
	filling(sc.own(0), Critical, time.Minute)
	if got := sc.decide(&l); len(got) > 0 || l.Holding() {
		t.Errorf("held for what is one session's own: %v", deeds(got))
	}
	filling(sc.Places[0].Verdict, Critical, time.Minute)
	if got := deeds(sc.decide(&l)); !slices.Equal(got, []string{"hold"}) || !l.Holding() {
		t.Errorf("%v", got)
	}
	if got := sc.decide(&l); len(got) > 0 {
		t.Errorf("again: %v", deeds(got))
	}
	*sc.Places[0].Verdict = Verdict{Max: 8 * gib, Headroom: 6 * gib}
	sc.Sessions[0].Frozen, sc.Sessions[0].FrozenAt = true, sc.Now
	if got := sc.decide(&l); len(got) > 0 || !l.Holding() {
		t.Errorf("released while a session stands still: %v", deeds(got))
	}
	sc.Sessions[0].Frozen, sc.Sessions[0].FrozenAt = false, 0
	if got := deeds(sc.decide(&l)); !slices.Equal(got, []string{"release"}) {
		t.Errorf("%v", got)
	}
}

func TestHibernate(t *testing.T) {
	idle := Candidate{ID: "a", Hard: 300 * mib, Idle: 20 * time.Minute, May: MayHibernate}
	for name, c := range map[string]struct {
		change func(*Candidate, *Verdict)
		want   []string
	}{
		"warned of":           {func(*Candidate, *Verdict) {}, []string{"hibernate a"}},
		"RAM alone is full":   {func(_ *Candidate, v *Verdict) { v.Now, v.Level, v.RAM = OK, OK, .90 }, []string{"hibernate a"}},
		"at ease":             {func(_ *Candidate, v *Verdict) { v.Now, v.Level = OK, OK }, nil},
		"no swap":             {func(_ *Candidate, v *Verdict) { v.SwapRoom = 0 }, nil},
		"little swap":         {func(_ *Candidate, v *Verdict) { v.SwapRoom = 400 * mib }, nil},
		"not idle for long":   {func(c *Candidate, _ *Verdict) { c.Idle = 9 * time.Minute }, nil},
		"in use":              {func(c *Candidate, _ *Verdict) { c.InUse = true }, nil},
		"attached":            {func(c *Candidate, _ *Verdict) { c.Attached = true }, nil},
		"already":             {func(c *Candidate, _ *Verdict) { c.Hibernated = true }, nil},
		"frozen by whomever":  {func(c *Candidate, _ *Verdict) { c.Frozen = true }, nil},
		"nothing to be had":   {func(c *Candidate, _ *Verdict) { c.Hard = 4096 }, nil},
		"may only be stopped": {func(c *Candidate, _ *Verdict) { c.May = MayFreeze }, nil},
	} {
		sc := stage(idle, Candidate{ID: "b", Age: time.Hour})
		v := sc.Places[0].Verdict
		v.Level, v.Now, v.SwapRoom = Warn, Warn, gib
		c.change(&sc.Sessions[0], v)
		var l Ladder
		if got := deeds(sc.decide(&l)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	for _, c := range []struct {
		hard, room uint64
		io         float64
		n          uint64
		why        string
	}{
		{300 * mib, gib, 0, 32 * mib, ""}, {40 * mib, gib, 0, 16 * mib, ""}, {5 * mib, gib, 0, 5 * mib, ""}, {200 * mib, gib, 0, 25 * mib, ""},
		{300 * mib, 400 * mib, 0, 0, "there is too little room in swap"}, {300 * mib, gib, .5, 0, "the disk is busy"}, {1000, gib, 0, 0, "nothing is left"},
	} {
		if n, why := Chunk(c.hard, c.room, c.io); n != c.n || why != c.why {
			t.Errorf("Chunk(%d MiB, %d MiB, %v) = %d MiB, %q; want %d MiB, %q", c.hard/mib, c.room/mib, c.io, n/mib, why, c.n/mib, c.why)
		}
	}
}

func TestBrake(t *testing.T) {
	for ceiling, want := range map[uint64]uint64{gib: scale(gib, .9), 500 * mib: 436 * mib, 100 * mib: 75 * mib, 4 * gib: scale(4*gib, .9), 0: 0} {
		if got := BrakeAt(ceiling); got != want {
			t.Errorf("BrakeAt(%d) = %d, want %d", ceiling, got, want)
		}
	}
	// It is armed from the start, also of one that was opened just now, and stays for as
	// long as nobody stands at it.
	var l Ladder
	sc := stage(Candidate{ID: "a", Hard: 10 * mib, Ceiling: gib, May: MayBrake, Age: time.Second})
	own, c := sc.own(0), &sc.Sessions[0]
	got := sc.decide(&l)
	if !slices.Equal(deeds(got), []string{"arm a"}) || got[0].High != BrakeAt(gib) {
		t.Fatalf("%+v", got)
	}
	c.Brake, c.Age = got[0].High, time.Minute
	for range 100 {
		sc.Now += time.Minute
		if got := sc.decide(&l); len(got) > 0 {
			t.Fatalf("at rest: %v", deeds(got))
		}
	}
	filling(own, Critical, 10*time.Second)
	c.Hard, own.Throttled = 925*mib, 9*time.Second
	if got := sc.decide(&l); len(got) > 0 {
		t.Errorf("after 9 s at it: %v", deeds(got))
	}
	sc.Now += time.Second
	own.Throttled = 10 * time.Second
	if got := deeds(sc.decide(&l)); !slices.Equal(got, []string{"lift a"}) {
		t.Errorf("after 10 s: %v", got)
	}
	c.Brake, own.Throttled, c.Hard = Infinity, 0, 910*mib
	sc.Now += 50 * time.Second
	if got := sc.decide(&l); len(got) > 0 {
		t.Errorf("50 s after a lift: %v", deeds(got))
	}
	sc.Now += 20 * time.Second
	if got := deeds(sc.decide(&l)); !slices.Equal(got, []string{"arm a"}) {
		t.Errorf("70 s after a lift: %v", got)
	}
	// Beyond it, it is set when it is needed, and not where it can only stall: far over,
	// and nothing to be had back.
	l = Ladder{}
	c.Hard, c.Anon = 1000*mib, 900*mib
	if got := sc.decide(&l); len(got) > 0 {
		t.Errorf("anonymous memory without swap: %v", deeds(got))
	}
	c.Soft = 500 * mib
	if got := deeds(sc.decide(&l)); !slices.Equal(got, []string{"brake a"}) {
		t.Errorf("with page cache: %v", got)
	}
	// Stuck, it is frozen where that may be, rather than let go on a host that has no
	// room for it; and what stands still needs no brake.
	l = Ladder{}
	c.Brake, c.May, own.Throttled = BrakeAt(gib), MayBrake|MayFreeze, 10*time.Second
	sc.Places[0].Level = Warn
	if got := deeds(sc.decide(&l)); !slices.Equal(got, []string{"freeze a"}) {
		t.Errorf("stuck: %v", got)
	}
	c.Frozen, c.FrozenAt, own.Throttled = true, sc.Now, 0
	sc.Now += 3 * time.Second
	if got := deeds(sc.decide(&l)); !slices.Equal(got, []string{"lift a"}) {
		t.Errorf("frozen: %v", got)
	}
}

// Nobody rests at a brake, though what would come next cannot be done.
func TestBrakeIsNoPlaceToRest(t *testing.T) {
	for name, c := range map[string]Candidate{
		"freeze, and somebody is attached": {May: MayBrake | MayFreeze, Attached: true},
		"close, and it is new":             {May: MayBrake | MayClose, Age: time.Second},
		"freeze, and it was thawed":        {May: MayBrake | MayFreeze, ThawedAt: time.Hour},
	} {
		c.ID, c.Hard, c.Ceiling, c.Brake = "a", 925*mib, gib, BrakeAt(gib)
		sc := stage(c)
		filling(sc.own(0), Critical, 10*time.Second)
		sc.own(0).Throttled = 10 * time.Second
		var l Ladder
		if got := deeds(sc.decide(&l)); !slices.Equal(got, []string{"lift a"}) {
			t.Errorf("%s: %v, want it lifted", name, got)
		}
	}
}

// A memory.high that its user has set is left alone, and so is one where nothing can be
// set.
func TestBrakeIsNotSet(t *testing.T) {
	for name, change := range map[string]func(*Candidate, *Verdict){
		"its user has a lower one":  func(c *Candidate, _ *Verdict) { c.High = 200 * mib },
		"its user has a higher one": func(c *Candidate, _ *Verdict) { c.High = 1000 * mib },
		"not asked for":             func(c *Candidate, _ *Verdict) { c.May = MayHold },
		"protected":                 func(c *Candidate, _ *Verdict) { c.Protected = true },
		"frozen":                    func(c *Candidate, _ *Verdict) { c.Frozen = true },
		"no ceiling":                func(_ *Candidate, v *Verdict) { v.Max = Infinity },
		"no controller":             func(_ *Candidate, v *Verdict) { v.Tier = TierProcesses },
	} {
		sc := stage(Candidate{ID: "a", Hard: 10 * mib, Ceiling: gib, May: MayBrake})
		change(&sc.Sessions[0], sc.own(0))
		var l Ladder
		if got := sc.decide(&l); len(got) > 0 {
			t.Errorf("%s: %v", name, deeds(got))
		}
	}
}

// A brake is moved when the ceiling is another one, though all is at ease, and taken away
// when it stands at it for long and nobody counts stalls, or when it may not be there any
// more; what fails is not tried again at once.
func TestBrakeEnds(t *testing.T) {
	var l Ladder
	sc := stage(Candidate{ID: "a", Hard: 910 * mib, Ceiling: gib, May: MayBrake, Anon: 900 * mib})
	own, c := sc.own(0), &sc.Sessions[0]
	filling(own, Critical, 10*time.Second)
	if got := deeds(sc.decide(&l)); !slices.Equal(got, []string{"arm a"}) {
		t.Fatalf("%v", got)
	}
	sc.Now += time.Second
	if got := sc.decide(&l); len(got) > 0 {
		t.Errorf("a second after one that failed: %v", deeds(got))
	}
	sc.Now += 3 * time.Second
	if got := deeds(sc.decide(&l)); !slices.Equal(got, []string{"arm a"}) {
		t.Errorf("4 s after one that failed: %v", got)
	}
	c.Brake = BrakeAt(gib)
	sc.Now += 4 * time.Second
	if got := sc.decide(&l); len(got) > 0 {
		t.Errorf("critical, at the brake: %v", deeds(got))
	}
	sc.Now += 59 * time.Second
	if got := sc.decide(&l); len(got) > 0 {
		t.Errorf("after 59 s: %v", deeds(got))
	}
	sc.Now += 2 * time.Second
	if got := deeds(sc.decide(&l)); !slices.Equal(got, []string{"lift a"}) {
		t.Errorf("after 61 s without a count of stalls: %v", got)
	}
	own.Level, own.Now = OK, OK
	for max, want := range map[uint64]string{2 * gib: "arm a", 950 * mib: "lift a"} {
		l = Ladder{}
		own.Max = max
		if got := deeds(sc.decide(&l)); !slices.Equal(got, []string{want}) {
			t.Errorf("under a ceiling of %d MiB: %v, want %s", max/mib, got, want)
		}
	}
	own.Max, c.May, l = gib, MayHold, Ladder{}
	if got := deeds(sc.decide(&l)); !slices.Equal(got, []string{"lift a"}) {
		t.Errorf("not allowed any more: %v", got)
	}
}

// A brake goes with the ceiling that it was below.
func TestBrakeGoesWithTheCeiling(t *testing.T) {
	var l Ladder
	sc := stage(Candidate{ID: "a", Hard: 925 * mib, May: MayBrake, Brake: BrakeAt(gib)})
	sc.own(0).High = BrakeAt(gib)
	got := sc.decide(&l)
	if !slices.Equal(deeds(got), []string{"lift a"}) || got[0].High != 0 || got[0].Reason != "it has no ceiling any more; session a has 925 MiB" {
		t.Fatalf("%+v", got)
	}
	sc.Sessions[0].Brake = Infinity
	for range 100 {
		sc.Now += time.Second
		if got := sc.decide(&l); len(got) > 0 {
			t.Fatalf("without a ceiling: %v", deeds(got))
		}
	}
}

// Of a session one thing is done at a time: who is to be frozen, or closed, is neither braked
// nor let go in the same round. What was not begun is decided again at once.
func TestStoppedAndNotBraked(t *testing.T) {
	for may, want := range map[Steps]string{MayBrake | MayFreeze: "freeze a", MayBrake | MayClose: "close a"} {
		for name, change := range map[string]func(*Candidate, *Verdict){
			"no brake yet": func(*Candidate, *Verdict) {},
			"at the brake": func(c *Candidate, v *Verdict) { c.Brake, v.Throttled = BrakeAt(gib), brakeMost+brakeOver },
			"at its own":   func(c *Candidate, v *Verdict) { c.High, v.High, v.Parked = 900*mib, 900*mib, brakeMost+brakeOver },
		} {
			var l Ladder
			sc := stage(Candidate{ID: "a", Hard: 940 * mib, Anon: 940 * mib, Ceiling: gib, May: may})
			own := sc.own(0)
			filling(own, Emergency, 3*time.Second)
			own.SwapRoom = 2 * gib
			change(&sc.Sessions[0], own)
			for range 2 {
				got := sc.decide(&l)
				if !slices.Equal(deeds(got), []string{want}) {
					t.Fatalf("%s: %v, want %s", name, deeds(got), want)
				}
				l.Undone(got[0])
				sc.Now += 50 * time.Millisecond
			}
		}
	}
}

// Who is inside a session is touched with it: what spares the one spares the other.
func TestHolds(t *testing.T) {
	outer := Candidate{Age: time.Hour, Idle: time.Hour}
	outer.Holds(&Candidate{Protected: true, Attached: true, InUse: true, Idle: time.Minute, Age: time.Minute, ThawedAt: time.Second})
	if want := (Candidate{Age: time.Hour, Idle: time.Minute, Protected: true, Attached: true, InUse: true, ThawedAt: time.Second}); !reflect.DeepEqual(outer, want) {
		t.Errorf("%+v, want %+v", outer, want)
	}
}

func TestFreezeStopsWhoGrows(t *testing.T) {
	young := Candidate{ID: "young", Hard: gib, Slope: 10 * mib, May: all}
	for name, c := range map[string]struct {
		sessions []Candidate
		change   func(*Scene)
		want     []string
	}{
		"the newest of two":            {[]Candidate{{ID: "old", Hard: gib, Slope: 10 * mib, Age: time.Hour, May: all}, young}, nil, []string{"freeze young"}},
		"the oldest, if it is the one": {[]Candidate{{ID: "old", Hard: gib, Slope: 20 * mib, Age: time.Hour, May: all}, {ID: "young", Hard: 3 * gib, May: all}}, nil, []string{"freeze old"}},
		"never the last that runs":     {[]Candidate{{ID: "old", Hard: gib, Slope: 20 * mib, Age: time.Hour, May: MayFreeze}}, nil, nil},
		"not yet: full in a minute":    {[]Candidate{{ID: "old", Age: time.Hour}, young}, func(sc *Scene) { filling(sc.Places[0].Verdict, Critical, time.Minute) }, nil},
		"nobody when nothing grows":    {[]Candidate{{ID: "old", Age: time.Hour}, {ID: "young", Hard: gib, May: MayFreeze}}, func(sc *Scene) { v := sc.Places[0].Verdict; v.Full, v.Growing, v.Slope = 0, false, 0 }, nil},
		"whoever is biggest when thrashing": {[]Candidate{{ID: "old", Hard: gib, Age: time.Hour, May: all}, {ID: "young", Hard: 3 * gib, May: all}}, func(sc *Scene) {
			v := sc.Places[0].Verdict
			v.Full, v.Growing, v.Slope, v.Thrashing = 0, false, 0, true
		}, []string{"freeze young"}},
	} {
		sc := stage(c.sessions...)
		filling(sc.Places[0].Verdict, Emergency, 4*time.Second)
		if c.change != nil {
			c.change(sc)
		}
		var l Ladder
		got := slices.DeleteFunc(deeds(sc.decide(&l)), func(d string) bool { return d == string(Helpless) })
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestCloseIsTheLastStep(t *testing.T) {
	// At once where nothing else was allowed, in a hurry.
	sc := stage(Candidate{ID: "a", Hard: gib, Slope: 20 * mib, Ceiling: 2 * gib, May: MayClose})
	filling(sc.own(0), Critical, 10*time.Second)
	var l Ladder
	if got := sc.decide(&l); len(got) > 0 {
		t.Errorf("critical: %v", deeds(got))
	}
	filling(sc.own(0), Emergency, 4*time.Second)
	got := sc.decide(&l)
	if !slices.Equal(deeds(got), []string{"close a"}) || got[0].Grace != graceHurried {
		t.Fatalf("%+v", got)
	}
	if want := "session a is at 0 % of 2.0 GiB, full in about 4 s"; got[0].Reason != want {
		t.Errorf("%q, want %q", got[0].Reason, want)
	}
	// What stands still below its own ceiling is left alone for ever.
	l = Ladder{}
	sc.Sessions[0].May, sc.Sessions[0].Frozen, sc.Sessions[0].FrozenAt = all, true, sc.Now
	for range 100 {
		if got := sc.decide(&l); len(got) > 0 {
			t.Fatalf("frozen: %v", deeds(got))
		}
		sc.Now += 10 * time.Second
	}
	// A host that is nearly full and stays so: not before ten seconds, and one in 15.
	l = Ladder{}
	sc = stage(Candidate{ID: "a", Hard: 3 * gib, May: MayClose}, Candidate{ID: "b", Hard: gib, May: MayClose})
	v := sc.Places[0].Verdict
	v.Level, v.Now = Emergency, Emergency
	began := sc.Now
	var closed []time.Duration
	for range 300 {
		for _, a := range sc.decide(&l) {
			if a.Do == Close {
				closed = append(closed, sc.Now-began)
			}
		}
		sc.Now += 100 * time.Millisecond
	}
	if len(closed) != 2 || closed[0] != standstill || closed[1]-closed[0] != restClose {
		t.Errorf("closed after %v", closed)
	}
}

func TestHelpless(t *testing.T) {
	sc := stage(Candidate{ID: "a", Hard: gib, Slope: 20 * mib, May: all, Protected: true})
	filling(sc.Places[0].Verdict, Emergency, 4*time.Second)
	var l Ladder
	said := 0
	for range 130 {
		for _, a := range sc.decide(&l) {
			said++
			if a.Do != Helpless || !strings.Contains(a.Reason, "session a: it is protected") {
				t.Errorf("%+v", a)
			}
		}
		sc.Now += time.Second
	}
	if said != 3 {
		t.Errorf("said %d times in 130 s", said)
	}
}

func TestThaw(t *testing.T) {
	sc := stage(Candidate{ID: "a", Hard: gib, Frozen: true, FrozenAt: time.Hour - time.Minute}, Candidate{ID: "b", Hard: gib, Frozen: true, FrozenAt: time.Hour - 2*time.Minute},
		Candidate{ID: "user", Frozen: true}, Candidate{ID: "c", Hard: gib, Swap: 5 * gib, Frozen: true, FrozenAt: time.Hour - 3*time.Minute})
	filling(sc.Places[0].Verdict, Warn, time.Minute)
	var l Ladder
	if got := sc.decide(&l); len(got) > 0 {
		t.Fatalf("while it is warned of: %v", deeds(got))
	}
	*sc.Places[0].Verdict = Verdict{Max: 8 * gib, Headroom: 5 * gib}
	var order []string
	when := map[string]time.Duration{}
	for range 1500 {
		for _, a := range sc.decide(&l) {
			order = append(order, string(a.Do)+" "+a.Session)
			when[a.Session] = sc.Now
			for i := range sc.Sessions {
				if c := &sc.Sessions[i]; c.ID == a.Session {
					c.Frozen, c.FrozenAt = false, 0
				}
			}
		}
		sc.Now += 100 * time.Millisecond
	}
	// The longest first, one in three seconds; what would not fit waits for two minutes.
	if want := []string{"thaw b", "thaw a", "thaw c"}; !slices.Equal(order, want) {
		t.Fatalf("%v, want %v", order, want)
	}
	if d := when["a"] - when["b"]; d != restThaw {
		t.Errorf("%v between two", d)
	}
	if d := when["c"] - when["b"]; d < thawLatest-time.Second || d > thawLatest+time.Second {
		t.Errorf("what does not fit waits for %v", d)
	}
}

// Whatever happens: nobody is touched who may not be, at most one is stopped at a
// time, and closes are spaced.
func TestLadderProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Ladder{Rules: Rules{Hold: rapid.Bool().Draw(t, "hold")}}
		var lastClose time.Duration
		now := time.Hour
		for range rapid.IntRange(1, 60).Draw(t, "rounds") {
			now += time.Duration(rapid.Int64Range(int64(100*time.Millisecond), int64(5*time.Second)).Draw(t, "step"))
			var list []Candidate
			for i := range rapid.IntRange(0, 5).Draw(t, "sessions") {
				c := Candidate{ID: fmt.Sprint("s", i), Hard: rapid.Uint64Max(gib).Draw(t, "hard"), Slope: rapid.Float64Range(-10*mib, 50*mib).Draw(t, "slope"),
					May: Steps(rapid.IntRange(0, int(all)).Draw(t, "may")), Age: time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "age")), Ceiling: gib,
					Idle: time.Duration(rapid.Int64Max(int64(time.Hour)).Draw(t, "idle")), InUse: rapid.Bool().Draw(t, "use"), Attached: rapid.Bool().Draw(t, "attached"), Protected: rapid.Bool().Draw(t, "protected")}
				if c.Frozen = rapid.Bool().Draw(t, "frozen"); c.Frozen && rapid.Bool().Draw(t, "ours") {
					c.FrozenAt = now - time.Second
				}
				list = append(list, c)
			}
			sc := stage(list...)
			sc.Now = now
			for i := range sc.Places {
				v := sc.Places[i].Verdict
				v.Now = Level(rapid.IntRange(0, 4).Draw(t, "level"))
				v.Level, v.SwapRoom = v.Now, rapid.Uint64Max(2*gib).Draw(t, "swap")
				v.Thrashing, v.Throttled = rapid.Bool().Draw(t, "thrashing"), time.Duration(rapid.Int64Max(int64(20*time.Second)).Draw(t, "throttled"))
				if rapid.Bool().Draw(t, "filling") {
					filling(v, v.Now, time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "full")))
				}
			}
			stopped := 0
			for _, a := range sc.decide(&l) {
				if a.Reason == "" {
					t.Fatalf("%s without a reason", a.Do)
				}
				need := map[Deed]Steps{Hibernate: MayHibernate, Arm: MayBrake, Brake: MayBrake, Lift: MayBrake, Freeze: MayFreeze, Close: MayClose}[a.Do]
				i := slices.IndexFunc(sc.Sessions, func(c Candidate) bool { return c.ID == a.Session })
				if need != 0 {
					c := &sc.Sessions[i]
					brakes := need == MayBrake
					if c.May&need == 0 || c.Protected || !brakes && (c.Attached || c.Age < tooYoung) {
						t.Fatalf("%s %+v", a.Do, c)
					}
					if a.Do == Freeze && c.Frozen {
						t.Fatal("frozen twice")
					}
				}
				switch a.Do {
				case Thaw:
					if sc.Sessions[i].FrozenAt == 0 {
						t.Fatal("thawed what somebody else froze")
					}
				case Freeze:
					stopped++
				case Close:
					stopped++
					if lastClose != 0 && now-lastClose < restClose {
						t.Fatalf("two closes within %v", now-lastClose)
					}
					lastClose = now
				}
			}
			if stopped > 1 {
				t.Fatalf("%d were stopped at once", stopped)
			}
		}
	})
}

func TestSteps(t *testing.T) {
	for in, want := range map[string]Steps{"": 0, "warn": 0, "warn, hold ,freeze": MayHold | MayFreeze, "close": MayClose, "hold,hibernate,brake,freeze,close": all} {
		got, err := ParseSteps(in)
		if err != nil || got != want {
			t.Errorf("ParseSteps(%q) = %v, %v", in, got, err)
		}
		if back, err := ParseSteps(got.String()); err != nil || back != want {
			t.Errorf("%q is read as %v, %v", got, back, err)
		}
	}
	if _, err := ParseSteps("warn,kill"); err == nil || !strings.Contains(err.Error(), `"kill"`) || !strings.Contains(err.Error(), "hibernate") {
		t.Errorf("%v", err)
	}
}

func TestSuggest(t *testing.T) {
	for peak, want := range map[uint64]string{0: "64M", 300 * mib: "512M", 3 * gib: "4608M", 1: "64M"} {
		if got := Suggest(peak).String(); got != want {
			t.Errorf("Suggest(%d MiB) = %s, want %s", peak/mib, got, want)
		}
	}
}

// Who is frozen again after a thaw waits longer for the next one.
func TestThawAgain(t *testing.T) {
	sc := stage(Candidate{ID: "old", Age: time.Hour}, Candidate{ID: "a", Hard: gib, Slope: 20 * mib, May: MayFreeze})
	c, host := &sc.Sessions[1], sc.Places[0].Verdict
	easy := *host
	var l Ladder
	for i, least := range []time.Duration{0, 30 * time.Second, time.Minute, 90 * time.Second, 2 * time.Minute, 2 * time.Minute} {
		sc.Now += time.Hour
		filling(host, Emergency, 4*time.Second)
		if got := deeds(sc.decide(&l)); !slices.Equal(got, []string{"freeze a"}) {
			t.Fatalf("%d: %v", i, got)
		}
		c.Frozen, c.FrozenAt = true, sc.Now
		*host = easy
		began := sc.Now
		for c.Frozen && sc.Now-began < time.Hour/2 {
			sc.Now += time.Second
			if slices.Contains(deeds(sc.decide(&l)), "thaw a") {
				c.Frozen, c.FrozenAt = false, 0
			}
		}
		if took := sc.Now - began; took < least || took > least+5*time.Second {
			t.Errorf("thaw %d after %v, want %v", i+1, took, least)
		}
	}
}

// A freeze that cannot be done is not tried all the time, and turns to a close where that
// may be; one that fails, too, lets the next session have its turn.
func TestWhatFails(t *testing.T) {
	fail := func(l *Ladder, sc *Scene, do Deed) (at []time.Duration) {
		began := sc.Now
		for range 3000 {
			for _, a := range sc.decide(l) {
				if a.Do == do {
					at = append(at, (sc.Now - began).Round(time.Second))
				}
				l.Told(a, a.Do != Helpless, sc.Now)
			}
			sc.Now += 100 * time.Millisecond
		}
		return at
	}
	sc := stage(Candidate{ID: "a", Hard: gib, Slope: 20 * mib, Ceiling: 2 * gib, May: MayFreeze})
	filling(sc.own(0), Emergency, 4*time.Second)
	var l Ladder
	if at := fail(&l, sc, Freeze); len(at) < 8 || len(at) > 11 || at[1] != time.Second || at[2] != 3*time.Second || at[3] != 7*time.Second {
		t.Errorf("a freeze that fails is tried at %v", at)
	}
	sc = stage(Candidate{ID: "a", Hard: gib, Slope: 20 * mib, Ceiling: 2 * gib, May: MayFreeze | MayClose}, Candidate{ID: "b", Age: time.Hour})
	filling(sc.own(0), Emergency, 4*time.Second)
	l = Ladder{}
	var did []string
	for range 20 {
		for _, a := range sc.decide(&l) {
			did = append(did, deeds([]Action{a})...)
			l.Told(a, a.Do == Freeze, sc.Now)
		}
		sc.Now += 40 * time.Millisecond
	}
	if !slices.Equal(did, []string{"freeze a", "close a"}) {
		t.Errorf("%v, want it closed when it cannot be frozen", did)
	}
	// Who stalls, or stands still, is let go as soon as that can be done.
	sc = stage(Candidate{ID: "a", Hard: 925 * mib, Ceiling: gib, May: MayBrake, Brake: BrakeAt(gib)})
	sc.own(0).Throttled = time.Minute
	l = Ladder{}
	if at := fail(&l, sc, Lift); len(at) < 95 {
		t.Errorf("a lift that fails is tried at %v", at)
	}
	sc = stage(Candidate{ID: "a", Hard: mib, May: MayFreeze, Frozen: true, FrozenAt: time.Minute})
	l = Ladder{}
	if at := fail(&l, sc, Thaw); len(at) < 95 {
		t.Errorf("a thaw that fails is tried at %v", at)
	}
	// What went well after all begins anew.
	sc = stage(Candidate{ID: "a", Hard: gib, Slope: 20 * mib, Ceiling: 2 * gib, May: MayFreeze})
	l = Ladder{}
	sc.decide(&l)
	for range 5 {
		l.Told(Action{Do: Freeze, Session: "a"}, true, sc.Now)
	}
	l.Told(Action{Do: Freeze, Session: "a"}, false, sc.Now)
	l.Told(Action{Do: Freeze, Session: "a"}, true, sc.Now)
	if c := &sc.Sessions[0]; l.fails(c, Freeze, sc.Now+time.Second) || !l.fails(c, Freeze, sc.Now) {
		t.Error("what went well is held against it")
	}
}
