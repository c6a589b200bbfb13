package store

import (
	"errors"
	"fmt"
	"strings"
)

// Errors to compare with errors.Is. Causes from the operating system
// (syscall.ENOSPC, EROFS, EACCES, …) can be found the same way.
var (
	// ErrNotFound: no such session or task.
	ErrNotFound = errors.New("not found")
	// ErrExist: the id is in use.
	ErrExist = errors.New("session id exists already")
	// ErrNameTaken is matched by every *NameTakenError.
	ErrNameTaken = errors.New("session name is taken")
	// ErrAmbiguous is matched by every *AmbiguousError.
	ErrAmbiguous = errors.New("ambiguous")
	// ErrBadName: not [A-Za-z0-9][A-Za-z0-9._-]{0,63}.
	ErrBadName = errors.New("not a session name: want a letter or digit, then up to 63 of letters, digits, '.', '_', '-'")
	// ErrForeign: a directory or file belongs to another user, or others can
	// write to it.
	ErrForeign = errors.New("not safely ours")
	// ErrNewerSchema: written by a newer version.
	ErrNewerSchema = errors.New("written by a newer sessionbox")
	// ErrNotRegular: where a record should be is something else.
	ErrNotRegular = errors.New("not a regular file")
	// ErrTooLarge: a record or history line beyond its limit.
	ErrTooLarge = errors.New("too large")
)

// NameTakenError says which session holds a name.
type NameTakenError struct {
	Name string
	ID   string // the holder
}

func (e *NameTakenError) Error() string {
	return fmt.Sprintf("name %q is held by session %s", e.Name, e.ID)
}

// Is makes the error match ErrNameTaken.
func (e *NameTakenError) Is(target error) bool { return target == ErrNameTaken }

// Match is one session that a reference could mean.
type Match struct {
	ID   string
	Name string // may be empty
}

func (m Match) String() string {
	if m.Name == "" {
		return m.ID
	}
	return m.Name + " (" + m.ID + ")"
}

// AmbiguousError lists the sessions that a prefix fits, by id.
type AmbiguousError struct {
	Ref     string
	Matches []Match
}

func (e *AmbiguousError) Error() string {
	names := make([]string, 0, len(e.Matches))
	for _, m := range e.Matches {
		names = append(names, m.String())
	}
	return fmt.Sprintf("%q fits %d sessions: %s", e.Ref, len(e.Matches), strings.Join(names, ", "))
}

// Is makes the error match ErrAmbiguous.
func (e *AmbiguousError) Is(target error) bool { return target == ErrAmbiguous }

// BadRecord is a record that is there and cannot be used. It is an error, and it
// is what listings return in the record's place.
type BadRecord struct {
	ID   string // the session, from the directory's name
	Task int    // the task's number, 0 for the session's own record
	Path string // the file
	Err  error  // why
}

func (e *BadRecord) Error() string {
	return fmt.Sprintf("bad record %s: %v", e.Path, e.Err)
}

// Unwrap gives the cause.
func (e *BadRecord) Unwrap() error { return e.Err }
