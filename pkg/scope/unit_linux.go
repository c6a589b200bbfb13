package scope

import (
	"context"
	"errors"
	"fmt"

	sd "github.com/coreos/go-systemd/v22/dbus"
)

// start makes and starts a transient unit. Mode "fail", not "replace": of two
// that race for a name one wins and the other is told [ErrExists].
func (m *Manager) start(ctx context.Context, unit string, props []sd.Property) error {
	ask := func(ctx context.Context, c *sd.Conn, ch chan<- string) (int, error) {
		return c.StartTransientUnitContext(ctx, unit, "fail", props, ch)
	}
	err := m.job(ctx, "start transient unit", unit, ask, "active")
	if !unitExists(err) {
		return refusal(unit, props, err)
	}
	// The name is also taken by a unit that failed earlier and stayed loaded:
	// that one is cleared away and the name tried once more. One that is up, or
	// on its way, is somebody's.
	state, serr := m.activeState(ctx, unit)
	if serr != nil {
		return errors.Join(err, serr)
	}
	if state == "inactive" || state == "failed" {
		if rerr := m.resetFailed(ctx, unit); rerr != nil {
			return errors.Join(err, rerr)
		}
		err = m.job(ctx, "start transient unit", unit, ask, "active")
	}
	if unitExists(err) {
		return fmt.Errorf("%w: %w", ErrExists, err)
	}
	return refusal(unit, props, err)
}

// stop stops a unit with everything that lies in it, and clears what is left of
// it. One that is not known is stopped.
func (m *Manager) stop(ctx context.Context, unit string) error {
	ask := func(ctx context.Context, c *sd.Conn, ch chan<- string) (int, error) {
		return c.StopUnitContext(ctx, unit, "replace", ch)
	}
	err := m.job(ctx, "stop", unit, ask, "inactive", "failed")
	if err != nil && !noSuchUnit(err) {
		return err
	}
	return m.resetFailed(ctx, unit)
}

// resetFailed unloads a unit that ended in failure; CollectMode= does the same
// but only when the manager comes around to it. A unit that is gone is fine.
func (m *Manager) resetFailed(ctx context.Context, unit string) error {
	err := m.do(ctx, func(ctx context.Context, l *link, _ bool) error {
		return l.sd.ResetFailedUnitContext(ctx, unit)
	})
	if err != nil && !noSuchUnit(err) {
		return fmt.Errorf("reset %s: %w", unit, err)
	}
	return nil
}

// setProperties changes properties of a unit that is loaded, until it goes
// (runtime: for one with a file, until the next boot). All are taken or none.
func (m *Manager) setProperties(ctx context.Context, unit string, props []sd.Property) error {
	err := m.do(ctx, func(ctx context.Context, l *link, _ bool) error {
		return l.sd.SetUnitPropertiesContext(ctx, unit, true, props...)
	})
	return refusal(unit, props, err)
}

// controlGroup is where a slice is, "" when it is not up.
func (m *Manager) controlGroup(ctx context.Context, unit string) (string, error) {
	g, err := m.stringProperty(ctx, unit, "Slice", "ControlGroup")
	if err != nil {
		return "", fmt.Errorf("ask for the control group of %s: %w", unit, err)
	}
	return g, nil
}

// activeState is that of a unit, "inactive" if the manager does not know it.
func (m *Manager) activeState(ctx context.Context, unit string) (string, error) {
	s, err := m.stringProperty(ctx, unit, "Unit", "ActiveState")
	if err != nil {
		return "", fmt.Errorf("ask for the state of %s: %w", unit, err)
	}
	return s, nil
}
