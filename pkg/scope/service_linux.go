package scope

import (
	"context"
	"fmt"

	sd "github.com/coreos/go-systemd/v22/dbus"
)

// ServiceSpec is a service that belongs to no session: it lies where the manager puts
// services (app.slice, system.slice), outside of sessionbox.slice.
type ServiceSpec struct {
	Unit        string // its name, with .service
	Description string
	// Argv is the command line; it says READY=1 to the manager when it is.
	Argv []string
	Env  []string
	// MemoryMin is how much memory nobody can take from it, 0 for none. It holds as far
	// as those around it have as much.
	MemoryMin uint64
}

// restartTime is how long the manager waits before it starts a service again that was
// killed: long enough that its limit of five starts in ten seconds is not met by one
// that is killed now and then.
const restartTime = 1_000_000 // µs

func (s ServiceSpec) props() []sd.Property {
	props := []sd.Property{
		sd.PropDescription(oneLine(s.Description)),
		sd.PropType("notify"),
		prop("NotifyAccess", "main"),
		prop("Restart", "on-failure"),
		prop("RestartUSec", uint64(restartTime)),
		prop("CollectMode", "inactive-or-failed"), // else a failed one blocks its name
		prop("WorkingDirectory", "/"),             // a user's manager would hold on to the home directory
		prop("Environment", append([]string{}, s.Env...)),
		execStart(s.Argv),
	}
	if s.MemoryMin > 0 { // systemd 240
		props = append(props, prop("MemoryMin", s.MemoryMin))
	}
	return props
}

// StartService starts a transient service and waits until it is ready. [ErrExists]:
// it is up, or on its way up or down. A manager in another pid namespace is refused:
// what it starts would not see what we see.
func (m *Manager) StartService(ctx context.Context, s ServiceSpec) error {
	if err := m.sameNamespace(); err != nil {
		return err
	}
	return m.start(ctx, s.Unit, s.props())
}

// InstallUnit makes the manager read its unit files again, start the unit now and
// with every start of its own; restart says that a unit that is up is started anew.
func (m *Manager) InstallUnit(ctx context.Context, unit string, restart bool) error {
	if err := m.Reload(ctx); err != nil {
		return err
	}
	err := m.do(ctx, func(ctx context.Context, l *link, _ bool) error {
		_, _, err := l.sd.EnableUnitFilesContext(ctx, []string{unit}, false, true)
		return err
	})
	if err != nil {
		return fmt.Errorf("enable %s: %w", unit, err)
	}
	// What links it to its target was made by enabling it.
	if err := m.Reload(ctx); err != nil {
		return err
	}
	verb, ask := "start", func(ctx context.Context, c *sd.Conn, ch chan<- string) (int, error) {
		return c.StartUnitContext(ctx, unit, "replace", ch)
	}
	if restart {
		verb, ask = "restart", func(ctx context.Context, c *sd.Conn, ch chan<- string) (int, error) {
			return c.RestartUnitContext(ctx, unit, "replace", ch)
		}
	}
	return m.job(ctx, verb, unit, ask, "active")
}

// UninstallUnit stops a unit and takes it out of what is started; its file is the
// caller's to remove, and [Manager.Reload] to be called then. One that is not known
// is fine.
func (m *Manager) UninstallUnit(ctx context.Context, unit string) error {
	if err := m.stop(ctx, unit); err != nil {
		return err
	}
	err := m.do(ctx, func(ctx context.Context, l *link, _ bool) error {
		_, err := l.sd.DisableUnitFilesContext(ctx, []string{unit}, false)
		return err
	})
	if err != nil && !noSuchUnit(err) {
		return fmt.Errorf("disable %s: %w", unit, err)
	}
	return nil
}

// Reload makes the manager read its unit files again.
func (m *Manager) Reload(ctx context.Context) error {
	err := m.do(ctx, func(ctx context.Context, l *link, _ bool) error { return l.sd.ReloadContext(ctx) })
	if err != nil {
		return fmt.Errorf("reload the unit files: %w", err)
	}
	return nil
}

// UnitState is how a unit is: active, inactive, failed and so on.
func (m *Manager) UnitState(ctx context.Context, unit string) (string, error) {
	return m.activeState(ctx, unit)
}
