package session

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/doors"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// doorTime bounds the trying of all doors.
const doorTime = 15 * time.Second

// closeDoors finds out which doors can be closed, by closing them for a process that tries
// them, and makes a record that of a strict session.
func (m *Manager) closeDoors(ctx context.Context, rec *store.Session) error {
	if rec.Container != nil {
		return &Error{Kind: ErrUsage, Text: "a container has the doors that its bundle mounts", Hint: "leave out --strict or --oci"}
	}
	if rec.Kind == store.KindLineage {
		return strictNeedsKernel("")
	}
	found, err := m.probeDoors(ctx)
	if err != nil {
		return strictError("", err)
	}
	rec.Strict, rec.Doors, rec.DoorEnv = true, found, doors.Variables(os.Environ())
	return nil
}

func (m *Manager) probeDoors(ctx context.Context) ([]store.Door, error) {
	helper, err := m.helper()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, doorTime)
	defer cancel()
	found, err := doors.Probe(ctx, helper, doors.Order{Records: m.store.Dirs().State}, os.Environ())
	if err != nil {
		return nil, err
	}
	all := make([]store.Door, len(found))
	for i, d := range found {
		all[i] = store.Door(d)
	}
	return all, nil
}

// startStrict starts a command with the doors closed.
func (s *Session) startStrict(ctx context.Context, cmd *exec.Cmd, start func() error) error {
	helper, err := s.m.helper()
	if err != nil {
		return err
	}
	o := doors.Order{Records: s.m.store.Dirs().State, Environ: [][]string{s.rec.DoorEnv, doors.Variables(os.Environ())}}
	return strictError(s.Name(), doors.Start(ctx, cmd, helper, o, start))
}

// strictError says what would let the doors be closed.
func strictError(session string, err error) error {
	if refused, ok := errors.AsType[*doors.Refused](err); ok {
		return &Error{Kind: ErrUnsupported, Session: session, Text: "--strict: the doors cannot be closed here", Err: refused, Hint: strictFix}
	}
	if none, ok := errors.AsType[*doors.NoDirectory](err); ok {
		return &Error{Kind: ErrCommand, Session: session, Text: "the directory " + none.Dir + " cannot be used in a strict session",
			Hint: "it is hidden there, or has no name any more; -w DIR names another one"}
	}
	return err
}

const strictFix = "it takes user namespaces: user.max_user_namespaces above 0, on Debian kernel.unprivileged_userns_clone=1, on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0 or a profile for sessionbox; no chroot, and a container that allows them"

// doorChecks says what --strict closes here.
func (m *Manager) doorChecks(ctx context.Context) []Check {
	found, err := m.probeDoors(ctx)
	if err != nil {
		return []Check{missing("strict", "--strict cannot be had: "+oneLine(err), strictFix)}
	}
	checks := make([]Check, 0, len(found))
	for _, d := range found {
		name := "strict: " + d.Name
		if d.Closed {
			checks = append(checks, ok(name, "closed by --strict (%s)", d.Text))
		} else {
			checks = append(checks, missing(name, "stays open: "+d.Text, ""))
		}
	}
	return checks
}
