package scope

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"golang.org/x/sys/unix"
)

// Remove takes an empty box down: the units through the manager, then what is
// left of the directories. Only the anchor process may still run in it; with
// anything else it is [ErrBusy] and nothing is touched, as stopping a unit ends
// what is in it.
//
// Without a manager the directories go and the error is [ErrUnitLeft]: nothing
// of the session is left in the kernel, and the manager notices when somebody
// calls [Manager.Sweep].
func (b *Box) Remove(ctx context.Context) error {
	if err := b.idle(); err != nil {
		return err
	}
	uerr := b.stopUnits(ctx)
	if uerr != nil {
		// The anchor, which nobody stopped.
		if err := b.Box.Kill(ctx, ""); err != nil {
			return errors.Join(err, uerr)
		}
	}
	// Not everything that is in it was made by systemd.
	if err := b.Box.Remove(ctx); err != nil {
		return errors.Join(err, uerr)
	}
	if uerr != nil {
		return fmt.Errorf("%s: %w: %w", b.Unit, ErrUnitLeft, uerr)
	}
	return nil
}

// idle says ErrBusy if a process of a task is in the box.
func (b *Box) idle() error {
	members, err := b.Members("")
	if err != nil {
		return err
	}
	for _, m := range members {
		if m.Leaf != cgroup.AnchorLeaf && !strings.HasPrefix(m.Leaf, cgroup.AnchorLeaf+"/") {
			return fmt.Errorf("process %d is in %s of %s: %w: %w", m.PID, m.Leaf, b.Unit, ErrBusy, unix.EBUSY)
		}
	}
	return nil
}

func (b *Box) stopUnits(ctx context.Context) error {
	b.mu.Lock()
	m, err := b.manager(ctx)
	b.mu.Unlock()
	if err != nil {
		return err
	}
	return m.Sweep(ctx, b.Unit)
}

// Sweep stops the slice of a session and what lies in it, and makes the manager
// forget the units. A unit it does not know is swept.
func (m *Manager) Sweep(ctx context.Context, unit string) error {
	ids, ok := cgroup.SliceIDs(unit)
	if !ok {
		return fmt.Errorf("%q is not the slice of a session", unit)
	}
	s := Spec{ID: ids[len(ids)-1]}
	err := m.stop(ctx, unit)
	if err != nil {
		return err
	}
	// Collected by itself as a rule; one that failed would block its name.
	return errors.Join(m.resetFailed(ctx, s.serviceUnit()), m.resetFailed(ctx, s.scopeUnit()))
}

func orGone(err error) error {
	if err == nil {
		return fs.ErrNotExist
	}
	return err
}
