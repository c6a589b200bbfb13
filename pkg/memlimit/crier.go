package memlimit

import "time"

// Change is why a Crier speaks.
type Change string

// The changes.
const (
	Raised   Change = "raised"   // a higher level
	Repeated Change = "repeated" // the same level, after a while, much worse, or by another cause
	Eased    Change = "eased"    // a lower level
	Cleared  Change = "cleared"  // nothing is the matter any more
)

// Telling is one thing to be told of a place: an event, and a warning unless Quiet.
type Telling struct {
	Change Change
	Level  Level
	Was    Level // what was told before
	Cause  Cause
	// Quiet ones are for the log and the record only: notices and relief.
	Quiet bool
	// Began is when the place was last at ease, Peak the most hard memory since.
	Began time.Duration
	Peak  uint64
	// LeftOut counts what was not told, of any place, since the last warning.
	LeftOut int
}

// How often a Crier speaks.
const (
	repeatAfter = 5 * time.Minute  // earlyoom#355
	repeatWorse = .05              // or when that much more is used
	repeatLeast = 30 * time.Second // but not as often as that
	loudRate    = 6                // warnings a minute, of all places together
	loudSpared  = 2                // of those, for emergencies only
	quietRate   = 60               // the rest, a minute
)

// Crier says which verdicts are told: one event for each change of level, the same
// not again and again, and no flood whatever happens. What is left out for that is
// told later, if it still is so. It keeps a little for each place until Drop. Its
// zero value is ready.
type Crier struct {
	told        map[Place]*told
	loud, quiet bucket
	leftOut     int
}

// told is what was last said of a place.
type told struct {
	level Level
	used  float64
	at    map[Cause]time.Duration // when, by cause
	began time.Duration
	peak  uint64
	// waiting says that there is something to tell that was left out.
	waiting bool
}

// Hear takes the verdict on a place; not ok when there is nothing to tell. It
// allocates only when a place is new to it or there is.
func (c *Crier) Hear(p Place, v *Verdict) (t Telling, ok bool) {
	last := c.told[p]
	if last == nil {
		if v.Level == OK {
			return Telling{}, false
		}
		last = &told{at: map[Cause]time.Duration{}}
		if c.told == nil {
			c.told = map[Place]*told{}
		}
		c.told[p] = last
	}
	if v.Level == OK && last.level == OK { // it was over before it could be told
		delete(c.told, p)
		return Telling{}, false
	}
	if last.began == 0 {
		last.began = max(v.At, 1)
	}
	last.peak = max(last.peak, v.Hard)
	t = Telling{Level: v.Level, Was: last.level, Cause: v.Cause, Began: last.began, Peak: last.peak}
	at, said := last.at[v.Cause]
	switch {
	case v.Level > last.level:
		t.Change, t.Quiet = Raised, v.Level < Warn
	case v.Level == OK && last.level > OK:
		t.Change, t.Quiet = Cleared, last.level < Warn
	case v.Level < last.level:
		t.Change, t.Quiet = Eased, true
	case v.Level < Warn:
		return Telling{}, false
	case !said, v.At-at >= repeatAfter, v.Used >= last.used+repeatWorse && v.At-at >= repeatLeast:
		t.Change = Repeated
	default:
		return Telling{}, false
	}
	if !c.may(&t, v.At) {
		if !last.waiting && !t.Quiet {
			c.leftOut++
		}
		last.waiting = true
		return Telling{}, false
	}
	if last.waiting && !t.Quiet {
		c.leftOut = max(0, c.leftOut-1) // told after all; another may have told of it meanwhile
	}
	last.waiting = false
	if !t.Quiet {
		t.LeftOut, c.leftOut = c.leftOut, 0
	}
	if t.Change == Raised {
		clear(last.at)
	}
	last.level, last.used = v.Level, v.Used
	last.at[v.Cause] = v.At
	if v.Level == OK {
		delete(c.told, p)
	}
	return t, true
}

// Drop forgets a place that is no more.
func (c *Crier) Drop(p Place) { delete(c.told, p) }

// may says whether there is room for one more.
func (c *Crier) may(t *Telling, now time.Duration) bool {
	if t.Quiet {
		return c.quiet.take(now, quietRate, 0)
	}
	spared := loudSpared
	if t.Level == Emergency {
		spared = 0
	}
	return c.loud.take(now, loudRate, spared)
}

// bucket lets so many through in any minute.
type bucket struct {
	at [quietRate]time.Duration // when the last ones went through
	n  int
}

// take says whether one more may go through, leaving room for spared others.
func (b *bucket) take(now time.Duration, rate, spared int) bool {
	rate = min(rate, len(b.at))
	if k := rate - spared; b.n >= k {
		if past := b.at[(b.n-k)%len(b.at)]; now-past < time.Minute && now >= past {
			return false
		}
	}
	b.at[b.n%len(b.at)] = now
	b.n++
	return true
}
