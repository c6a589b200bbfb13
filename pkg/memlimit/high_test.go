package memlimit

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A place is parked at memory.high when it has filled it with what cannot be had back,
// meets it and stalls: not for page cache, not while it runs, and not for a moment.
func TestParked(t *testing.T) {
	const high = 200 * mib
	stalling := func(s *Sample, t time.Duration) {
		s.Hard, s.Events.High, s.Pressure = high+mib, uint64(t/(2*time.Second)), Pressure{t * 7 / 10, t * 7 / 10}
	}
	for name, c := range map[string]struct {
		change func(*Sample, time.Duration)
		parked bool
	}{
		"it stalls": {stalling, true},
		"it runs for 600 ms every 2 s": {func(s *Sample, t time.Duration) {
			stalling(s, t)
			stall := t/(2*time.Second)*1400*time.Millisecond + min(t%(2*time.Second), 1400*time.Millisecond)
			s.Pressure = Pressure{stall, stall}
		}, true},
		"stalls are not counted": {func(s *Sample, t time.Duration) { stalling(s, t); s.Pressure = Pressure{} }, true},
		"no ceiling":             {func(s *Sample, t time.Duration) { stalling(s, t); s.Max = Infinity }, true},
		"page cache":             {func(s *Sample, t time.Duration) { stalling(s, t); s.Hard = 100 * mib }, false},
		"it is not met":          {func(s *Sample, t time.Duration) { stalling(s, t); s.Events.High = 7 }, false},
		"it gets on":             {func(s *Sample, t time.Duration) { stalling(s, t); s.Pressure = Pressure{t / 2, t / 10} }, false},
		"no memory.high":         {func(s *Sample, t time.Duration) { stalling(s, t); s.High = Infinity }, false},
		"frozen":                 {func(s *Sample, t time.Duration) { stalling(s, t); s.Frozen = true }, false},
		"met once, not counted": {func(s *Sample, t time.Duration) {
			stalling(s, t)
			s.Pressure, s.Events.High = Pressure{}, uint64(min(t/time.Second, 1))
		}, false},
	} {
		var j Judge
		var v Verdict
		for i := range 61 { // 30 s
			at := time.Duration(i) * 500 * time.Millisecond
			s := Sample{At: time.Hour + at, Done: time.Hour + at, Max: gib, High: high, SwapMax: Infinity}
			c.change(&s, at)
			if v = j.Observe(&s); v.Level >= Warn && at < 4*time.Second {
				t.Errorf("%s: %v after %v", name, v.Level, at)
			}
		}
		if c.parked != (v.Level == Warn && v.Cause == ByStall) || c.parked != (v.Parked > 20*time.Second) {
			t.Errorf("%s: %v by %q, parked for %v", name, v.Level, v.Cause, v.Parked)
		}
	}
}

// parked is a session that stands at the memory.high that its user wants.
func parked(c Candidate) (*Scene, *Verdict, *Candidate) {
	c.ID, c.Hard, c.Ceiling, c.High = "a", 210*mib, gib, 200*mib
	sc := stage(c)
	own := sc.own(0)
	own.High, own.Parked, own.Throttled, own.Level, own.Now = 200*mib, 8*time.Second, 10*time.Second, Warn, Warn
	return sc, own, &sc.Sessions[0]
}

// Where brakes are allowed nobody stands at a memory.high for more than ten seconds, but
// for who is frozen instead, and where lifting it would take from others.
func TestHighIsLifted(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Scene, *Verdict, *Candidate)
		want   []string
	}{
		"after 8 s":               {func(*Scene, *Verdict, *Candidate) {}, []string{"lift a"}},
		"after 7 s":               {func(_ *Scene, v *Verdict, _ *Candidate) { v.Parked = 7 * time.Second }, nil},
		"not asked for":           {func(_ *Scene, _ *Verdict, c *Candidate) { c.May = MayHold }, nil},
		"protected":               {func(_ *Scene, _ *Verdict, c *Candidate) { c.Protected = true }, nil},
		"frozen":                  {func(_ *Scene, _ *Verdict, c *Candidate) { c.Frozen = true }, nil},
		"somebody is attached":    {func(_ *Scene, _ *Verdict, c *Candidate) { c.Attached = true }, []string{"lift a"}},
		"the host is full":        {func(sc *Scene, _ *Verdict, _ *Candidate) { sc.Places[0].Level = Critical }, nil},
		"lifted already":          {func(_ *Scene, v *Verdict, c *Candidate) { v.High, c.Lifted = Infinity, true }, nil},
		"a note, and in force":    {func(_ *Scene, _ *Verdict, c *Candidate) { c.Lifted = true }, []string{"lift a"}},
		"no ceiling":              {func(_ *Scene, v *Verdict, _ *Candidate) { v.Max = Infinity }, []string{"lift a"}},
		"it may be frozen, later": {func(_ *Scene, _ *Verdict, c *Candidate) { c.May |= MayFreeze }, []string{"lift a"}},
		"it is frozen": {func(_ *Scene, v *Verdict, c *Candidate) {
			c.May |= MayFreeze
			v.Now, v.Level, v.RAM = Critical, Critical, .8
		}, []string{"freeze a"}},
	} {
		sc, own, a := parked(Candidate{May: MayBrake})
		c.change(sc, own, a)
		var l Ladder
		got := sc.decide(&l)
		if !slices.Equal(deeds(got), c.want) {
			t.Errorf("%s: %v, want %v", name, deeds(got), c.want)
		}
		for _, x := range got {
			if x.Do == Lift && (x.High != 200*mib || !strings.Contains(x.Reason, "its memory.high of 200 MiB for 8 s")) {
				t.Errorf("%s: %+v", name, x)
			}
		}
	}
}

// What was lifted is set again when less than 90 % of it has been in use for a while, by a
// guard that knows it from the record only, too; not soon after the lift, and not from who
// is in swap with it.
func TestHighIsSetAgain(t *testing.T) {
	sc, own, c := parked(Candidate{May: MayBrake})
	var l Ladder
	sc.decide(&l)
	own.High, own.Parked, own.Level, own.Now, c.Lifted = Infinity, 0, OK, OK, true
	var at time.Duration
	began := sc.Now
	c.Hard = 179 * mib
	for range 100 {
		sc.Now += time.Second
		if got := sc.decide(&l); len(got) > 0 {
			if at = sc.Now - began; !slices.Equal(deeds(got), []string{"restore a"}) || got[0].High != 200*mib {
				t.Fatalf("%+v", got)
			}
			break
		}
	}
	if at != brakeRest {
		t.Errorf("set again %v after it was lifted", at)
	}
	for name, x := range map[string]struct {
		change func(i int)
		at     int
	}{
		"a guard that comes anew": {func(int) {}, 11},
		"it fills it again at 5":  {func(i int) { c.Hard = []uint64{179, 181}[min(1, max(0, min(i, 10-i)-4))] * mib }, 16},
		"it is above":             {func(int) { c.Hard = 181 * mib }, 0},
		"it is in swap":           {func(int) { c.Hard, c.Swap = 100*mib, 100*mib }, 0},
		"it is frozen":            {func(int) { c.Frozen = true }, 0},
	} {
		l, at := Ladder{}, 0
		for i := 1; i <= 60 && at == 0; i++ {
			c.Hard, c.Swap, c.Frozen = 179*mib, 0, false
			x.change(i)
			sc.Now += time.Second
			if got := deeds(sc.decide(&l)); slices.Equal(got, []string{"restore a"}) {
				at = i
			}
		}
		if at != x.at {
			t.Errorf("%s: after %d s, want %d", name, at, x.at)
		}
	}
}
