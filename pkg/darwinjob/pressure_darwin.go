package darwinjob

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// HostPressure asks the kernel; it takes no privilege.
func HostPressure() (Pressure, error) {
	level, err := unix.SysctlUint32("kern.memorystatus_vm_pressure_level")
	if err != nil {
		return Pressure{}, fmt.Errorf("read the memory pressure: %w", err)
	}
	p := Pressure{Level: int(level)}
	if n, err := unix.SysctlUint32("kern.memorystatus_level"); err == nil {
		p.AvailablePercent = int(n)
	}
	if b, err := unix.SysctlRaw("vm.swapusage"); err == nil && len(b) >= 24 { // total, avail, used u64
		p.SwapUsedBytes = int64(le.Uint64(b[16:]))
	}
	return p, nil
}
