package memlimit

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// feed gives a judge samples of hard memory at a fixed distance and returns the last
// verdict.
func feed(j *Judge, from, every time.Duration, limit uint64, hard ...uint64) (v Verdict) {
	for i, n := range hard {
		at := from + time.Duration(i)*every
		v = j.Observe(&Sample{At: at, Done: at, Hard: n, Max: limit, SwapMax: Infinity})
	}
	return v
}

func ramp(from, by uint64, n int) (out []uint64) {
	for i := range n {
		out = append(out, from+uint64(i)*by)
	}
	return out
}

func repeat(n uint64, times int) []uint64 { return ramp(n, 0, times) }

func TestSizeLevels(t *testing.T) {
	for _, c := range []struct {
		used  uint64 // percent of the ceiling, at rest
		level Level
		host  Level
	}{
		{0, OK, OK}, {69, OK, OK}, {70, Notice, OK}, {75, Notice, Notice}, {79, Notice, Notice}, {80, Warn, Notice}, {85, Warn, Warn},
		{89, Warn, Warn}, {90, Critical, Critical}, {95, Emergency, Emergency}, {100, Emergency, Emergency}, {130, Emergency, Emergency},
	} {
		for _, host := range []bool{false, true} {
			want := c.level
			if host {
				want = c.host
			}
			v := feed(&Judge{Host: host}, time.Hour, time.Second, 1000*mib, repeat(c.used*10*mib, 5)...)
			if v.Level != want || (v.Cause == "") != (want == OK) {
				t.Errorf("%d %% (host %v): %v by %q, want %v", c.used, host, v.Level, v.Cause, want)
			}
		}
	}
	if v := feed(&Judge{}, 0, time.Second, Infinity, ramp(0, gib, 20)...); v.Level != OK || v.Headroom != Infinity || v.Full != 0 {
		t.Errorf("no ceiling: %+v", v)
	}
	if v := feed(&Judge{}, 0, time.Second, 0, 0, 1); v.Level != Emergency {
		t.Errorf("a ceiling of nothing: %v", v.Level)
	}
}

// 80 % warns only when it stays there for two seconds.
func TestDwell(t *testing.T) {
	var j Judge
	const high, low = 850 * mib, 790 * mib
	for i := range 50 {
		v := feed(&j, time.Duration(i)*2*time.Second, time.Second, 1000*mib, []uint64{high, low}...)
		if v.Level > Notice {
			t.Fatalf("%v after a second at 85 %%", v.Level)
		}
	}
}

func TestSlope(t *testing.T) {
	for name, c := range map[string]struct {
		hard  []uint64
		every time.Duration
		slope float64 // MB/s, 0: not growing
		level Level
	}{
		"steady":                    {ramp(450*mib, 2*mib, 50), 100 * time.Millisecond, 20, Notice},
		"steady and nearly there":   {ramp(650*mib, 2*mib, 50), 100 * time.Millisecond, 20, Critical},
		"slow":                      {ramp(500*mib, 1*mib, 60), time.Second, 1, OK},
		"slow with little left":     {ramp(600*mib, 4*mib, 50), time.Second, 4, Warn},
		"below half":                {ramp(100*mib, 20*mib, 15), 100 * time.Millisecond, 0, OK},
		"a plateau after a burst":   {append(ramp(100*mib, 50*mib, 10), repeat(560*mib, 60)...), 100 * time.Millisecond, 0, OK},
		"a saturating start":        {[]uint64{100 * mib, 350 * mib, 475 * mib, 537 * mib, 568 * mib, 584 * mib, 592 * mib, 596 * mib, 598 * mib, 599 * mib, 600 * mib, 600 * mib}, 500 * time.Millisecond, 0, Notice},
		"one big allocation":        {append(repeat(300*mib, 10), repeat(700*mib, 2)...), time.Second, 0, Notice},
		"falling":                   {ramp(100*mib, 0, 1), time.Second, 0, OK},
		"noise around 60 %":         {noise(600*mib, 15*mib, 200), 100 * time.Millisecond, 0, OK},
		"two points say nothing":    {ramp(550*mib, 100*mib, 2), time.Second, 0, OK},
		"a leak below garbage made": {saw(550*mib, 2*mib, 30*mib, 80), time.Second, 2, Notice},
	} {
		var j Judge
		v := feed(&j, time.Hour, c.every, 1000*mib, c.hard...)
		if c.slope == 0 && v.Level > Notice {
			t.Errorf("%s: %.1f MB/s, full in %v, %v", name, v.Slope/mib, v.Full, v.Level)
		}
		if c.slope != 0 && (v.Slope < c.slope*.5*mib || v.Slope > c.slope*2*mib) {
			t.Errorf("%s: %.1f MB/s, want %v", name, v.Slope/mib, c.slope)
		}
		if v.Level != c.level {
			t.Errorf("%s: %v by %q, want %v (slope %.1f, full in %v, used %.2f)", name, v.Level, v.Cause, c.level, v.Slope/mib, v.Full, v.Used)
		}
	}
}

func noise(around, amplitude uint64, n int) (out []uint64) {
	for i := range n {
		out = append(out, around-amplitude+uint64(i*7919%101)*2*amplitude/100)
	}
	return out
}

func saw(from, by, amplitude uint64, n int) (out []uint64) {
	for i := range n {
		out = append(out, from+uint64(i)*by+uint64(i%5)*amplitude/5)
	}
	return out
}

// A machine that was paused for 30 s comes back with a jump of the clock, of memory,
// or of both; neither is a slope, and what was known before does not count.
func TestPause(t *testing.T) {
	for name, jump := range map[string]time.Duration{"30 s": 30 * time.Second, "backwards": -10 * time.Minute, "a day": 24 * time.Hour} {
		var j Judge
		feed(&j, time.Hour, 100*time.Millisecond, 1000*mib, ramp(500*mib, mib/10, 50)...)
		for _, more := range []uint64{0, 150 * mib} {
			v := feed(&j, time.Hour+5*time.Second+jump, 0, 1000*mib, 505*mib+more)
			if v.Gap == 0 || v.Full != 0 || v.Growing || v.Level > OK {
				t.Errorf("%s, %d more: gap %v, slope %.1f MB/s, full in %v, %v", name, more, v.Gap, v.Slope/mib, v.Full, v.Level)
			}
			jump *= 2
		}
	}
	var j Judge
	v := feed(&j, time.Hour, 100*time.Millisecond, 1000*mib, ramp(600*mib, 2*mib, 30)...)
	if !v.Growing {
		t.Fatal("not growing")
	}
	if v = feed(&j, time.Hour+3*time.Second+2500*time.Millisecond+v.Next, 0, 1000*mib, 700*mib); v.Gap == 0 || v.Growing {
		t.Errorf("starved for 2.5 s: gap %v, growing %v", v.Gap, v.Growing)
	}
}

// What is frozen has no slope, is looked at seldom and reaches no higher level; what
// is thawed starts anew.
func TestFrozen(t *testing.T) {
	var j Judge
	before := feed(&j, time.Hour, 100*time.Millisecond, 1000*mib, ramp(600*mib, 2*mib, 50)...)
	s := Sample{At: before.At + time.Second, Hard: 960 * mib, Max: 1000 * mib, SwapMax: Infinity, Frozen: true}
	v := j.Observe(&s)
	if v.Full != 0 || v.Growing || v.Level > before.Level || v.Next != tickMost || v.Now != OK {
		t.Errorf("frozen: %+v", v)
	}
	if v.Slope < 10*mib {
		t.Errorf("its slope was forgotten: %v", v.Slope)
	}
	s.At, s.Frozen, s.Hard = s.At+v.Next, false, 500*mib
	if v = j.Observe(&s); v.Gap != 0 || v.Growing || v.Full != 0 {
		t.Errorf("thawed: %+v", v)
	}
}

// A level is left five points below, after a while, and at once when the limit was
// raised.
func TestHysteresis(t *testing.T) {
	var j Judge
	now := time.Hour
	look := func(percent uint64, limit uint64, times int) (v Verdict) {
		v = feed(&j, now, time.Second, limit, repeat(percent*10*mib, times)...)
		now += time.Duration(times) * time.Second
		return v
	}
	const limit = 1000 * mib
	if v := look(82, limit, 4); v.Level != Warn {
		t.Fatalf("%v", v.Level)
	}
	if v := look(76, limit, 300); v.Level != Warn {
		t.Errorf("%v at 76 %%, four points below", v.Level)
	}
	if v := look(74, limit, 29); v.Level != Warn {
		t.Errorf("%v after 29 s", v.Level)
	}
	if v := look(74, limit, 3); v.Level != Notice || v.Now != Notice {
		t.Errorf("%v after 32 s", v.Level)
	}
	for percent := range uint64(15) {
		look(75+percent, limit, 6)
	}
	if v := look(91, limit, 1); v.Level != Critical {
		t.Errorf("%v", v.Level)
	}
	if v := look(91, 4000*mib, 1); v.Level != OK || v.Was != Critical {
		t.Errorf("%v with four times the room", v.Level)
	}
}

// The fourth rise within ten minutes keeps the level for twice as long.
func TestFlapping(t *testing.T) {
	var j Judge
	now := time.Hour
	look := func(percent uint64, times int) (v Verdict) {
		v = feed(&j, now, time.Second, 1000*mib, repeat(percent*10*mib, times)...)
		now += time.Duration(times) * time.Second
		return v
	}
	for i := range 4 {
		if v := look(82, 4); v.Level != Warn {
			t.Fatalf("%v at rise %d", v.Level, i)
		}
		if v := look(50, 32); (v.Level >= Warn) != (i == 3) {
			t.Errorf("%v 32 s after rise %d", v.Level, i+1)
		}
	}
	if v := look(50, 35); v.Level >= Warn {
		t.Errorf("%v 67 s after the fourth rise", v.Level)
	}
}

// Pressure, the brake and the ceiling confirm what hard memory says; with page cache
// alone they say nothing.
func TestConfirmation(t *testing.T) {
	for name, c := range map[string]struct {
		hard, swap uint64 // percent
		change     func(*Sample, time.Duration)
		want       Level
		cause      Cause
	}{
		"stall at 65 %":           {65, 0, func(s *Sample, t time.Duration) { s.Pressure = Pressure{t / 5, 0} }, Warn, ByPressure},
		"stall at 10 %":           {10, 0, func(s *Sample, t time.Duration) { s.Pressure = Pressure{t, t} }, OK, ""},
		"all stalled, reclaiming": {65, 0, func(s *Sample, t time.Duration) { s.Pressure = Pressure{t / 5, t / 5}; s.Scans = uint64(t) }, Critical, ByPressure},
		"reclaiming cache": {10, 0, func(s *Sample, t time.Duration) {
			s.Pressure = Pressure{t / 2, t / 2}
			s.Scans, s.Refaults = uint64(t), uint64(t)
		}, OK, ""},
		"thrashing": {85, 0, func(s *Sample, t time.Duration) {
			s.Pressure = Pressure{t / 2, t / 2}
			s.Scans, s.Refaults = uint64(t), uint64(t)
		}, Emergency, ByPressure},
		"thrashing with room in swap": {85, 30, func(s *Sample, t time.Duration) {
			s.SwapRoom = gib
			s.Pressure = Pressure{t / 2, t / 2}
			s.Scans, s.Refaults = uint64(t), uint64(t)
		}, Emergency, ByPressure},
		"at the brake":                   {75, 0, func(s *Sample, t time.Duration) { s.Events.High, s.High = uint64(t), 740*mib }, Critical, ByEvents},
		"cache at the brake":             {20, 0, func(s *Sample, t time.Duration) { s.Events.High, s.High = uint64(t), 740*mib }, OK, ""},
		"cache at the ceiling":           {20, 0, func(s *Sample, t time.Duration) { s.Events.Max = uint64(t) }, OK, ""},
		"at the ceiling":                 {92, 0, func(s *Sample, t time.Duration) { s.Events.Max = uint64(t) }, Emergency, ByEvents},
		"swap full of cold pages":        {30, 100, func(*Sample, time.Duration) {}, OK, ""},
		"a full ceiling with swap room":  {99, 10, func(s *Sample, t time.Duration) { s.SwapRoom = 2 * gib }, OK, ""},
		"a full ceiling, little of swap": {99, 90, func(s *Sample, t time.Duration) { s.SwapRoom = 150 * mib }, Warn, BySize},
	} {
		var j Judge
		var v Verdict
		for i := range 200 {
			at := time.Duration(i) * 100 * time.Millisecond
			s := Sample{At: time.Hour + at, Done: time.Hour + at, Hard: c.hard * 10 * mib, Swap: c.swap * 10 * mib, Max: 1000 * mib, SwapMax: Infinity}
			c.change(&s, at)
			v = j.Observe(&s)
		}
		if v.Level != c.want || v.Cause != c.cause {
			t.Errorf("%s: %v by %q, want %v by %q", name, v.Level, v.Cause, c.want, c.cause)
		}
	}
}

func TestThrottled(t *testing.T) {
	var j Judge
	var v Verdict
	for i := range 120 {
		at := time.Duration(i) * 100 * time.Millisecond
		v = j.Observe(&Sample{At: at, Done: at, Hard: 500 * mib, Max: gib, High: 480 * mib, SwapMax: Infinity, Events: Events{High: uint64(i)}, Pressure: Pressure{at, at * 7 / 10}})
	}
	if v.Throttled < 11*time.Second || v.Throttled > 12*time.Second {
		t.Errorf("throttled for %v, want what has gone by", v.Throttled)
	}
	if v = j.Observe(&Sample{At: 14 * time.Second, Hard: 500 * mib, Max: gib, SwapMax: Infinity, Events: Events{High: 120}, Pressure: Pressure{12 * time.Second, 8 * time.Second}}); v.Throttled != 0 {
		t.Errorf("still throttled after 2 s without a stall: %v", v.Throttled)
	}
}

func TestTick(t *testing.T) {
	for name, c := range map[string]struct {
		hard  []uint64
		every time.Duration
		limit uint64
		want  time.Duration
	}{
		"no ceiling, at rest":      {repeat(mib, 10), time.Second, Infinity, 5 * time.Second},
		"far below":                {repeat(mib, 10), time.Second, 8 * gib, 5 * time.Second},
		"at rest below a low one":  {repeat(mib, 10), time.Second, 400 * mib, time.Second},
		"at rest at 98 %":          {repeat(980*mib, 10), time.Second, 1000 * mib, 250 * time.Millisecond},
		"moving":                   {ramp(mib, 2*mib, 10), time.Second, 8 * gib, time.Second},
		"full in 0.6 s":            {ramp(700*mib, 10*mib, 25), 100 * time.Millisecond, 1000 * mib, 150 * time.Millisecond},
		"full in a tenth a second": {ramp(700*mib, 10*mib, 25), 100 * time.Millisecond, 951 * mib, 100 * time.Millisecond},
	} {
		var j Judge
		v := feed(&j, time.Hour, c.every, c.limit, c.hard...)
		if v.Next < c.want*9/10 || v.Next > c.want*11/10 {
			t.Errorf("%s: %v, want %v (full in %v)", name, v.Next, c.want, v.Full)
		}
	}
}

func TestPeak(t *testing.T) {
	var j Judge
	feed(&j, time.Hour, time.Second, gib, 700*mib, 100*mib)
	if v := feed(&j, time.Hour+54*time.Minute, time.Second, gib, 100*mib); v.Peak != 700*mib {
		t.Errorf("%d after 54 min", v.Peak/mib)
	}
	if v := feed(&j, time.Hour+66*time.Minute, time.Second, gib, 100*mib); v.Peak != 100*mib {
		t.Errorf("%d after 66 min", v.Peak/mib)
	}
	if v := feed(&j, 100*time.Hour, time.Second, gib, 50*mib); v.Peak != 50*mib {
		t.Errorf("%d days later", v.Peak/mib)
	}
}

// anyWalk draws a demand that wanders, bursts and falls, sampled up to once a second.
func anyWalk(t *rapid.T) (at []time.Duration, demand []uint64) {
	now, n := time.Hour, rapid.Uint64Max(900*mib).Draw(t, "start")
	for range rapid.IntRange(10, 300).Draw(t, "samples") {
		now += time.Duration(rapid.Int64Range(int64(50*time.Millisecond), int64(time.Second)).Draw(t, "step"))
		by := rapid.Int64Range(-60*mib, 60*mib).Draw(t, "by")
		n = uint64(max(0, min(int64(n)+by, 1100*mib)))
		at, demand = append(at, now), append(demand, n)
	}
	return at, demand
}

func TestJudgeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at, demand := anyWalk(t)
		more := rapid.Uint64Max(200*mib).Draw(t, "more")
		var a, b Judge
		rises, fell := 0, at[0]-time.Hour
		for i := range at {
			s := Sample{At: at[i], Done: at[i], Hard: demand[i], Max: 1000 * mib, SwapMax: Infinity}
			v := a.Observe(&s)
			s.Hard += more
			w := b.Observe(&s)
			// Monotone: the same with more on top is no better.
			if w.Level < v.Level {
				t.Fatalf("at %v: %v with %d MiB, %v with %d more", at[i]-at[0], v.Level, demand[i]/mib, w.Level, more/mib)
			}
			// No level without cause.
			if v.Level > v.Was && v.Used < foreseen {
				t.Fatalf("%v at %.0f %%", v.Level, v.Used*100)
			}
			if v.Now > v.Level {
				t.Fatalf("%v now, and %v told", v.Now, v.Level)
			}
			// No flapping: a level that was left had not held for its time.
			if v.Level >= Warn && v.Was < Warn {
				rises++
				if at[i]-fell > time.Hour/2 && rises > 1 {
					t.Fatal("a rise without a fall")
				}
			}
			if v.Level < Warn && v.Was >= Warn {
				fell = at[i]
			}
			if v.Next < tickLeast || v.Next > tickMost {
				t.Fatalf("next after %v", v.Next)
			}
		}
		if most := 1 + int((at[len(at)-1]-at[0])/(30*time.Second)); rises > most {
			t.Fatalf("%d rises to a warning in %v", rises, at[len(at)-1]-at[0])
		}
	})
}

// Page cache, stalls and hits of limits alone never make a level.
func TestNoiseProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var j Judge
		var s Sample
		s.Max, s.High, s.SwapMax, s.At = 1000*mib, Infinity, Infinity, time.Hour
		for range rapid.IntRange(1, 100).Draw(t, "samples") {
			step := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(40*time.Second)).Draw(t, "step"))
			s.At += step
			s.Done = s.At
			s.Hard = rapid.Uint64Range(0, 490*mib).Draw(t, "hard")
			s.Soft = rapid.Uint64Max(gib).Draw(t, "soft")
			s.Pressure.Some += step
			s.Pressure.Full += step
			s.Events.High += rapid.Uint64Max(100).Draw(t, "high")
			s.Events.Max += rapid.Uint64Max(100).Draw(t, "max")
			s.Scans, s.Refaults = s.Scans+1000, s.Refaults+1000
			if v := j.Observe(&s); v.Level != OK {
				t.Fatalf("%v by %s at %.0f %%", v.Level, v.Cause, v.Used*100)
			}
		}
	})
}

// Nothing that can be read makes it panic or give nonsense.
func TestAnySample(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := Judge{Host: rapid.Bool().Draw(t, "host")}
		n := rapid.Uint64()
		d := rapid.Map(rapid.Int64(), func(n int64) time.Duration { return time.Duration(n) })
		for range 20 {
			s := Sample{At: d.Draw(t, "at"), Done: d.Draw(t, "done"), Hard: n.Draw(t, "hard"), Swap: n.Draw(t, "swap"), Max: n.Draw(t, "max"), SwapMax: n.Draw(t, "swapmax"),
				SwapRoom: n.Draw(t, "room"), Scans: n.Draw(t, "scans"), Refaults: n.Draw(t, "refaults"), Events: Events{High: n.Draw(t, "high"), Max: n.Draw(t, "events")},
				Pressure: Pressure{d.Draw(t, "some"), d.Draw(t, "full")}, Frozen: rapid.Bool().Draw(t, "frozen"), Bound: n.Draw(t, "bound")}
			v := j.Observe(&s)
			if !(v.Used >= 0 && v.Used <= 1) || v.Next < tickLeast || v.Next > tickMost || v.Full < 0 || v.Slope != v.Slope {
				t.Fatalf("%+v", v)
			}
		}
	})
}

func TestObserveDoesNotAllocate(t *testing.T) {
	var j Judge
	var c Crier
	p := Place{Kind: KindSession, Name: "a"}
	s := Sample{Max: 1000 * mib, SwapMax: Infinity}
	n := uint64(0)
	look := func() {
		n++
		s.At += 100 * time.Millisecond
		s.Done = s.At
		s.Hard = (400 + n%300) * mib
		s.Events.High++
		v := j.Observe(&s)
		c.Hear(p, &v)
	}
	for range 100 {
		look()
	}
	if got := testing.AllocsPerRun(1000, look); got > 0 {
		t.Errorf("%v allocations for a sample", got)
	}
}

func BenchmarkObserve(b *testing.B) {
	var j Judge
	s := Sample{Max: 1000 * mib, SwapMax: Infinity}
	n := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		n++
		s.At += 100 * time.Millisecond
		s.Done = s.At
		s.Hard = (400 + n%300) * mib
		j.Observe(&s)
	}
}

// Growth that a nearer limit will stop is no forecast for what is around it.
func TestBoundSilences(t *testing.T) {
	for bound, want := range map[uint64]Level{0: Warn, Infinity: Warn, 10 * mib: OK} {
		j := Judge{Host: true}
		var v Verdict
		for i := range uint64(50) {
			at := time.Hour + time.Duration(i)*100*time.Millisecond
			v = j.Observe(&Sample{At: at, Done: at, Hard: (550 + 2*i) * mib, Max: 1000 * mib, SwapMax: Infinity, Bound: bound})
		}
		if v.Level != want || (v.Full == 0) != (want == OK) {
			t.Errorf("bound %d: %v, full in %v; want %v", bound, v.Level, v.Full, want)
		}
	}
}

// A slow rise that has come to its end is no forecast any more.
func TestPlateau(t *testing.T) {
	var j Judge
	if v := feed(&j, time.Hour, time.Second, 1000*mib, ramp(400*mib, 4*mib, 60)...); v.Full == 0 {
		t.Fatal("a rise of 4 MB/s is not seen")
	}
	if v := feed(&j, time.Hour+time.Minute, time.Second, 1000*mib, repeat(640*mib, 8)...); v.Full != 0 || v.Growing {
		t.Errorf("8 s after its end: full in %v, %.1f MB/s", v.Full, v.Slope/mib)
	}
}

// What ended in a kill, or came near the ceiling, is not expected to come and go.
func TestLeakAgain(t *testing.T) {
	for name, first := range map[string]struct {
		to   uint64
		kill uint64
		want Level
	}{
		"a build":                {600 * mib, 0, OK},
		"it came near":           {850 * mib, 0, Warn},
		"it was killed half way": {600 * mib, 1, Warn},
	} {
		var j Judge
		now := time.Hour
		look := func(hard, kills uint64) Verdict {
			now += 100 * time.Millisecond
			return j.Observe(&Sample{At: now, Done: now, Hard: hard, Max: 1000 * mib, SwapMax: Infinity, Events: Events{OOMKill: kills}})
		}
		for n := uint64(mib); n < first.to; n += mib {
			look(n, 0)
		}
		for range 1200 { // two minutes at rest
			look(mib, first.kill)
		}
		var v Verdict
		for n := uint64(mib); n < 520*mib; n += 5 * mib { // 50 MB/s, full in less than 10 s
			v = look(n, first.kill)
		}
		if v.Level != first.want {
			t.Errorf("%s: %v by %q, full in %v; want %v", name, v.Level, v.Cause, v.Full, first.want)
		}
	}
}

// What a part of a place grew by that grows no more is no trend of the place; what the rest
// of it grew by still is.
func TestJudgeWithout(t *testing.T) {
	for rest, full := range map[float64]bool{0: false, 10: true} {
		var j Judge
		var v Verdict
		at := time.Hour
		for i := range 40 {
			n := uint64(400*mib) + uint64(float64(i)*(40+rest)*mib/4)
			v = j.Observe(&Sample{At: at, Done: at, Tier: TierCgroup, Hard: n, Max: 1000 * mib, High: Infinity, SwapMax: Infinity})
			at += 250 * time.Millisecond
		}
		if !v.Growing || v.Full == 0 || v.Full > 11*time.Second {
			t.Fatalf("before: %+v", v)
		}
		hard := v.Hard
		j.Without(40*mib, 390*mib)
		for i := range 3 {
			v = j.Observe(&Sample{At: at, Done: at, Tier: TierCgroup, Hard: hard + uint64(float64(i+1)*rest*mib/4), Max: 1000 * mib, High: Infinity, SwapMax: Infinity})
			at += 250 * time.Millisecond
			if grows := v.Full > 0; grows != full || full && (v.Slope < .7*rest*mib || v.Slope > 1.3*rest*mib) {
				t.Errorf("%v MiB/s go on: full in %v, %v MiB/s", rest, v.Full, v.Slope/mib)
			}
		}
	}
}
