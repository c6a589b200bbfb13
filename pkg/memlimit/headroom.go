package memlimit

import (
	"math"
	"slices"
)

// What room in swap is worth: what goes to compressed memory stays in RAM in
// part.
const (
	WorthDisk = 1.0
	WorthZram = 0.6
)

// SpreadSwap sets SwapRoom of each sample of a path, which goes from the inside
// out: from a session over all that it lies in to the host. Everybody around has a
// say: the room is the least that any of them leaves, and what is free on the
// host. Worth is WorthDisk or WorthZram.
func SpreadSwap(path []*Sample, free uint64, worth float64) {
	free = scale(free, worth)
	for _, s := range slices.Backward(path) {
		if s.SwapMax != Infinity {
			free = min(free, scale(s.SwapMax-min(s.SwapMax, s.Swap), worth))
		}
		s.SwapRoom = free
	}
}

// RoomInside is for a place that others lie in: how much more they can take before limits
// of their own stop them, Infinity when something grows there that has none. Growth
// that will end at an inner limit is no forecast for the outer one.
//
// What has grown is told by amounts, of the same seconds for all. Slopes will not do: each
// is of a time of its own, and that of what was frozen is one that it had before.
func RoomInside(place *Verdict, inside []*Verdict) uint64 {
	var bound uint64
	rest := place.Grown
	for _, v := range inside {
		if v.Grown <= 0 || float64(v.Grown) < float64(place.Grown)*growingShare {
			continue
		}
		rest -= v.Grown
		bound = sum(bound, v.Headroom)
	}
	if rest > place.Grown/5 {
		return Infinity
	}
	return max(bound, 1)
}

// scale multiplies and stays in range.
func scale(n uint64, by float64) uint64 {
	f := float64(n) * by
	if f >= math.MaxUint64 {
		return math.MaxUint64
	}
	return uint64(f)
}
