package scope

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sessionbox/sessionbox/pkg/cgroup"
)

// Create makes the box of a session: its slice, then its anchor. When that fails
// nothing of it is left. [ErrExists]: the box is there already, or somebody else
// was faster. The manager may be closed afterwards: the box dials again when it
// has to.
func (m *Manager) Create(ctx context.Context, s Spec) (*Box, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	limits, err := sliceLimits(s.SliceUnit(), s.Limits)
	if err != nil {
		return nil, err
	}
	mount, err := cgroup.FindMount()
	if err != nil {
		return nil, err
	}
	if s.Aggregate != nil {
		if err := m.setBase(ctx, s.Aggregate); err != nil {
			return nil, err
		}
	}
	parent, err := m.parent(ctx, s, mount)
	if err != nil {
		return nil, err
	}
	if parent != nil {
		defer parent.Close()
	}
	unit := s.SliceUnit()
	if err := m.start(ctx, unit, sliceProps(s.Description, limits)); err != nil {
		if !errors.Is(err, ErrExists) && !unstarted(err) {
			m.undo(ctx, unit)
		}
		return nil, err
	}
	b, err := m.open(ctx, s, mount)
	if err == nil && parent != nil && parent.Gone() {
		// Closed meanwhile: systemd made another one for us, by its name.
		err = fmt.Errorf("%s: %w", s.parentUnit(), ErrParentGone)
	}
	if err == nil {
		err = b.EnsureAnchor(ctx)
	}
	if err != nil {
		if b != nil {
			b.Close()
		}
		m.undo(ctx, unit)
		return nil, err
	}
	return b, nil
}

// unstarted says whether the manager refused to make the unit at all.
func unstarted(err error) bool {
	var refused *PropertyError
	return errors.As(err, &refused) || errName(err) != "" && !hungUp(err)
}

// undo takes down what a failed Create made. It does so even when the caller's
// time is up: nobody else knows of it yet.
func (m *Manager) undo(ctx context.Context, unit string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), jobTime)
	defer cancel()
	// On failure it is found later by List: an empty box that no record names.
	_ = m.Sweep(ctx, unit)
}

// parent opens the box of the innermost session around s. systemd would make a
// slice that is missing by itself, without limits and of nobody.
func (m *Manager) parent(ctx context.Context, s Spec, mount cgroup.Mount) (*cgroup.Group, error) {
	if len(s.Parents) == 0 {
		return nil, nil
	}
	g, err := m.openSlice(ctx, s.parentUnit(), mount)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrParentGone, err)
	}
	return g, nil
}

// open opens the box that was just made.
func (m *Manager) open(ctx context.Context, s Spec, mount cgroup.Mount) (*Box, error) {
	top, err := m.openSlice(ctx, s.SliceUnit(), mount)
	if err != nil {
		return nil, err
	}
	b := newBox(s, top)
	b.mgr = m
	return b, nil
}

// openSlice opens the directory of a slice that is up. Where that is only the
// manager can say: it may run in a cgroup namespace or on a hybrid hierarchy.
func (m *Manager) openSlice(ctx context.Context, unit string, mount cgroup.Mount) (*cgroup.Group, error) {
	cg, err := m.controlGroup(ctx, unit)
	if err != nil {
		return nil, err
	}
	if cg == "" {
		return nil, fmt.Errorf("%s has no control group: %w", unit, fs.ErrNotExist)
	}
	dir, err := mount.Dir(cg)
	if err != nil {
		return nil, err
	}
	g, err := cgroup.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open the control group of %s: %w", unit, err)
	}
	return g, nil
}

// setBase puts the ceilings of all sessions together on sessionbox.slice. What is
// so already is left alone: a change is written to disk by the manager, and each
// open would.
func (m *Manager) setBase(ctx context.Context, r *specs.LinuxResources) error {
	props, err := sliceLimits(cgroup.Base, r)
	if err != nil || len(props) == 0 {
		return err
	}
	state, err := m.activeState(ctx, cgroup.Base)
	if err != nil {
		return err
	}
	if state != "active" {
		err := m.start(ctx, cgroup.Base, sliceProps("sessionbox sessions", props))
		if err == nil || !errors.Is(err, ErrExists) {
			return err
		}
		// Somebody was faster, or it has a unit file.
	}
	var differ []sd.Property
	for _, p := range props {
		v, err := m.property(ctx, cgroup.Base, "Slice", p.Name)
		if err != nil {
			return fmt.Errorf("ask for %s of %s: %w", p.Name, cgroup.Base, err)
		}
		if v != p.Value.Value() {
			differ = append(differ, p)
		}
	}
	if differ == nil {
		return nil
	}
	return m.setProperties(ctx, cgroup.Base, differ)
}
