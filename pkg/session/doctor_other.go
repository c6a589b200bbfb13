//go:build !linux

package session

import (
	"context"
	"os/exec"

	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// Doctor says what this machine has of what sessionbox can use. kind is the box that a
// session would be opened with, "" for any.
func (m *Manager) Doctor(ctx context.Context, kind store.Kind) []Check {
	checks := []Check{lineageBoxCheck(ctx)}
	if kind == store.KindSystemd || kind == store.KindCgroup {
		checks[0] = Check{Name: "box", Status: CheckMissing, Text: string(kind) + " is asked for: there are no cgroups on this system", Fix: "ask for auto", Needed: true}
	}
	if m.launchd != nil {
		checks = append(checks, m.jobCheck(ctx))
	}
	c := Check{Name: "helper", Status: CheckOK}
	h, err := m.helper()
	if err == nil {
		_, err = exec.LookPath(h)
	}
	if c.Text = h; err != nil {
		c = Check{Name: "helper", Status: CheckMissing, Text: err.Error(), Fix: "install sessionbox in PATH, or set Config.Helper", Needed: true}
	}
	return append(checks, c, Check{Name: "ceilings", Status: CheckMissing, Text: "none is enforced on this system, they are watched"})
}

func lineageBoxCheck(ctx context.Context) Check {
	c := Check{Name: "box", Status: CheckOK, Text: "auto gives lineage, best effort: there are no cgroups on this system"}
	t, err := darwinjob.System()
	if err == nil {
		_, err = darwinjob.Here(ctx, t)
	}
	if err != nil {
		c.Status, c.Text, c.Needed = CheckMissing, "the process table cannot be read: "+err.Error(), true
	}
	return c
}

// EndsWithLogin says how to have the session outlive the last login of its user.
func (s *Session) EndsWithLogin() string { return "" }
