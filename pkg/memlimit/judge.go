package memlimit

import "time"

// Judge watches one place and says how near it is to running out of memory. Its
// zero value is one for a ceiling; set Host for the machine. It is no larger than a
// few pages and allocates nothing. The order of things is that of facts/memory.md
// §3: size and slope decide, as without swap pressure never shows before the kernel
// kills; pressure alone is never a level.
type Judge struct {
	// Host judges by what is left of a machine's memory.
	Host bool

	fast, slow window
	prev       Sample
	asked      time.Duration // how long after prev we wanted to be asked again
	known      bool          // there is a prev

	entered [levels]time.Duration // since when use is that high without a break
	above   [levels]bool
	active  [levels]bool
	stayed  [levels]time.Duration // when an active level last held
	cause   [levels]Cause         // what it holds by

	flaps     [flapLimit + 1]time.Duration // the last rises to Warn
	flap      int
	throttled time.Duration // since when the brake holds everything, 0 if it does not
	parked    time.Duration // since when it is parked at memory.high, 0 if it is not
	slowed    time.Duration // when the kernel last counted that memory.high was met
	moved     time.Duration // when demand was last seen to grow
	fresh     bool          // the past was dropped after prev
	peak      peaks
	slope     float64 // as it was when last known
	high      uint64  // most demand since it last fell
	risky     bool    // and that came near the ceiling
	gave      peaks   // most demand that was given back
}

// More than flapLimit rises within flapSpan double the time that levels are kept.
const (
	flapLimit = 3
	flapSpan  = 10 * time.Minute
)

// tooLong is how much later than asked for a sample may come. Beyond, the machine
// was paused or we were starved, and what lies between is not known: a slope over it
// would be none.
const tooLong = 2 * time.Second

// Verdict is what a Judge makes of a sample.
type Verdict struct {
	At   time.Duration
	Tier Tier
	// Level is that with hysteresis, which is told; Now what holds at this instant,
	// which is acted on.
	Level, Now Level
	Was        Level // the Level before
	Cause      Cause // of Level; "" when OK

	Hard, Swap uint64
	Max        uint64 // Infinity: no ceiling
	Headroom   uint64 // Infinity: no ceiling
	SwapRoom   uint64
	Used       float64 // see Sample.Used
	RAM        float64 // see Sample.RAM
	Peak       uint64  // most hard memory within the last hour

	Slope   float64       // of demand, bytes per second; may be negative. Of what is frozen, as it was
	Growing bool          // Slope can be relied on, and it grows
	Full    time.Duration // until the headroom is used up, 0 when that is not foreseen
	Grown   int64         // by how much demand grew in the last five seconds, as far as known

	Some, Stall float64 // shares of the last seconds that some, or all, stalled for memory
	Thrashing   bool    // memory is reclaimed only to be needed again
	// Throttled is for how long the brake has held everything: it is not a place to
	// rest in (facts/memory.md, fact 3).
	Throttled time.Duration
	// High is memory.high; Parked for how long the place stands at it, filled with what
	// cannot be had back, and gets on by next to nothing.
	High   uint64
	Parked time.Duration
	Since  Events // what happened since the sample before
	Frozen bool

	// Gap is how long nothing was known before this sample, if that was too long: the
	// past is forgotten and there is no slope yet.
	Gap time.Duration
	// Next is how long after this sample the next one should be taken, unless
	// something happens before.
	Next time.Duration
}

// Observe takes a sample and gives the verdict. Samples come in the order of time.
func (j *Judge) Observe(s *Sample) Verdict {
	v := Verdict{At: s.At, Tier: s.Tier, Was: j.level(), Hard: s.Hard, Swap: s.Swap, Max: s.Max, Frozen: s.Frozen,
		Headroom: s.Headroom(), SwapRoom: s.SwapRoom, Used: s.Used(), RAM: s.RAM(), High: s.High}
	j.follow(s, &v)
	p := point{at: s.At, done: s.Done, demand: s.Demand(), some: s.Pressure.Some, full: s.Pressure.Full, scans: s.Scans, refaults: s.Refaults}
	var dash time.Duration
	if s.Frozen {
		v.Slope = j.slope
	} else {
		j.fast.add(&p)
		j.slow.add(&p)
		if n := j.fast.since(s.At - fastSpan); n > 0 {
			v.Grown = int64(s.Demand() - j.fast.last(n-1).demand)
		}
		t := j.forecast(s.At, s.Max)
		v.Slope, v.Growing = t.slope, t.growing
		v.Full = t.fullIn(v.Headroom)
		if dash = j.dash(s, &v); dash > 0 && dash <= soon {
			v.Full = dash
		}
		if s.Bound != 0 && s.Bound < v.Headroom {
			v.Full = 0
		}
		j.slope = v.Slope
		j.returns(s, &v)
	}
	j.stalls(&p, &v)
	j.park(s, &v)
	j.decide(s, &v)
	j.peak.add(s.At, s.Hard)
	v.Peak = j.peak.most()
	if j.known && s.Demand() > j.prev.Demand()+uint64(leastGrowth(s.Max))/64 {
		j.moved = s.At
	}
	v.Next = j.tick(s, &v, dash)
	j.prev, j.known, j.asked, j.fresh = *s, true, v.Next, false
	return v
}

// Expect says that the next sample comes that long after the last one, as who reads has
// more to do than this place: it is no gap then.
func (j *Judge) Expect(in time.Duration) { j.asked = max(j.asked, in) }

// Calm says that until then the place has not grown since the sample before, which is
// known by other means: the growth that the next one shows came after that.
func (j *Judge) Calm(until time.Duration) {
	if j.known && until > j.prev.At {
		j.prev.At, j.prev.Done = until, until
	}
}

// Forget drops the past, but not the levels: for who has just changed what is in
// use, by a reclaim for instance. A gap in time, a freeze, a thaw and another limit
// are noticed without it.
func (j *Judge) Forget() {
	j.fresh = true
	j.fast.clear()
	j.slow.clear()
}

// Without says that a part of what is in use, which has grown by slope bytes a second up to
// that amount, grows no more: what the past says is then what the rest of it did.
func (j *Judge) Without(slope float64, amount uint64) {
	if slope <= 0 || !j.known {
		return
	}
	j.fresh = true
	for _, w := range []*window{&j.fast, &j.slow} {
		for i := range w.n {
			p := w.last(i)
			p.demand = sum(p.demand, min(amount, scale(1, slope*max(0, (j.prev.At-p.at).Seconds()))))
		}
	}
}

// follow compares with the sample before.
func (j *Judge) follow(s *Sample, v *Verdict) {
	if !j.known {
		return
	}
	p := &j.prev
	// What reading took is no gap: it was known that long what it came to.
	if gap := s.At - max(p.At, p.Done); s.At < p.At || gap > j.asked+tooLong {
		v.Gap = max(gap, -gap)
		j.Forget()
		j.above = [levels]bool{} // it is not known that it lasted
		j.throttled, j.parked, j.slowed = 0, 0, 0
	}
	if s.Frozen != p.Frozen {
		j.Forget()
	}
	if s.Max != p.Max || s.SwapMax != p.SwapMax {
		j.Forget()
		// What was true under another limit keeps no level: more room is seen at once.
		for l := range j.stayed {
			j.stayed[l] = s.At - time.Hour
		}
	}
	if s.High != p.High { // who was stalled by it is not, or by another
		for l := range j.stayed {
			if j.cause[l] == ByStall {
				j.stayed[l] = s.At - time.Hour
			}
		}
	}
	v.Since = s.Events.since(p.Events)
}

// holds says by what a level holds, "" if it does not. Staying takes less than
// reaching it.
func (j *Judge) holds(l Level, s *Sample, v *Verdict, staying bool) Cause {
	th := thresholds()[l]
	used, left, least, stall := th.used, th.left, th.least, 1.0
	if j.Host {
		used = th.host
		if l == Warn {
			least -= slackHost
		}
	}
	if staying {
		used, least, stall = used-slackUsed, least-slackUsed, slackStall
		left = time.Duration(float64(left) * slackLeft)
	}
	scanning := j.scanning(s)
	switch {
	case v.Used >= used && (staying || j.Host || j.above[l] && s.At-j.entered[l] >= th.dwell):
		return BySize
	case l < Critical && j.expected(s):
	case v.Full > 0 && v.Full < left && v.Used >= least, v.Full > 0 && v.Full < th.soon && v.Used >= foreseen:
		return BySlope
	}
	// The rest only confirms what hard memory says: page cache alone also makes a
	// cgroup reclaim, stall and hit its brake (facts/memory.md, fact 2).
	switch l {
	case Warn:
		if v.Parked >= parkWarn || staying && v.Parked > 0 {
			return ByStall
		}
		// A host's stalls are also those of a session at its own limit or brake: it does not
		// reclaim for them itself.
		if v.Some >= .10*stall && v.RAM >= .60 && (!j.Host || scanning) {
			return ByPressure
		}
	case Critical:
		if v.Stall >= .10*stall && scanning && v.RAM >= .60 {
			return ByPressure
		}
		// A brake is there for page cache, too: it says something only about who has filled it
		// with what cannot be had back.
		if v.Since.High > 0 && v.RAM >= .70 && (s.High == Infinity || float64(s.Hard) >= .90*float64(s.High)) {
			return ByEvents
		}
	case Emergency:
		if v.Since.Max > 0 && v.RAM >= .90 {
			return ByEvents
		}
		if v.Thrashing && v.RAM >= .80 {
			return ByPressure
		}
	}
	return ""
}

// decide finds the levels. Each is a trigger of its own: it is reached with all
// below it when its condition holds, and left when its relaxed condition did not for
// a while.
func (j *Judge) decide(s *Sample, v *Verdict) {
	th := thresholds()
	if !s.Frozen { // what is frozen reaches nothing new
		for l := Emergency; l > OK; l-- {
			used := th[l].used
			if over := v.Used >= used; over != j.above[l] {
				j.above[l], j.entered[l] = over, s.At
			}
			c := j.holds(l, s, v, false)
			if c == "" {
				continue
			}
			v.Now = max(v.Now, l)
			for k := l; k > OK; k-- {
				if !j.active[k] || k == l {
					j.cause[k] = c
				}
				j.active[k], j.stayed[k] = true, s.At
			}
		}
	}
	for l := Notice; l <= Emergency; l++ {
		if !j.active[l] {
			continue
		}
		if c := j.holds(l, s, v, true); c != "" {
			j.stayed[l] = s.At
		} else if s.At-j.stayed[l] >= j.keep(l, s.At) {
			j.active[l] = false
		}
	}
	v.Level = j.level()
	if v.Level > OK {
		v.Cause = j.cause[v.Level]
	}
	if v.Level >= Warn && v.Was < Warn {
		j.flaps[j.flap] = s.At
		j.flap = (j.flap + 1) % len(j.flaps)
	}
}

// keep is for how long a level is kept that does not hold any more.
func (j *Judge) keep(l Level, now time.Duration) time.Duration {
	clear := thresholds()[l].clear
	if oldest := j.flaps[j.flap]; oldest != 0 && now-oldest < flapSpan {
		return 2 * clear
	}
	return clear
}

// level is the highest that is active. A lower one is whenever a higher one is, or
// was left later.
func (j *Judge) level() Level {
	for l := Emergency; l > OK; l-- {
		if j.active[l] {
			return l
		}
	}
	return OK
}
