package scope

import (
	"errors"
	"fmt"
	"strings"
)

// Errors of this package; test with errors.Is.
var (
	// ErrNoManager: no systemd manager can be reached; see [NoManagerError].
	ErrNoManager = errors.New("no systemd manager can be reached")
	// ErrExists: somebody else made the box of this id first.
	ErrExists = errors.New("the unit exists already")
	// ErrParentGone: the box of the session around this one is not there.
	ErrParentGone = errors.New("the box of the enclosing session is gone")
	// ErrUnitLeft: the cgroup is removed, the unit is still known to the
	// manager as it could not be asked.
	ErrUnitLeft = errors.New("the unit is left behind")
	// ErrBusy: the box still holds processes.
	ErrBusy = errors.New("the box is not empty")
	// ErrAttach: the manager did not put a process into its leaf.
	ErrAttach = errors.New("the manager did not move the process")
	// ErrNamespace: pids mean something else to the manager than to us.
	ErrNamespace = errors.New("the manager is in another pid namespace")
)

// NoManagerError says what was tried to reach a manager, in that order.
type NoManagerError struct {
	Tried []Attempt
}

// Attempt is one socket and why it did not do.
type Attempt struct {
	Socket string
	Err    error
}

func (e *NoManagerError) Error() string {
	if len(e.Tried) == 0 {
		return ErrNoManager.Error()
	}
	var why []string
	for _, a := range e.Tried {
		why = append(why, fmt.Sprintf("%s: %v", a.Socket, a.Err))
	}
	return ErrNoManager.Error() + " (" + strings.Join(why, "; ") + ")"
}

// Unwrap gives ErrNoManager and the causes.
func (e *NoManagerError) Unwrap() []error {
	list := []error{ErrNoManager}
	for _, a := range e.Tried {
		list = append(list, a.Err)
	}
	return list
}

// JobError says that the manager ran a job and it did not end well.
type JobError struct {
	Unit   string
	Verb   string // start or stop
	Result string // canceled, timeout, failed, dependency, skipped, or a state
}

func (e *JobError) Error() string {
	return fmt.Sprintf("%s %s: the job ended with %q", e.Verb, e.Unit, e.Result)
}

// PropertyError says that the manager refused a property of a unit.
type PropertyError struct {
	Unit  string
	Name  string // "" when the answer does not say which one
	Value any
	Err   error
}

func (e *PropertyError) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("set properties of %s: %v", e.Unit, e.Err)
	}
	return fmt.Sprintf("set %s=%v of %s: %v", e.Name, e.Value, e.Unit, e.Err)
}

func (e *PropertyError) Unwrap() error { return e.Err }

// AttachError says that the manager refused to move a process into its leaf. It
// is [ErrAttach].
type AttachError struct {
	Unit string
	PID  int
	Err  error
}

func (e *AttachError) Error() string {
	return fmt.Sprintf("attach process %d to %s: %v", e.PID, e.Unit, e.Err)
}

// Unwrap gives ErrAttach and the cause.
func (e *AttachError) Unwrap() []error { return []error{ErrAttach, e.Err} }

// Hint is what one can do about it.
func (e *AttachError) Hint() string {
	return "start the agent itself in a unit of your own manager (systemd-run --user --pty COMMAND): from there nobody has to be asked"
}
