package render

import (
	"fmt"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
)

// Hibernated says what hibernating a session has done, in one line.
func Hibernated(r *session.HibernateReport) string {
	name := r.Name
	if name == "" {
		name = r.ID
	}
	gone := fmt.Sprintf("%s out of memory in %s", memlimit.FormatBytes(r.ReclaimedBytes), Took(r.TookSeconds))
	if r.SwapBytes > 0 {
		gone += ", " + memlimit.FormatBytes(r.SwapBytes) + " in swap"
	}
	switch {
	case r.Complete:
		return fmt.Sprintf("hibernated %s: %s", name, gone)
	case r.ReclaimedBytes == 0 && r.StayedBytes == 0:
		return fmt.Sprintf("froze %s, all stays in memory: %s", name, Clean(r.Why))
	case r.ReclaimedBytes == 0:
		return fmt.Sprintf("froze %s, %s stay in memory: %s", name, memlimit.FormatBytes(r.StayedBytes), Clean(r.Why))
	}
	return fmt.Sprintf("hibernated %s: %s; %s stay: %s", name, gone, memlimit.FormatBytes(r.StayedBytes), Clean(r.Why))
}
