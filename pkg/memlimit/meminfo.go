package memlimit

import "bytes"

// Host is what is known of the machine's memory, in bytes.
type Host struct {
	Total, Available uint64 // Available: what can be had without swapping
	SwapTotal        uint64
	SwapFree         uint64
	Shmem, Anon      uint64
}

// ParseMeminfo reads /proc/meminfo without allocating.
func ParseMeminfo(b []byte) (Host, error) {
	var h Host
	err := scanKB(b, func(key []byte, bytes uint64) {
		switch string(key) {
		case "MemTotal":
			h.Total = bytes
		case "MemAvailable":
			h.Available = bytes
		case "SwapTotal":
			h.SwapTotal = bytes
		case "SwapFree":
			h.SwapFree = bytes
		case "Shmem":
			h.Shmem = bytes
		case "AnonPages":
			h.Anon = bytes
		}
	})
	return h, err
}

// Reserve is what of the machine's memory is not to be planned with: 5 %, at least
// 64 MiB, at most 1 GiB.
func (h Host) Reserve() uint64 { return min(h.Total, max(64<<20, min(h.Total/20, 1<<30))) }

// Fill sets the amounts of a sample to those of the machine: its ceiling is what
// there is but for the reserve, hard is what is not available. So its headroom is
// available − reserve + room in swap.
func (h Host) Fill(s *Sample) {
	s.Tier = TierHost
	s.Max, s.High, s.SwapMax = h.Total-h.Reserve(), Infinity, h.SwapTotal
	s.Hard = h.Total - min(h.Total, h.Available)
	s.Swap = h.SwapTotal - min(h.SwapTotal, h.SwapFree)
	s.Anon = h.Anon
}

// ParseVmstat sets the counters of a sample from /proc/vmstat, without allocating.
func ParseVmstat(b []byte, s *Sample) error {
	var scans, refaults uint64
	err := ScanFlat(b, func(key []byte, n uint64) {
		switch string(key) {
		case "pgscan_kswapd", "pgscan_direct", "pgscan_khugepaged":
			scans = sum(scans, n)
		case "workingset_refault_anon", "workingset_refault_file", "workingset_refault": // one before 5.9
			refaults = sum(refaults, n)
		}
	})
	if err == nil {
		s.Scans, s.Refaults = scans, refaults
	}
	return err
}

// scanKB calls f for the lines "Key: number kB" of a file of procfs, with the number
// in bytes, and passes over others. It stops at one that has no number.
func scanKB(b []byte, f func(key []byte, bytes uint64)) error {
	for len(b) > 0 {
		line := b
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			line, b = b[:i], b[i+1:]
		} else {
			b = nil
		}
		i := bytes.IndexByte(line, ':')
		rest, ok := bytes.CutSuffix(line, []byte(" kB"))
		if i <= 0 || !ok || i >= len(rest) {
			continue
		}
		n, ok := parseUint(bytes.TrimLeft(rest[i+1:], " \t"))
		if !ok || n > MaxBytes>>10 {
			return errNumber(line)
		}
		f(line[:i], n<<10)
	}
	return nil
}
