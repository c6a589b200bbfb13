package session

import (
	"errors"
	"fmt"
	"time"
)

// Kinds of failure; test with errors.Is. The command maps each to an exit code.
var (
	ErrNotFound    = errors.New("no such session")
	ErrClosed      = errors.New("session is closed")
	ErrHeld        = errors.New("name is held by an open session")
	ErrUsage       = errors.New("bad request")
	ErrUnsupported = errors.New("not supported here")
	ErrPermission  = errors.New("not permitted")
	ErrSurvivors   = errors.New("processes survived")
	ErrTimeout     = errors.New("timed out")
	ErrFrozen      = errors.New("session is frozen")
	ErrBoxGone     = errors.New("the session's box is gone")
	ErrCommand     = errors.New("cannot run the command")
	ErrNoProcess   = errors.New("no such process")
	ErrTooLow      = errors.New("ceiling below what is in use")
)

// Error is a failure that people and programs can act on.
type Error struct {
	Kind    error  // one of the above
	Session string // name or id, "" when none is concerned
	Text    string // what went wrong
	Hint    string // what to do about it, "" when there is nothing
	Err     error  // the cause, may be nil
	// Retry says that the same call may succeed later.
	Retry bool
	// Info is set when a name is held: by whom.
	Info *Info
}

func (e *Error) Error() string {
	s := e.Text
	if s == "" && e.Kind != nil {
		s = e.Kind.Error()
	}
	if e.Session != "" {
		s = fmt.Sprintf("session %s: %s", e.Session, s)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the kind and the cause.
func (e *Error) Unwrap() []error {
	var list []error
	for _, err := range []error{e.Kind, e.Err} {
		if err != nil {
			list = append(list, err)
		}
	}
	return list
}

func notFound(ref string) *Error {
	return &Error{Kind: ErrNotFound, Text: fmt.Sprintf("no session %q", ref),
		Hint: "`sessionbox ls` lists the open ones, `sessionbox ls -a` closed ones too"}
}

func closedAt(ref string, at time.Time) *Error {
	return &Error{Kind: ErrClosed, Session: ref,
		Text: fmt.Sprintf("was closed %s ago (%s)", time.Since(at).Round(time.Second), at.Format(time.RFC3339)),
		Hint: "`sessionbox history " + ref + "` shows its receipt; `sessionbox open` makes a new one"}
}
