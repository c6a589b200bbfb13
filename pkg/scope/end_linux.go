package scope

import (
	"context"
	"errors"
	"fmt"
	"time"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"golang.org/x/sys/unix"
)

// End ends a unit that was started by somebody in a session: it is stopped, with the
// manager's own signals, and what is left of it after the grace (10 s at most) is
// killed. killed says that this was necessary. One that the manager does not know has
// ended. The caller knows that it is the session's.
func (m *Manager) End(ctx context.Context, unit string, grace time.Duration) (killed bool, err error) {
	if grace > 0 {
		soft, cancel := context.WithTimeout(ctx, min(grace, jobTime))
		err = m.stop(soft, unit)
		cancel()
		if err == nil || ctx.Err() != nil {
			return false, err
		}
	}
	err = m.do(ctx, func(ctx context.Context, l *link, _ bool) error {
		return l.sd.KillUnitWithTarget(ctx, unit, sd.All, int32(unix.SIGKILL))
	})
	if err != nil && !noSuchUnit(err) {
		// One with no process in it, a timer say, has nothing to be killed.
		err = fmt.Errorf("kill %s: %w", unit, err)
	} else {
		killed, err = err == nil, nil
	}
	if serr := m.stop(ctx, unit); serr != nil {
		return killed, errors.Join(err, serr)
	}
	return killed, nil
}
