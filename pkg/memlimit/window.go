package memlimit

import "time"

// points is how many a window holds.
const points = 64

// window is the recent past of a place: its last so many samples, at least step
// apart. It does not allocate.
type window struct {
	step time.Duration
	ring [points]point
	next int // where the next point goes
	n    int
}

// point is what a window keeps of a sample.
type point struct {
	at, done        time.Duration
	demand          uint64
	some, full      time.Duration
	scans, refaults uint64
}

// add takes a point, unless the last one is nearer than step.
func (w *window) add(p *point) {
	if w.n > 0 && p.at-w.last(0).at < w.step {
		return
	}
	w.ring[w.next] = *p
	w.next = (w.next + 1) % points
	w.n = min(w.n+1, points)
}

func (w *window) clear() { w.n = 0 }

// last is the point i before the newest.
func (w *window) last(i int) *point { return &w.ring[(w.next-1-i+2*points)%points] }

// since counts the points that are not older than that.
func (w *window) since(at time.Duration) int {
	n := 0
	for n < w.n && w.last(n).at >= at {
		n++
	}
	return n
}

// line is what the newest n points look like.
type line struct {
	n      int
	span   time.Duration
	slope  float64 // bytes per second, by least squares
	growth int64   // from the first to the last, bytes
	steady bool    // at least four of five steps do not fall
	even   bool    // no single step is most of the growth
}

func (w *window) line(n int) line {
	l := line{n: n}
	if n < 2 {
		return l
	}
	newest, oldest := w.last(0), w.last(n-1)
	l.span = newest.at - oldest.at
	l.growth = int64(newest.demand - oldest.demand)
	// Relative to the newest point: squares of uptimes would eat the digits.
	var sx, sy, sxx, sxy float64
	falls, most := 0, int64(0)
	for i := range n {
		p := w.last(i)
		x := (p.at - newest.at).Seconds()
		y := float64(int64(p.demand - newest.demand))
		sx, sy, sxx, sxy = sx+x, sy+y, sxx+x*x, sxy+x*y
		if i > 0 {
			by := int64(w.last(i-1).demand - p.demand)
			most = max(most, by)
			if by < 0 {
				falls++
			}
		}
	}
	k := float64(n)
	if d := k*sxx - sx*sx; d > 0 {
		l.slope = (k*sxy - sx*sy) / d
	}
	l.steady = falls*5 <= n-1
	l.even = most <= l.growth/3*2
	return l
}
