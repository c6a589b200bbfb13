package memlimit

import "math"

// Stat is what matters of a cgroup's memory.stat, in bytes unless said.
type Stat struct {
	Anon              uint64 // process memory
	File              uint64 // page cache, Shmem included
	Shmem             uint64 // tmpfs and shared memory: not reclaimable without swap
	Kernel            uint64 // all kernel memory; since Linux 5.18, see HasKernel
	KernelStack       uint64
	Pagetables        uint64
	SecPagetables     uint64
	Percpu            uint64
	Sock              uint64 // socket buffers
	SlabReclaimable   uint64
	SlabUnreclaimable uint64
	Zswap             uint64 // RAM that compressed swap takes; part of Kernel
	InactiveFile      uint64
	ActiveFile        uint64
	Pgscan            uint64 // pages scanned for reclaim, a count
	RefaultAnon       uint64 // workingset_refault_anon, a count
	RefaultFile       uint64 // workingset_refault_file, a count

	HasKernel bool // Kernel was in the file
}

// field maps a key of memory.stat; nil for the many that do not matter.
func (s *Stat) field(key []byte) *uint64 {
	switch string(key) {
	case "anon":
		return &s.Anon
	case "file":
		return &s.File
	case "shmem":
		return &s.Shmem
	case "kernel":
		s.HasKernel = true
		return &s.Kernel
	case "kernel_stack":
		return &s.KernelStack
	case "pagetables":
		return &s.Pagetables
	case "sec_pagetables":
		return &s.SecPagetables
	case "percpu":
		return &s.Percpu
	case "sock":
		return &s.Sock
	case "slab_reclaimable":
		return &s.SlabReclaimable
	case "slab_unreclaimable":
		return &s.SlabUnreclaimable
	case "zswap":
		return &s.Zswap
	case "inactive_file":
		return &s.InactiveFile
	case "active_file":
		return &s.ActiveFile
	case "pgscan":
		return &s.Pgscan
	case "workingset_refault_anon":
		return &s.RefaultAnon
	case "workingset_refault_file":
		return &s.RefaultFile
	default:
		return nil
	}
}

// ParseStat reads memory.stat without allocating.
func ParseStat(b []byte) (Stat, error) {
	var s Stat
	err := ScanFlat(b, func(key []byte, value uint64) {
		if f := s.field(key); f != nil {
			*f = value
		}
	})
	return s, err
}

// Hard is the memory that cannot be had back without swapping or killing:
//
//	anon + shmem + (kernel − slab_reclaimable) + sock
//
// It is what sessions are judged by. memory.current also counts page cache and
// is many times too high after reading files. Where the kernel does not tell
// "kernel" (before 5.18), the parts of it that it does tell stand in.
func (s Stat) Hard() uint64 {
	kernel := s.Kernel
	if s.HasKernel {
		// The counters are not read at one instant: never below zero.
		kernel -= min(kernel, s.SlabReclaimable)
	} else {
		kernel = sum(s.SlabUnreclaimable, s.KernelStack, s.Pagetables, s.SecPagetables, s.Percpu, s.Zswap)
	}
	return sum(s.Anon, s.Shmem, kernel, s.Sock)
}

// Unseen names what the kernel does not tell, for people; nil from Linux 5.18 on.
func (s Stat) Unseen() []string {
	if s.HasKernel {
		return nil
	}
	return []string{"pipes and other pages of the kernel"}
}

// Hard is Stat.Hard for a memory.stat that ParseFlat has read.
func Hard(stat map[string]uint64) uint64 {
	var s Stat
	for key, value := range stat {
		if f := s.field([]byte(key)); f != nil {
			*f = value
		}
	}
	return s.Hard()
}

// sum adds and stays at the maximum instead of wrapping.
func sum(values ...uint64) uint64 {
	var total uint64
	for _, v := range values {
		if v > math.MaxUint64-total {
			return math.MaxUint64
		}
		total += v
	}
	return total
}

// Events are the counters of memory.events (or memory.events.local): how often
// each thing happened.
type Events struct {
	Low          uint64 // reclaimed although below memory.low
	High         uint64 // throttled at memory.high
	Max          uint64 // hit memory.max
	OOM          uint64 // an allocation failed at the limit
	OOMKill      uint64 // processes killed for it
	OOMGroupKill uint64 // cgroups killed for it; since Linux 5.17
}

// ParseEvents reads memory.events without allocating. Keys it does not know are
// passed over.
func ParseEvents(b []byte) (Events, error) {
	var e Events
	err := ScanFlat(b, func(key []byte, value uint64) {
		switch string(key) {
		case "low":
			e.Low = value
		case "high":
			e.High = value
		case "max":
			e.Max = value
		case "oom":
			e.OOM = value
		case "oom_kill":
			e.OOMKill = value
		case "oom_group_kill":
			e.OOMGroupKill = value
		}
	})
	return e, err
}

// since is what happened after the events before. Where a counter fell, the cgroup
// is another one, and all that it counts is new.
func (e Events) since(before Events) Events {
	d := func(now, then uint64) uint64 {
		if now < then {
			return now
		}
		return now - then
	}
	return Events{Low: d(e.Low, before.Low), High: d(e.High, before.High), Max: d(e.Max, before.Max), OOM: d(e.OOM, before.OOM),
		OOMKill: d(e.OOMKill, before.OOMKill), OOMGroupKill: d(e.OOMGroupKill, before.OOMGroupKill)}
}
