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

// Least finds the place of a path with the least headroom: a limit binds with all
// that is in it, however much the places inside are allowed (automemlimit#31). Of
// equal ones the innermost is told.
func Least(path []*Sample) (at int, headroom uint64) {
	headroom = Infinity
	for i, s := range path {
		if h := s.Headroom(); i == 0 || h < headroom {
			at, headroom = i, h
		}
	}
	return at, headroom
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

// JudgedBy finds which of the places around a session it is to be judged by: the
// one of the highest level; of equal ones the one with the least headroom, the
// innermost of those. The verdicts go from the inside out.
func JudgedBy(path []*Verdict) int {
	best := 0
	for i, v := range path {
		b := path[best]
		if v.Level > b.Level || v.Level == b.Level && v.Headroom < b.Headroom {
			best = i
		}
	}
	return best
}

// scale multiplies and stays in range.
func scale(n uint64, by float64) uint64 {
	f := float64(n) * by
	if f >= math.MaxUint64 {
		return math.MaxUint64
	}
	return uint64(f)
}
