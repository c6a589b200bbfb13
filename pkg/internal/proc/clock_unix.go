//go:build unix

package proc

import (
	"time"

	"golang.org/x/sys/unix"
)

// Clock reads the monotonic clock (CLOCK_MONOTONIC), which all processes of one boot
// share: nobody can set it, and it stands still while the machine sleeps. Leases and
// idle times are measured by it, so that neither a clock step nor a night in a closed
// laptop ends a session. With a boot id, a reading means the same later.
func Clock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0 // it cannot fail for a clock that exists
	}
	return time.Duration(ts.Nano())
}
