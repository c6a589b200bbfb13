package memlimit

import "time"

// Sample is what was read of one place at one time. Amounts are bytes; a limit
// that is not there is Infinity. Counters only grow; only how they change counts.
type Sample struct {
	// At and Done are the clock before and after reading. Any clock will do that
	// nobody can set: CLOCK_MONOTONIC.
	At, Done time.Duration
	Tier     Tier

	Hard uint64 // cannot be had back without swapping or killing, see Stat.Hard
	Swap uint64 // in swap
	// Soft could be had back at once: page cache and reclaimable slab.
	Soft uint64
	Anon uint64 // the part of Hard that can go to swap, where there is room

	Max     uint64 // the ceiling: of hard memory for our purposes
	High    uint64 // the brake
	SwapMax uint64
	// SwapRoom is how much more can go to swap from here, at what it is worth; see
	// SpreadSwap.
	SwapRoom uint64
	// Bound is how much more those inside can take before limits of their own stop
	// them, 0 where nothing is known of that; see Bound.
	Bound uint64

	Events   Events
	Pressure Pressure
	Scans    uint64 // pages looked at for reclaim
	Refaults uint64 // pages that were needed again soon after they were reclaimed

	Frozen bool
}

// Demand is what the place would hold if nothing had been swapped out.
func (s *Sample) Demand() uint64 { return sum(s.Hard, s.Swap) }

// Headroom is how much more the place can take before the kernel kills:
//
//	max − hard + room in swap
//
// Infinity where there is no ceiling, 0 for one that is exceeded.
func (s *Sample) Headroom() uint64 {
	if s.Max == Infinity {
		return Infinity
	}
	room := sum(s.Max, s.SwapRoom)
	return room - min(room, s.Hard)
}

// Used is which share of the ceiling the headroom does not cover: 0 with room for
// as much again, 1 when full, 0 without a ceiling. Swap that is full of cold pages
// does not count as use, only as room that is missing (nohang#105).
func (s *Sample) Used() float64 {
	if s.Max == Infinity {
		return 0
	}
	if s.Max == 0 {
		return 1
	}
	return 1 - min(1, float64(s.Headroom())/float64(s.Max))
}

// RAM is which share of the ceiling hard memory is, whatever room there is in swap.
func (s *Sample) RAM() float64 {
	switch s.Max {
	case Infinity:
		return 0
	case 0:
		return 1
	}
	return float64(s.Hard) / float64(s.Max)
}

// Of takes the figures of a cgroup's memory.stat.
func (s *Sample) Of(stat *Stat) {
	s.Hard = stat.Hard()
	s.Anon = stat.Anon
	s.Soft = sum(stat.File-min(stat.File, stat.Shmem), stat.SlabReclaimable)
	s.Scans = stat.Pgscan
	s.Refaults = sum(stat.RefaultAnon, stat.RefaultFile)
}
