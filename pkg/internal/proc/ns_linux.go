package proc

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrNamespace says that what /proc tells of a pid is about another process than
// the one that the kernel means when we name that pid.
var ErrNamespace = errors.New("/proc shows another pid namespace")

// OwnNamespace says whether /proc shows the pid namespace we are in. It does not
// in one that was made without mounting a new /proc (unshare --pid, bwrap
// --dev-bind / /): there nothing read from /proc may lead to a signal.
func OwnNamespace() error {
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNamespace, err)
	}
	if self != strconv.Itoa(os.Getpid()) {
		return fmt.Errorf("%w: it calls us %s, the kernel %d", ErrNamespace, self, os.Getpid())
	}
	return nil
}

// Namespace is the inode of the pid namespace that we are in.
func Namespace() (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: "/proc/self/ns/pid", Err: err}
	}
	return st.Ino, nil
}

// sameNamespace is nil if the pid of id is of our pid namespace, as far as that is
// known.
func sameNamespace(id ID) error {
	if id.NS == 0 {
		return nil
	}
	own, err := Namespace()
	if err != nil {
		return err
	}
	if own != id.NS {
		return fmt.Errorf("pid %d: %w", id.PID, ErrElsewhere)
	}
	return nil
}
