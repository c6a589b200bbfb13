package scope

import (
	"context"
	"fmt"
	"strings"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
)

// startScope makes the anchor unit for managers below 250: a delegated scope. A
// scope is made around a process that exists, so the anchor is our child here.
// It waits as a stub until the scope is there and holds it: of a process that
// ends meanwhile three different things become, one of them a scope that is
// active for ever.
func (m *Manager) startScope(ctx context.Context, s Spec) error {
	if err := m.sameNamespace(); err != nil {
		return err
	}
	unit := s.scopeUnit()
	return s.spawnAnchor(ctx, func(pid int) error {
		if err := m.start(ctx, unit, s.scopeProps(pid)); err != nil {
			return err
		}
		return inUnit(pid, unit)
	})
}

// inUnit reads back that a process is directly in a unit (or "slice/unit"): that
// the job is "done" does not mean so.
func inUnit(pid int, unit string) error {
	cg, err := proc.Cgroup(pid)
	if err != nil {
		return err
	}
	if !strings.HasSuffix(cg, "/"+unit) {
		return fmt.Errorf("process %d is in %s, not in %s: %w", pid, cg, unit, ErrAttach)
	}
	return nil
}
