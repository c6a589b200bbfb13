package memlimit

// Stat1 is what matters of a cgroup v1's memory.stat, with all that is below it
// (use_hierarchy), in bytes.
type Stat1 struct {
	RSS      uint64 // anonymous memory, huge pages included
	Shmem    uint64 // tmpfs and shared memory; part of Cache
	Cache    uint64
	Swap     uint64
	Limit    uint64 // the least of its own and its ancestors' limits; Infinity for none
	SwapMax  uint64 // the same of memory and swap together
	Refaults uint64
}

// noLimit1 is what v1 writes for no limit: the largest number of pages, for any
// page size.
const noLimit1 = MaxBytes &^ (maxPage - 1)

// ParseStat1 reads memory.stat of cgroup v1 without allocating.
func ParseStat1(b []byte) (Stat1, error) {
	s := Stat1{Limit: Infinity, SwapMax: Infinity}
	limit := func(n uint64) uint64 {
		if n >= noLimit1 {
			return Infinity
		}
		return n
	}
	err := ScanFlat(b, func(key []byte, n uint64) {
		switch string(key) {
		case "total_rss":
			s.RSS = n
		case "total_shmem":
			s.Shmem = n
		case "total_cache":
			s.Cache = n
		case "total_swap":
			s.Swap = n
		case "hierarchical_memory_limit":
			s.Limit = limit(n)
		case "hierarchical_memsw_limit":
			s.SwapMax = limit(n)
		case "total_workingset_refault_anon", "total_workingset_refault_file":
			s.Refaults = sum(s.Refaults, n)
		}
	})
	return s, err
}

// Fill sets the amounts of a sample. Kernel is memory.kmem.usage_in_bytes, 0 where
// that is not there; v1 does not say how much of it could be had back, so that hard
// memory is rather too high than too low by that.
func (s Stat1) Fill(to *Sample, kernel uint64) {
	to.Tier = TierCgroupV1
	to.Hard = sum(s.RSS, s.Shmem, kernel)
	to.Anon = s.RSS
	to.Swap = s.Swap
	to.Soft = s.Cache - min(s.Cache, s.Shmem)
	to.Max, to.High = s.Limit, Infinity
	to.SwapMax = Infinity
	if s.SwapMax != Infinity && s.Limit != Infinity {
		to.SwapMax = s.SwapMax - min(s.SwapMax, s.Limit) // v1 counts both together
	}
	to.Refaults = s.Refaults
}

// ParseOOMControl reads how many processes the kernel killed for the limit of a v1
// cgroup (memory.oom_control, Linux 4.13), without allocating.
func ParseOOMControl(b []byte) (kills uint64, err error) {
	err = ScanFlat(b, func(key []byte, n uint64) {
		if string(key) == "oom_kill" {
			kills = n
		}
	})
	return kills, err
}
