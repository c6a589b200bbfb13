package darwinjob

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// HostPressure asks the kernel; it takes no privilege. Only the level must be told.
func HostPressure() (Pressure, error) {
	level, err := unix.SysctlUint32("kern.memorystatus_vm_pressure_level")
	if err != nil {
		return Pressure{}, fmt.Errorf("read the memory pressure: %w", err)
	}
	p := Pressure{Level: int(level), TotalBytes: count("hw.memsize"), AvailablePercent: int(count("kern.memorystatus_level")),
		CompressorBytes: count("vm.compressor_bytes_used"), CompressedPages: count("vm.compressor_segment_pages_compressed"),
		CompressedLimit: count("vm.compressor_segment_pages_compressed_limit")}
	if b, err := unix.SysctlRaw("vm.swapusage"); err == nil {
		p.SwapUsedBytes, _ = parseSwapUsage(b)
	}
	for _, volume := range []string{"/System/Volumes/VM", "/"} {
		var fs unix.Statfs_t
		if unix.Statfs(volume, &fs) == nil {
			p.SwapDiskBytes = fs.Bavail * uint64(fs.Bsize)
			break
		}
	}
	return p, nil
}

// count is a number of the kernel's, 0 if it tells none by that name.
func count(name string) uint64 {
	b, err := unix.SysctlRaw(name)
	if err != nil {
		return 0
	}
	n, _ := parseCount(b)
	return n
}
