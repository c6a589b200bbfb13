package memlimit

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
)

// Process is what one process holds, in bytes.
type Process struct {
	PID         int
	Anon, Shmem uint64
	Swap        uint64
	Exact       bool // shared memory is divided among those who share it
	RSS         uint64
	Leaf        string // of the box, where it runs
	Start       uint64 // clock ticks since boot: with PID, who it is
	Comm        string
}

// Hard is what it holds that cannot be had back.
func (p *Process) Hard() uint64 { return sum(p.Anon, p.Shmem) }

// ParseStatus sets the amounts from /proc/PID/status, without allocating. It costs
// 0.05 ms; what processes share counts once for each.
func (p *Process) ParseStatus(b []byte) error {
	p.Exact = false
	return scanKB(b, func(key []byte, n uint64) {
		switch string(key) {
		case "VmRSS":
			p.RSS = n
		case "RssAnon":
			p.Anon = n
		case "RssShmem":
			p.Shmem = n
		case "VmSwap":
			p.Swap = n
		}
	})
}

// ParseRollup sets the amounts from /proc/PID/smaps_rollup, without allocating. It
// tells what is shared but costs 11 ms for 300 MB, and stops the process meanwhile
// (facts/memory.md, fact 8): see Costly. Before Linux 5.4 there is no Pss_Anon; then
// the amounts stay as they are.
func (p *Process) ParseRollup(b []byte) error {
	var q Process
	found := false
	err := scanKB(b, func(key []byte, n uint64) {
		switch string(key) {
		case "Pss_Anon":
			q.Anon, found = n, true
		case "Pss_Shmem":
			q.Shmem = n
		case "SwapPss":
			q.Swap = n
		}
	})
	if err == nil && found {
		p.Anon, p.Shmem, p.Swap, p.Exact = q.Anon, q.Shmem, q.Swap, true
	}
	return err
}

// ParseStatm sets the amounts from /proc/PID/statm, which counts pages and does not
// say what of the shared ones is files: they are left out.
func (p *Process) ParseStatm(b []byte, pageSize uint64) error {
	var n [3]uint64 // size, resident, shared
	for i := range n {
		b = bytes.TrimLeft(b, " ")
		end := bytes.IndexAny(b, " \n")
		if end < 0 {
			end = len(b)
		}
		v, ok := parseUint(b[:end])
		if !ok || v > MaxBytes/max(1, pageSize) {
			return fmt.Errorf("statm %q has no number", clip(b))
		}
		n[i], b = v*pageSize, b[end:]
	}
	p.RSS, p.Anon, p.Shmem, p.Exact = n[1], n[1]-min(n[1], n[2]), 0, false
	return nil
}

const (
	// costlySize is how big a process may be to be asked for smaps_rollup: it stands
	// still meanwhile, some 40 ms for each GiB (facts/memory.md, fact 8).
	costlySize = 2 << 30
	// costlyShare is how much shared memory makes that worth it: most processes have
	// none, and are not asked.
	costlyShare = 1 << 20
)

// Costly says which of the processes, by index, are worth being read exactly: those that
// hold shared memory, the most first, but for those that are too big. One that is alone
// shares with nobody that counts. Whoever reads them bounds the time.
func Costly(all []Process) []int {
	if len(all) < 2 {
		return nil
	}
	var at []int
	for i := range all {
		if all[i].Shmem >= costlyShare && all[i].RSS < costlySize {
			at = append(at, i)
		}
	}
	slices.SortFunc(at, func(a, b int) int { return cmp.Compare(all[b].Shmem, all[a].Shmem) })
	return at
}

// UnseenInProcesses names what a sum over processes cannot know, for people.
func UnseenInProcesses() []string {
	return []string{"files in tmpfs that no process maps", "socket buffers and pipes", "memory of the kernel"}
}

// FillProcesses sets the amounts of a sample to the sum over processes: the tier
// where there is no controller. Max stays what it is, a ceiling that nobody enforces.
// Page cache, socket buffers and what the kernel holds are not known here.
func FillProcesses(s *Sample, all []Process) {
	s.Tier, s.High = TierProcesses, Infinity
	s.Hard, s.Anon, s.Swap, s.Soft = 0, 0, 0, 0
	for i := range all {
		p := &all[i]
		s.Hard, s.Anon, s.Swap = sum(s.Hard, p.Hard()), sum(s.Anon, p.Anon), sum(s.Swap, p.Swap)
	}
}
