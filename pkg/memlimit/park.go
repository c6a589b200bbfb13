package memlimit

import "time"

// parkWarn is for how long a place is parked before it is warned of: who may lift
// memory.high does so at parkMost, and the warning comes before.
const parkWarn = 5 * time.Second

// How much of memory.high is filled with what cannot be had back by who stands at it, and
// by whom it can be set again: below that there is room to work in.
const (
	parkedFrom   = .95
	restoreBelow = .90
)

// atHigh says whether it is hard memory that meets memory.high. Page cache does, too, and
// makes way.
func (s *Sample) atHigh() bool {
	return s.High != Infinity && float64(s.Hard) >= parkedFrom*float64(s.High)
}

// FitsHigh says whether who has that much, swap included, can live with a memory.high: one
// that was lifted may be set again.
func FitsHigh(demand, high uint64) bool { return demand < scale(high, restoreBelow) }

// park tells for how long the place is parked at memory.high: it has filled it, the kernel
// counts that it was met, and everything stalls for half of the time. It stays so while it
// does for a quarter: the kernel lets it run for a moment every two seconds
// (mem_cgroup_handle_over_high, since 5.4). Where stalls are not counted (psi=0) the kernel
// must meet it again and again.
func (j *Judge) park(s *Sample, v *Verdict) {
	const again = 3 * time.Second // between two times that the kernel counts
	if v.Since.High > 0 {
		j.slowed = s.At
	}
	stalled := v.Throttled > 0 || j.parked != 0 && v.Stall >= .25
	if s.Pressure == (Pressure{}) { // with PSI, who was ever throttled has stalled
		stalled = j.slowed != 0 && s.At-j.slowed < again && s.Hard >= s.High
	}
	if s.Frozen || !stalled || !s.atHigh() || j.known && s.High != j.prev.High {
		j.parked = 0
		return
	}
	if j.parked == 0 {
		j.parked = max(s.At-v.Throttled, 1)
	}
	v.Parked = max(s.At-j.parked, 1)
}
