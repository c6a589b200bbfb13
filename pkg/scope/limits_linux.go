package scope

import (
	"context"
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// SetLimits changes the ceilings of the slice through the manager, which would
// undo what is written behind its back, and says from the cgroup's own files
// which are in force: a property is accepted also where no controller is.
func (b *Box) SetLimits(ctx context.Context, r *specs.LinuxResources) ([]memlimit.Ceiling, error) {
	want, err := memlimit.FromOCI(r)
	if err != nil {
		return nil, fmt.Errorf("limits of %s: %w", b.Unit, err)
	}
	props, err := limitProps(want)
	if err != nil {
		return nil, fmt.Errorf("limits of %s: %w", b.Unit, err)
	}
	b.mu.Lock()
	m, err := b.manager(ctx)
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if len(props) > 0 {
		// A unit that is not loaded takes properties as well, without effect.
		if cg, err := m.controlGroup(ctx, b.Unit); err != nil || cg == "" {
			return nil, fmt.Errorf("%s is not up: %w", b.Unit, orGone(err))
		}
		if err := m.setProperties(ctx, b.Unit, props); err != nil {
			return nil, err
		}
		// The manager answers before it writes; it has written when it answers
		// the next question.
		if _, err := m.controlGroup(ctx, b.Unit); err != nil {
			return nil, err
		}
	}
	return b.Top.Ceilings(want)
}
