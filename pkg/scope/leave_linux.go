package scope

import (
	"context"
	"fmt"
	"os"

	sd "github.com/coreos/go-systemd/v22/dbus"
)

// LeaveBox moves the calling process, which runs inside the session, to a scope
// of its own: whoever closes a session from inside must not be ended by it. If
// the session is inside others (parents as in [Spec]) the scope is in the
// innermost of them: their ceilings hold on, and closing them ends it. Else it is
// beside all sessions. It goes when the process does.
func LeaveBox(ctx context.Context, parents []string, id string) error {
	m, err := Dial(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := m.sameNamespace(); err != nil {
		return err
	}
	pid := os.Getpid()
	unit := fmt.Sprintf("sessionbox-closer-%s-%d.scope", id, pid)
	props := []sd.Property{
		prop("Description", "sessionbox closing session "+id+" from inside"),
		prop("PIDs", []uint32{uint32(pid)}),
		prop("CollectMode", "inactive-or-failed"),
	}
	within := unit
	if len(parents) > 0 {
		slice := Spec{Parents: parents}.parentUnit()
		props = append(props, sd.PropSlice(slice))
		within = slice + "/" + unit
	}
	if err := m.start(ctx, unit, props); err != nil {
		return err
	}
	return inUnit(pid, within)
}
