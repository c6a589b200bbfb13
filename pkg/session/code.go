package session

import (
	"context"
	"errors"
	"io/fs"
	"os/exec"

	"github.com/sessionbox/sessionbox/pkg/store"
)

// codes name the kinds of failure in JSON.
var codes = []struct {
	name string
	kind error
}{
	{"survivors", ErrSurvivors},
	{"held", ErrHeld},
	{"closed", ErrClosed},
	{"not_found", ErrNotFound},
	{"frozen", ErrFrozen},
	{"box_gone", ErrBoxGone},
	{"command", ErrCommand},
	{"no_process", ErrNoProcess},
	{"too_low", ErrTooLow},
	{"timeout", ErrTimeout},
	{"unsupported", ErrUnsupported},
	{"permission", ErrPermission},
	{"usage", ErrUsage},
}

// Code is the word for the kind of failure in JSON, "internal" for one of none.
func Code(err error) string {
	for _, c := range codes {
		if errors.Is(err, c.kind) {
			return c.name
		}
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "permission"
	case errors.Is(err, store.ErrNotFound):
		return "not_found"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return "internal"
}

// NotFoundCommand says whether a command could not be run because it is not
// there (127 for a shell) rather than not executable (126).
func NotFoundCommand(err error) bool {
	return errors.Is(err, ErrCommand) && (errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist))
}
