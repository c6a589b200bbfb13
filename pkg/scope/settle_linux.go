package scope

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/sessionbox/sessionbox/pkg/cgroup"
)

// Settle is what the anchor process calls first: it moves the process into the
// leaf anchor/ of its unit and turns on the controllers that the unit was given,
// so that the leaves beside it can have ceilings. In that order: the kernel
// allows no processes beside controllers (EBUSY). unit is the directory of the
// unit, "" for the cgroup the process runs in. Done twice it does no harm.
//
// A controller that cannot be turned on is no failure: what it would have
// limited is reported as not in force.
//
// The manager is waited for before: systemd puts a process that it starts into the
// unit's directory twice, in the child and, against a child that is slow, in the parent
// (exec_spawn, before it had CLONE_INTO_CGROUP in 256; seen on 252). On a busy machine
// the second time comes when we have settled, and takes us out of the leaf again.
func Settle(unit string) error {
	if err := barrier(); err != nil {
		// Who is no systemd may not know it. What is wrong shows when we verify.
		fmt.Fprintln(os.Stderr, "sessionbox: anchor:", err)
	}
	if unit == "" {
		mount, err := cgroup.FindMount()
		if err != nil {
			return err
		}
		if unit, err = cgroup.Own(mount); err != nil {
			return err
		}
		if filepath.Base(unit) == cgroup.AnchorLeaf {
			unit = filepath.Dir(unit)
		}
	}
	work, err := cgroup.Open(unit)
	if err != nil {
		return err
	}
	defer work.Close()
	leaf, err := work.Ensure(cgroup.AnchorLeaf)
	if err != nil {
		return fmt.Errorf("make the anchor's leaf: %w", err)
	}
	defer leaf.Close()
	if err := leaf.Enter(); err != nil {
		return fmt.Errorf("enter the anchor's leaf: %w", err)
	}
	if err := leaf.Verify(os.Getpid()); err != nil {
		return err
	}
	_ = work.EnableControllers("cpu", "io")
	return nil
}

// NotifyReady tells the manager, or whoever started us in its place, that the
// anchor has settled. The variable is cleared: what the anchor starts must not
// speak for it. Without one nobody waits.
func NotifyReady() error {
	if _, err := daemon.SdNotify(true, daemon.SdNotifyReady); err != nil {
		return errors.Join(errors.New("say that the anchor is ready"), err)
	}
	return nil
}
