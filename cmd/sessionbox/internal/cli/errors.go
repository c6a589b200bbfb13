package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// Exit codes, see DESIGN §9. Those of run and exec are those of timeout(1),
// env(1) and the shell.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitNoSession   = 3
	exitSurvivors   = 4
	exitUnsupported = 5
	exitPermission  = 6
	exitHeld        = 7
	exitTimedOut    = 124
	exitOwnFailure  = 125
	exitCannotRun   = 126
	exitNotFound    = 127
	exitSignal      = 128
)

// usagef makes an error of the command line.
func usagef(format string, args ...any) *usageError {
	return &usageError{session.Error{Kind: session.ErrUsage, Text: fmt.Sprintf(format, args...)}}
}

type usageError struct{ err session.Error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return &e.err }

// hintf adds what to do about it.
func (e *usageError) hintf(format string, args ...any) error {
	e.err.Hint = fmt.Sprintf(format, args...)
	return e
}

// codeError ends the program with a code; err, if any, is reported.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *codeError) Unwrap() error { return e.err }

// severalError is the outcome of a verb for several sessions: each failure is
// reported. That something survived is the exit code before all others, then the
// highest.
type severalError struct{ all []error }

func (e *severalError) Error() string { return errors.Join(e.all...).Error() }

// several gives nil, the one error, or all of them.
func several(errs []error) error {
	var all []error
	for _, err := range errs {
		if err != nil {
			all = append(all, err)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return &severalError{all}
}

// report tells of a failure on stderr and gives the exit code.
func (a *app) report(err error) int {
	if list, ok := errors.AsType[*severalError](err); ok {
		code, survivors := 0, false
		for _, e := range list.all {
			c := a.report(e)
			survivors = survivors || c == exitSurvivors
			code = max(code, c)
		}
		if survivors {
			return exitSurvivors
		}
		return code
	}
	if c, ok := errors.AsType[*codeError](err); ok {
		if c.err != nil {
			a.tell(c.err)
		}
		return c.code
	}
	a.tell(err)
	if a.runLike {
		return runCode(err)
	}
	return verbCode(err)
}

func verbCode(err error) int {
	switch session.Code(err) {
	case "usage":
		return exitUsage
	case "not_found", "closed":
		return exitNoSession
	case "survivors":
		return exitSurvivors
	case "unsupported":
		return exitUnsupported
	case "permission":
		return exitPermission
	case "held":
		return exitHeld
	}
	return exitFailed
}

func runCode(err error) int {
	switch {
	case session.NotFoundCommand(err):
		return exitNotFound
	case errors.Is(err, session.ErrCommand):
		return exitCannotRun
	}
	return exitOwnFailure
}

// Failure is an error in JSON, one line on stderr.
type Failure struct {
	Schema int         `json:"schema"`
	Error  FailureInfo `json:"error"`
}

// FailureInfo is what went wrong.
type FailureInfo struct {
	Code      string `json:"code"` // see session.Code; interrupted
	Message   string `json:"message"`
	Hint      string `json:"hint,omitempty"`
	Session   string `json:"session,omitempty"`
	Retryable bool   `json:"retryable"`
	// Info is the session that holds a name.
	Info *session.Info `json:"info,omitempty"`
}

func failure(err error) Failure {
	f := FailureInfo{Code: session.Code(err), Message: err.Error()}
	if e, ok := errors.AsType[*session.Error](err); ok {
		f.Hint, f.Session, f.Retryable, f.Info = e.Hint, e.Session, e.Retry, e.Info
	}
	var i interrupted
	if errors.As(err, &i) || errors.Is(err, context.Canceled) {
		f.Code, f.Retryable = "interrupted", true
	}
	return Failure{Schema: session.Schema, Error: f}
}

// tell writes an error for whoever reads it.
func (a *app) tell(err error) {
	f := failure(err)
	if a.json {
		b, jerr := json.Marshal(f)
		if jerr == nil {
			fmt.Fprintf(a.stderr, "%s\n", b)
			return
		}
	}
	a.say("%s", oneLine(f.Error.Message))
	if f.Error.Hint != "" {
		a.say("hint: %s", f.Error.Hint)
	}
}

// oneLine keeps joined errors together.
func oneLine(s string) string { return strings.ReplaceAll(strings.TrimSpace(s), "\n", "; ") }
