package darwinjob

import "fmt"

// Pressure is how short of memory the machine is, as macOS says it. What a kernel does not tell is 0.
type Pressure struct {
	Level            int    // 1 normal, 2 warn, 4 critical (kern.memorystatus_vm_pressure_level)
	AvailablePercent int    // kern.memorystatus_level
	TotalBytes       uint64 // hw.memsize
	CompressorBytes  uint64 // RAM that compressed pages take (vm.compressor_bytes_used)
	// CompressedPages are the pages that the compressor holds, CompressedLimit is how many it can:
	// short of that the kernel kills whoever has most of them.
	CompressedPages, CompressedLimit uint64
	SwapUsedBytes                    uint64 // vm.swapusage
	// SwapDiskBytes are free on the volume that the swap files are on: they grow as needed.
	SwapDiskBytes uint64
}

// parseSwapUsage reads how much of the swap files is used: struct xsw_usage begins with what there
// is, what is free and what is used.
func parseSwapUsage(b []byte) (uint64, error) {
	if len(b) < 24 {
		return 0, fmt.Errorf("vm.swapusage answers %d bytes, not 24 or more", len(b))
	}
	return le.Uint64(b[16:]), nil
}

// parseCount reads a number that some releases answer in four bytes, others in eight.
func parseCount(b []byte) (uint64, error) {
	switch len(b) {
	case 4:
		return uint64(le.Uint32(b)), nil
	case 8:
		return le.Uint64(b), nil
	}
	return 0, fmt.Errorf("a number of %d bytes", len(b))
}
