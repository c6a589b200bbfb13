package darwinjob

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
)

// errNoExact says that the kernel cannot signal by pid and version.
var errNoExact = errors.New("no signal by identity")

// aim is what an exact signal is made of on macOS.
type aim interface {
	// identify gives the unique id and version of who has the pid now, zombies
	// included, and whether it is stopped; proc.ErrGone if nobody has.
	identify(pid int) (unique uint64, version int32, stopped bool, err error)
	// signalVersion signals the process only if it has this version still: ESRCH if not,
	// errNoExact if the kernel does not know how.
	signalVersion(pid int, version int32, sig syscall.Signal) error
	kill(pid int, sig syscall.Signal) error
}

// execs is how many execs in a row one signal is carried through.
const execs = 16

// exactly signals the process that id names, and no other.
//
// From macOS 14.2 on the kernel compares pid and version itself. A version changes at
// exec, so "no such process" may mean that: the unique id, which does not, tells.
func exactly(a aim, id ID, sig syscall.Signal) error {
	if err := proc.CheckPID(id.PID); err != nil {
		return err
	}
	if id.Unique == 0 {
		return fmt.Errorf("signal %s: %w", id, proc.ErrForbidden)
	}
	for range execs {
		version, _, err := same(a, id)
		if err != nil {
			return err
		}
		err = a.signalVersion(id.PID, version, sig)
		switch {
		case errors.Is(err, errNoExact):
			return byStop(a, id, sig)
		case errors.Is(err, syscall.ESRCH):
			continue
		case err != nil:
			return fmt.Errorf("signal %s: %w", id, err)
		}
		return nil
	}
	return fmt.Errorf("signal %s: %w", id, syscall.EAGAIN)
}

// same looks whether the pid is still the process's.
func same(a aim, id ID) (version int32, stopped bool, err error) {
	unique, version, stopped, err := a.identify(id.PID)
	switch {
	case err != nil:
		return 0, false, err
	case unique != id.Unique:
		return 0, false, fmt.Errorf("%s: the pid has unique id %d now: %w", id, unique, proc.ErrReused)
	}
	return version, stopped, nil
}

// byStop signals without help of the kernel (below macOS 14.2): the process is stopped
// first, so that it cannot end and give its pid away, and looked at again. If the pid went
// to another between the first look and the stop, that one goes on as if nothing was.
func byStop(a aim, id ID, sig syscall.Signal) error {
	_, was, err := same(a, id)
	if err != nil {
		return err
	}
	if sig == syscall.SIGCONT {
		return named(id, a.kill(id.PID, sig))
	}
	if !was {
		if err := a.kill(id.PID, syscall.SIGSTOP); err != nil {
			return named(id, err)
		}
		if _, _, err := same(a, id); err != nil {
			if errors.Is(err, proc.ErrReused) {
				err = errors.Join(err, a.kill(id.PID, syscall.SIGCONT))
			}
			return err
		}
	}
	if sig == syscall.SIGSTOP {
		return nil
	}
	err = a.kill(id.PID, sig)
	if !was && sig != syscall.SIGKILL {
		err = errors.Join(err, a.kill(id.PID, syscall.SIGCONT))
	}
	return named(id, err)
}

func named(id ID, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ESRCH):
		return fmt.Errorf("signal %s: %w", id, proc.ErrGone)
	}
	return fmt.Errorf("signal %s: %w", id, err)
}
