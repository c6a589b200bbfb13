package memlimit

import "time"

// Bounds of how often a place is looked at. The kernel wakes us when a limit is
// hit; looking is for what comes before that.
const (
	tickLeast  = 100 * time.Millisecond // also the rest between two samples that were woken for
	tickNear   = 250 * time.Millisecond
	tickActive = time.Second
	tickMost   = 5 * time.Second
)

// rush is how fast memory is reckoned to be used up by what was at rest until now:
// what a few processes can touch in a second, twice, so that there is a look in
// between. (earlyoom reckons with 6 GB/s, as it looks for the last page.)
const rush = 800 << 20

// tick is how long after s the next sample should be taken: a quarter of the time
// until it is full, and in any case not so long that it can be filled in between. A
// place with no ceiling, or frozen, is looked at seldom, and one that does not move
// at most once a second: what it might do in between is seen by Glance. Dash is when it is
// full at the rate of the last step.
func (j *Judge) tick(s *Sample, v *Verdict, dash time.Duration) time.Duration {
	if s.Frozen {
		return tickMost
	}
	next := tickMost
	if v.Headroom != Infinity {
		next = max(tickNear, time.Duration(float64(v.Headroom)/rush*float64(time.Second)))
	}
	switch {
	case v.Level > OK || v.Used >= .50 || v.Growing || j.moved != 0 && s.At-j.moved < fastSpan:
		next = min(next, tickActive)
	default:
		next = max(next, tickActive)
	}
	if v.Parked > 0 || s.atHigh() && v.Since.High > 0 { // the kernel tells of it every two seconds
		next = min(next, tickActive/2)
	}
	if v.Full > 0 {
		next = min(next, max(tickLeast, v.Full/4))
	}
	if dash > 0 {
		next = min(next, max(tickLeast, dash/4))
	}
	return min(next, tickMost)
}

// Glance says how often what the machine has left should be looked at while a place with
// that much headroom is at rest, 0 if its own looks will do: one cheap look for all of
// them, as all that any of them takes is missing there. A burst that fills 400 MB takes
// half a second.
func Glance(headroom uint64) time.Duration {
	if headroom == Infinity {
		return 0
	}
	every := max(tickNear, time.Duration(float64(headroom)/rush/2*float64(time.Second)))
	if every >= tickActive {
		return 0
	}
	return every
}

// Stirs says whether it was one of the places with that much headroom that may have taken
// what is missing since the last glance: at that rate it is full before long.
func Stirs(headroom, missing uint64) bool {
	const looks = 16 // glances until it is full
	return missing > 0 && missing >= headroom/looks
}

// Look is a sample's cheap half: whether memory.current, which costs a tenth of
// memory.stat, has moved enough for the latter to be read. The zero value asks for
// it.
type Look struct {
	current uint64
	skipped int
}

// Want says whether memory.stat should be read, of a place with that much charged
// and that ceiling: when half of the ceiling is charged, when it moved by 2 %, and
// at least every tenth time.
func (l *Look) Want(current, limit uint64) bool {
	moved := max(current, l.current) - min(current, l.current)
	if l.current != 0 && l.skipped < 9 && current < limit/2 && moved <= l.current/50 {
		l.skipped++
		return false
	}
	l.current, l.skipped = current, 0
	return true
}
