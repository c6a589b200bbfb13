package session

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/scope"
)

// startGuard starts a guard where nothing ends it with us: as a service of the
// manager, else as a process of its own.
func (m *Manager) startGuard(ctx context.Context, helper string) error {
	err := m.startGuardUnit(ctx, helper)
	if err == nil {
		return nil
	}
	if !errors.Is(err, scope.ErrNoManager) {
		m.log.Debug("start the guard as a service", "err", err)
	}
	return m.spawnGuard(ctx, helper)
}

// unitTime is how much of the opener's time a manager may take: one that hangs must
// leave enough for a process of our own. Should both come up, one ends.
const unitTime = guardTime * 2 / 3

func (m *Manager) startGuardUnit(ctx context.Context, helper string) error {
	ctx, cancel := context.WithTimeout(ctx, unitTime)
	defer cancel()
	mgr, err := m.dial(ctx)
	if err != nil {
		return err
	}
	defer mgr.Close()
	spec := scope.ServiceSpec{Unit: m.guardUnit(), Description: "sessionbox guard (on demand)",
		Argv: []string{helper, GuardArg}, Env: m.guardEnv(), MemoryMin: GuardMemoryMin}
	for {
		err := mgr.StartService(ctx, spec)
		if !errors.Is(err, scope.ErrExists) || m.guarded() {
			if errors.Is(err, scope.ErrExists) {
				return nil
			}
			return err
		}
		// One that has given its lock up is on its way down.
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Detach makes the calling process independent of whoever started it: it closes what
// it inherited but for the descriptors keep, and leaves the sessions that it runs in,
// as it would end with them.
func Detach(keep ...int) error {
	closeInherited(keep...)
	mount, err := cgroup.FindMount()
	if err != nil {
		return nil // no cgroup could end us
	}
	own, err := cgroup.Own(mount)
	if err != nil {
		return nil
	}
	top := outermost(own)
	if top == "" {
		return nil
	}
	var tried []error
	for dir := filepath.Dir(top); len(dir) >= len(mount.Point); dir = filepath.Dir(dir) {
		err := enterDir(dir)
		if err == nil {
			return nil
		}
		tried = append(tried, err)
	}
	// A directory that has controllers enabled for its children takes no process; as
	// the last resort a leaf of our own does.
	beside, err := cgroup.Open(filepath.Dir(top))
	if err != nil {
		return errors.Join(append(tried, err)...)
	}
	defer beside.Close()
	leaf, err := beside.Ensure("sessionbox-guard")
	if err != nil {
		return errors.Join(append(tried, err)...)
	}
	defer leaf.Close()
	return leaf.Enter()
}

// guardCheck says whether somebody watches the sessions.
func (m *Manager) guardCheck() Check {
	const name = "guard"
	g, err := m.Guard()
	switch {
	case err != nil:
		return unknown(name, err.Error())
	case g.Running && g.OnDemand:
		return ok(name, "runs on demand (process %d)", g.PID)
	case g.Running:
		return ok(name, "runs (process %d)", g.PID)
	case m.guardOff() != "":
		return missing(name, "nobody watches owners and time limits: "+m.guardOff(), "run `sessionbox guard`, or `sessionbox reconcile` now and then")
	}
	return ok(name, "not running: started by the first session that must be watched")
}

// outermost is the directory of all sessions, or else of the outermost one, that a
// cgroup directory lies in; "" if it lies in none.
func outermost(dir string) string {
	top := ""
	for d := dir; len(d) > 1; d = filepath.Dir(d) {
		name := filepath.Base(d)
		if _, is := cgroup.SliceIDs(name); is || name == cgroup.Base {
			top = d
		}
	}
	return top
}
