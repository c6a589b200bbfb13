//go:build !linux

package guard

import (
	"context"
	"fmt"
	"os"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// File is what is written for the service manager of this system.
func (s Service) File() (path, text string) {
	home, _ := os.UserHomeDir()
	return s.PlistPath(home), s.Plist()
}

// Install writes what launchd reads at the next login, and says how to start it now.
func Install(_ context.Context, m *session.Manager, s Service) (Installed, error) {
	path, text := s.File()
	r := Installed{Schema: session.Schema, Unit: Label, Path: path, Commands: []string{"launchctl bootstrap " + s.domain() + " " + path}}
	if err := heldByHand(m); err != nil {
		return r, err
	}
	var err error
	r.Action, err = write(path, text)
	return r, err
}

// Uninstall is the reverse.
func Uninstall(_ context.Context, _ *session.Manager, s Service) (Installed, error) {
	path, _ := s.File()
	r := Installed{Schema: session.Schema, Unit: Label, Path: path, Commands: []string{"launchctl bootout " + s.domain() + "/" + Label}}
	var err error
	r.Action, err = remove(path)
	return r, err
}

func (s Service) domain() string {
	if s.System {
		return "system"
	}
	return fmt.Sprintf("gui/%d", os.Getuid())
}
