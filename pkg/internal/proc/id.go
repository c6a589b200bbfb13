package proc

import (
	"errors"
	"fmt"
)

// Errors of this package; test with errors.Is.
var (
	ErrGone        = errors.New("process is gone")
	ErrReused      = errors.New("pid belongs to another process now")
	ErrForbidden   = errors.New("pid must never be signalled")
	ErrUnsupported = errors.New("not supported on this operating system")
	// ErrElsewhere: the pid is of a pid namespace that we are not in, so nothing can
	// be told of its process here.
	ErrElsewhere = errors.New("process is in another pid namespace")
)

// ID is the identity of a process. Two IDs with equal fields are the same
// process; a PID without Start is not an identity.
type ID struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot (field 22 of /proc/PID/stat)
	Boot  string `json:"boot,omitempty"`
	// NS is the inode of the pid namespace that PID is of, 0 when it was not noted:
	// the same number is another process in another one.
	NS uint64 `json:"pid_namespace,omitempty"`
}

// IsZero says that no process was recorded.
func (id ID) IsZero() bool { return id == ID{} }

func (id ID) String() string { return fmt.Sprintf("%d (started at tick %d)", id.PID, id.Start) }

// CheckPID refuses the numbers that kill(2) takes for "everything" (-1), "my
// group" (0) or a group (< -1), and init. It is asked before any system call.
func CheckPID(pid int) error {
	if pid <= 1 || pid > maxPID {
		return fmt.Errorf("pid %d: %w", pid, ErrForbidden)
	}
	return nil
}

// maxPID is PID_MAX_LIMIT of 64-bit Linux; macOS stays below 100,000.
const maxPID = 1 << 22

// Fate is what can be said of a process that was noted earlier.
type Fate int

// The fates of a process.
const (
	Unknown Fate = iota // it cannot be told from here
	Alive
	Gone // it has ended; its pid may be another's now
)

// FateOf tells what became of the process that id names. A zombie is gone. Only what
// is proven is told: a pid of another namespace, or a /proc that is not ours, leaves
// it [Unknown].
func FateOf(id ID) Fate {
	alive, err := running(id)
	switch {
	case err == nil && alive:
		return Alive
	case err == nil, errors.Is(err, ErrGone), errors.Is(err, ErrReused):
		return Gone
	}
	return Unknown
}
