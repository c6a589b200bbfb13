package hosts

import (
	"errors"
	"os/exec"
)

// ExitCode returns the exit code in an error of Run, and whether there is one.
func ExitCode(err error) (int, bool) {
	if err == nil {
		return 0, true
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() < 0 {
		return 0, false
	}
	return exit.ExitCode(), true
}
