package memlimit

import "time"

// The forecast is that of facts/memory.md §3.3: least squares on demand over a
// short and a long time. Demand, not hard memory, as what the kernel swaps out
// did not shrink.
const (
	fastSpan = 5 * time.Second
	fastStep = 80 * time.Millisecond // points of these fill fastSpan
	slowSpan = time.Minute
	slowStep = 950 * time.Millisecond

	fastLeast = 2 * time.Second // growth for less is a burst
	slowLeast = 10 * time.Second
	leastLine = 4 // points

	farthest = time.Hour // beyond, nothing is foreseen
)

// leastGrowth is what a window must have grown by to count: 1 % of the capacity
// and 32 MiB, or less than that where the ceiling is low.
func leastGrowth(capacity uint64) int64 {
	if capacity == Infinity {
		return 32 << 20
	}
	return int64(max(min(32<<20, capacity/16), capacity/100))
}

// trend is where demand is going.
type trend struct {
	slope float64 // bytes per second
	// growing says that the slope can be relied on: demand rises, and has for long
	// enough and by enough.
	growing bool
}

// forecast looks at both windows. The fast one decides where it shows growth that
// goes on; a saturating start does not, as the smaller of all of the window and its
// later half counts; neither does one big allocation. Else the slow one does, while demand still rises at all: after
// a plateau was reached it would see a slope for a minute.
func (j *Judge) forecast(now time.Duration, capacity uint64) trend {
	need := leastGrowth(capacity)
	n := j.fast.since(now - fastSpan)
	fast, later := j.fast.line(n), j.fast.line((n+1)/2)
	if n >= leastLine && fast.span >= fastLeast && fast.steady && fast.even && fast.growth >= need && later.slope > 0 {
		rate := min(fast.slope, later.slope)
		if later.slope < fast.slope/2 { // what slows down goes on slowing down
			rate *= later.slope / fast.slope
		}
		return trend{rate, true}
	}
	m := j.slow.since(now - slowSpan)
	slow, recent := j.slow.line(m), j.slow.line((m+1)/2)
	rate := min(slow.slope, recent.slope)
	rising := fast.slope > rate/4
	if n < leastLine {
		rising = recent.growth > 0
	}
	// Minutes are what the slow window can tell; what it sees is less noisy, so that
	// half the growth will do.
	if m >= leastLine && slow.span >= slowLeast && rate > 0 && rising && slow.even && slow.growth >= need/2 {
		return trend{rate, true}
	}
	if n >= leastLine {
		return trend{slope: fast.slope}
	}
	return trend{slope: slow.slope}
}

// fullIn is when the headroom is used up at that rate, 0 if that is not foreseen.
func (t trend) fullIn(headroom uint64) time.Duration {
	if !t.growing || headroom == Infinity {
		return 0
	}
	left := float64(headroom) / t.slope * float64(time.Second)
	if left > float64(farthest) {
		return 0
	}
	return max(time.Duration(left), 1) // full now is not 0, which is never
}

// soon is when what is used up at the rate of the last step alone is foreseen to be: what
// fills 100 MB in a quarter of a second leaves no time for a trend.
const soon = 500 * time.Millisecond

// dash is when a place will be full at the rate of the last step alone, 0 if that was no
// growth to speak of.
func (j *Judge) dash(s *Sample, v *Verdict) time.Duration {
	const least = 20 * time.Millisecond
	step := s.At - j.prev.At
	if !j.known || j.fresh || v.Gap > 0 || j.prev.Frozen || step < least || v.Headroom == Infinity || s.Demand() <= j.prev.Demand() {
		return 0
	}
	grown := s.Demand() - j.prev.Demand()
	left := float64(v.Headroom) / float64(grown) * float64(step)
	if left > float64(farthest) || int64(grown) < leastGrowth(s.Max)/4 {
		return 0
	}
	return max(time.Duration(left), 1)
}

// returns notes what was held and given back: work that comes and goes, such as a
// build, is expected to do so again, and its growth is no news up to where it was and
// a tenth more. What came near the ceiling, or was killed, is no such work.
func (j *Judge) returns(s *Sample, v *Verdict) {
	demand := s.Demand()
	if demand < j.high/5*4 {
		if !j.risky && v.Since.OOMKill == 0 {
			j.gave.add(s.At, j.high)
		}
		j.high, j.risky = 0, false
	}
	j.high = max(j.high, demand)
	j.risky = j.risky || v.Used >= thresholds()[Warn].used
	j.gave.add(s.At, 0)
}

// expected says whether demand is within what was given back before.
func (j *Judge) expected(s *Sample) bool { return s.Demand() < scale(j.gave.most(), 1.1) }
