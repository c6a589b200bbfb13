package scope

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// unitGoneError: the anchor unit is not up any more.
type unitGoneError struct {
	unit string
	err  error
}

func (e *unitGoneError) Error() string { return fmt.Sprintf("%s is gone: %v", e.unit, e.err) }
func (e *unitGoneError) Unwrap() error { return e.err }

// attach asks the manager to move a process of ours into a leaf of a delegated
// unit. A user's manager asks the system's in turn, which knows that the user
// owns both; on some systems of 258 and 259 the policy of the bus between them
// forbids it.
func (m *Manager) attach(ctx context.Context, unit, leaf string, pid int) error {
	if err := m.sameNamespace(); err != nil {
		return err
	}
	err := m.do(ctx, func(ctx context.Context, l *link, _ bool) error {
		return l.sd.AttachProcessesToUnit(ctx, unit, "/"+leaf, []uint32{uint32(pid)})
	})
	switch {
	case err == nil:
		return nil
	case noSuchUnit(err), strings.Contains(errText(err), "not active"),
		errName(err) == "org.freedesktop.DBus.Error.FileNotFound",
		errName(err) == "System.Error.ENOENT":
		return &unitGoneError{unit: unit, err: err}
	}
	return &AttachError{Unit: unit, PID: pid, Err: err}
}

// sameNamespace makes sure that a pid means the same process to the manager as
// to us, before we name one to it: in a container that was given the host's
// socket another process would be put into the box, and ended with it.
//
// Who listens is told by the kernel, as a pid of ours; it is 0 for somebody
// whom our namespace does not contain, and one in a namespace below ours has
// more than one pid.
func (m *Manager) sameNamespace() error {
	m.mu.Lock()
	peer := m.link.peer
	m.mu.Unlock()
	if peer == 0 {
		return ErrNamespace
	}
	theirs, err := nsDepth(fmt.Sprint(peer))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNamespace, err)
	}
	ours, err := nsDepth("self")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNamespace, err)
	}
	if theirs != ours {
		return ErrNamespace
	}
	return nil
}

// nsDepth counts the pids a process has, one in each namespace from ours down.
func nsDepth(pid string) (int, error) {
	b, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return len(strings.Fields(rest)), nil
		}
	}
	return 0, fmt.Errorf("no NSpid in /proc/%s/status", pid)
}
