package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// Installed is what an install or its reverse has done.
type Installed struct {
	Schema int    `json:"schema"`
	Action string `json:"action"` // installed, updated, unchanged, removed, absent
	Unit   string `json:"unit"`
	Path   string `json:"path"`
	// Running says that the installed guard watches now.
	Running bool `json:"running"`
	// Commands are left to be done by hand, as nobody could be asked.
	Commands []string `json:"commands,omitempty"`
}

// NewService is the service for the calling user: of this program, with the places of
// records and boxes that the environment names.
func NewService(system bool, metrics string) (Service, error) {
	switch root := os.Geteuid() == 0; {
	case root && !system:
		return Service{}, &session.Error{Kind: session.ErrUsage, Text: "root's guard is the system's", Hint: "say so: --system"}
	case system && !root:
		return Service{}, &session.Error{Kind: session.ErrPermission, Text: "--system is for root", Hint: "without it the guard of your own sessions is installed"}
	}
	if metrics != "" {
		if _, _, err := ParseAddress(metrics); err != nil {
			return Service{}, &session.Error{Kind: session.ErrUsage, Text: "metrics: " + err.Error()}
		}
	}
	self, err := os.Executable()
	if err != nil {
		return Service{}, err
	}
	s := Service{Program: self, Metrics: metrics, System: system}
	for _, k := range []string{"SESSIONBOX_STATE_DIR", "SESSIONBOX_CGROUP_ROOT", "XDG_STATE_HOME", "XDG_CONFIG_HOME"} {
		if v := os.Getenv(k); v != "" {
			s.Env = append(s.Env, k+"="+v)
		}
	}
	return s, nil
}

// write puts the text in place of the file, and says what that did.
func write(path, text string) (action string, err error) {
	old, err := os.ReadFile(path)
	switch {
	case err == nil && string(old) == text:
		return "unchanged", nil
	case err == nil:
		action = "updated"
	case errors.Is(err, fs.ErrNotExist):
		action = "installed"
	default:
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".sessionbox-guard-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return "", err
	}
	return action, os.Rename(f.Name(), path)
}

// remove removes the file.
func remove(path string) (action string, err error) {
	err = os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "absent", nil
	}
	return "removed", err
}

// heldByHand is an error if a guard runs that would not give way to the service.
func heldByHand(m *session.Manager) error {
	i, err := m.Guard()
	if err != nil || !i.Running || i.OnDemand {
		return err
	}
	return &session.Error{Kind: session.ErrHeld, Text: fmt.Sprintf("a guard that was started by hand watches (process %d)", i.PID), Hint: "end that one first"}
}
