package guard

import (
	"context"
	"errors"
	"os"

	"github.com/sessionbox/sessionbox/pkg/scope"
	"github.com/sessionbox/sessionbox/pkg/session"
)

// File is what is written for the service manager of this system.
func (s Service) File() (path, text string) {
	home, _ := os.UserHomeDir()
	return s.UnitPath(home, os.Getenv("XDG_CONFIG_HOME")), s.UnitFile()
}

// Install makes the guard a service that is started now and whenever the user's, or
// the system's, manager is. Done twice it changes nothing. Where no manager answers it
// says what is left to be done.
func Install(ctx context.Context, m *session.Manager, s Service) (Installed, error) {
	path, text := s.File()
	r := Installed{Schema: session.Schema, Unit: Unit, Path: path}
	mgr, err := scope.Dial(ctx)
	if err == nil {
		defer mgr.Close()
	} else if !errors.Is(err, scope.ErrNoManager) {
		return r, err
	}
	active := false
	if mgr != nil {
		state, err := mgr.UnitState(ctx, Unit)
		if err != nil {
			return r, err
		}
		active = state == "active"
	}
	if !active {
		if err := heldByHand(m); err != nil {
			return r, err
		}
	}
	if r.Action, err = write(path, text); err != nil {
		return r, &session.Error{Kind: session.ErrPermission, Text: "the unit file cannot be written", Err: err, Hint: "--print shows what it would be"}
	}
	if mgr == nil {
		r.Commands = s.commands("enable --now")
		return r, nil
	}
	if err := mgr.InstallUnit(ctx, Unit, active && r.Action != "unchanged"); err != nil {
		return r, &session.Error{Text: "the guard is installed and does not start", Err: err, Hint: "`" + s.systemctl() + "status " + Unit + "` says why"}
	}
	r.Running = true
	return r, nil
}

// Uninstall is the reverse. Sessions that must be watched get a guard on demand.
func Uninstall(ctx context.Context, m *session.Manager, s Service) (Installed, error) {
	path, _ := s.File()
	r := Installed{Schema: session.Schema, Unit: Unit, Path: path}
	_, err := os.Lstat(path)
	if err != nil {
		r.Action, err = remove(path)
		return r, err
	}
	mgr, err := scope.Dial(ctx)
	switch {
	case err == nil:
		defer mgr.Close()
		if err := mgr.UninstallUnit(ctx, Unit); err != nil {
			return r, err
		}
	case errors.Is(err, scope.ErrNoManager):
		r.Commands = s.commands("disable --now")
	default:
		return r, err
	}
	if r.Action, err = remove(path); err != nil {
		return r, err
	}
	if mgr != nil {
		if err := mgr.Reload(ctx); err != nil {
			return r, err
		}
	}
	list, err := m.Watches()
	for _, w := range list {
		if w.Policy {
			return r, m.EnsureGuard(ctx)
		}
	}
	return r, err
}

func (s Service) systemctl() string {
	if s.System {
		return "systemctl "
	}
	return "systemctl --user "
}

func (s Service) commands(verb string) []string {
	return []string{s.systemctl() + "daemon-reload", s.systemctl() + verb + " " + Unit}
}
