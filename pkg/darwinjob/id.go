package darwinjob

import "fmt"

// ID is the identity of a process within one boot and one pid namespace, which the
// [Snapshot] or [Ledger] that holds it names. Fields that are 0 are not known.
type ID struct {
	PID int `json:"pid"`
	// Start is when it was forked, in the table's unit: clock ticks since boot on
	// Linux, microseconds since 1970 on macOS. There a clock step moves it, so it
	// orders processes only where Unique is not known.
	Start uint64 `json:"start,omitempty"`
	// Unique is XNU's p_uniqueid: counted up at each fork, never given twice in a
	// boot, the same after exec (bsd/kern/kern_fork.c).
	Unique uint64 `json:"unique,omitempty"`
}

// Same says whether two identities are of one process: a number alone proves nothing.
func (a ID) Same(b ID) bool {
	if a.PID != b.PID {
		return false
	}
	if a.Unique != 0 && b.Unique != 0 {
		return a.Unique == b.Unique
	}
	return a.Start != 0 && a.Start == b.Start
}

// before says whether a was certainly forked before b.
func (a ID) before(b ID) bool {
	if a.Unique != 0 && b.Unique != 0 {
		return a.Unique < b.Unique
	}
	return a.Start < b.Start
}

// proven says whether the identity holds more than a number.
func (a ID) proven() bool { return a.Unique != 0 || a.Start != 0 }

func (a ID) String() string {
	if a.Unique != 0 {
		return fmt.Sprintf("%d (unique id %d)", a.PID, a.Unique)
	}
	return fmt.Sprintf("%d (started at %d)", a.PID, a.Start)
}
