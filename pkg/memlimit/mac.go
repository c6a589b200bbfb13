package memlimit

import "time"

// MacFigures are what macOS tells of a machine's memory; 0 is not told.
type MacFigures struct {
	Level      int     // of the kernel's own: 1 normal, 2 warn, 4 critical
	Total      uint64  // bytes of RAM
	Available  float64 // share of Total that can be had without compressing
	Compressor uint64  // bytes of RAM that compressed pages take
	// Compressed is how much the compressor holds of what it can, as a share.
	Compressed float64
	Swap       uint64 // bytes in swap
	SwapDisk   uint64 // bytes that swap can grow by
}

// Mac makes samples of a machine that runs macOS, for a [Judge] of a host. The zero value is one
// that has seen nothing.
//
// Bytes that are free say nothing there: the system fills its memory on purpose, and compresses what
// is not needed long before any is short. Its kernel goes by the share r of what is available in what
// is available or compressed (osfmk/vm/vm_pageout.c; facts/memory.md §2): below 0.50 it
// warns, below 0.343 it is critical, and when the compressor is full it kills whoever has most in
// it. That scale is laid over the one that hosts are judged by, so that each level begins where
// macOS's does: Hard is the share of Max that is used on it, and no count of bytes.
type Mac struct {
	swaps [60]swapAt // of the last minute
	next  int
}

type swapAt struct {
	at   time.Duration
	used uint64
}

// Shares at which the kernel acts, and from which on it is worth a notice.
const (
	macNotice   = .60
	macWarn     = .50
	macCritical = .343
	// macFull is how full the compressor may be; at 0.98 the kernel kills.
	macFull = .90
	// leastSwapDisk is what swap must be able to grow by while it grows.
	leastSwapDisk = 4 << 30
)

// Fill sets the amounts of a sample.
func (m *Mac) Fill(s *Sample, f *MacFigures) {
	th := thresholds()
	used := macUsed(f)
	switch {
	case f.Level >= 4:
		used = max(used, th[Critical].host)
	case f.Level >= 2:
		used = max(used, th[Warn].host)
	}
	if f.Compressed >= macFull || m.swapEnds(s.At, f) {
		used = max(used, th[Emergency].host)
	}
	s.Tier = TierHost
	s.Max, s.High, s.SwapMax = f.Total, Infinity, Infinity
	s.Hard, s.Anon, s.Soft = min(f.Total, scale(f.Total, used)+1), 0, 0 // rounded up, to reach what it stands for
	s.Swap = 0                                                          // it is in the scale
}

// macUsed lays the kernel's scale over ours.
func macUsed(f *MacFigures) float64 {
	available := scale(f.Total, min(1, max(0, f.Available)))
	if available == 0 {
		return 0 // the share was not told: the level has to do
	}
	r := float64(available) / float64(sum(available, f.Compressor))
	th := thresholds()
	points := [...][2]float64{{1, 0}, {macNotice, th[Notice].host}, {macWarn, th[Warn].host}, {macCritical, th[Critical].host}, {0, th[Emergency].host - .001}}
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		if r >= b[0] {
			return b[1] - (r-b[0])/(a[0]-b[0])*(b[1]-a[1])
		}
	}
	return points[len(points)-1][1]
}

// swapEnds says that swap grows, and that its disk will not take more of that.
func (m *Mac) swapEnds(now time.Duration, f *MacFigures) bool {
	least := f.Swap
	for _, s := range m.swaps {
		if s.at != 0 && now-s.at <= time.Minute {
			least = min(least, s.used)
		}
	}
	if last := m.swaps[(m.next+len(m.swaps)-1)%len(m.swaps)]; last.at == 0 || now-last.at >= time.Second {
		m.swaps[m.next] = swapAt{now, f.Swap}
		m.next = (m.next + 1) % len(m.swaps)
	}
	grown := f.Swap - least
	return grown > 0 && f.SwapDisk < max(leastSwapDisk, 2*grown)
}
