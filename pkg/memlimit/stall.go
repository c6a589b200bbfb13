package memlimit

import "time"

// stalls tells the pressure since some seconds ago.
func (j *Judge) stalls(now *point, v *Verdict) {
	w := &j.fast
	if n := w.since(now.at - fastSpan); n > 1 {
		v.Some, v.Stall = stallRates(w.last(n-1), now)
	}
	const while = 10 * time.Second
	if n := j.slow.since(now.at - while); n > 1 {
		then := j.slow.last(n - 1)
		_, stall := stallRates(then, now)
		v.Thrashing = stall >= .40 && now.refaults > then.refaults && now.scans > then.scans
	}
	j.brake(now, v)
}

// brake tells for how long the place stands at its brake: for at least a second, all
// of it stalled for most of the time, and the kernel counted that as throttling.
func (j *Judge) brake(now *point, v *Verdict) {
	const while = 1500 * time.Millisecond
	n := j.fast.since(now.at - while)
	if n < 2 {
		j.throttled = 0
		return
	}
	then := j.fast.last(n - 1)
	_, stall := stallRates(then, now)
	switch {
	case v.Frozen || stall < .25:
		j.throttled = 0
	case j.throttled == 0 && stall > .50 && v.Since.High > 0:
		j.throttled = then.at
	}
	if j.throttled != 0 {
		v.Throttled = max(now.at-j.throttled, 1)
	}
}

// scanning says whether the kernel looked for memory to take within the last
// seconds.
func (j *Judge) scanning(s *Sample) bool {
	n := j.fast.since(s.At - fastSpan)
	return n > 1 && s.Scans > j.fast.last(n-1).scans
}
