package memlimit

import "time"

// Tier says how a Usage was measured, from the most exact to the least.
type Tier string

// The tiers.
const (
	TierCgroup    Tier = "cgroup"    // the memory controller of cgroup v2
	TierCgroupV1  Tier = "cgroup1"   // that of cgroup v1
	TierProcesses Tier = "processes" // a sum over processes: memory they share may count once for each
	TierFootprint Tier = "footprint" // a sum of macOS physical footprints
	TierHost      Tier = "host"      // the machine's own figures
)

// Usage is what a box used. A nil figure could not be had here, which differs
// from 0.
type Usage struct {
	MemoryBytes *uint64        // hard memory now, see Stat.Hard
	PeakBytes   *uint64        // the most it was charged; page cache included where the kernel counts it
	SwapBytes   *uint64        // in swap now
	Pids        *uint64        // processes, and threads where the kernel counts those
	CPU         *time.Duration // user and system time of all processes that were ever in it
	OOMKills    *uint64        // processes that the kernel killed for want of memory
	Pressure    *float64       // share of the last ten seconds, percent, in which something in it waited for memory
	Tier        Tier
	Unseen      []string // memory that cannot be known when it is measured so, for people
}
