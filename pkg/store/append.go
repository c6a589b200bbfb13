package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// MaxLine is the most bytes that a line of history may have.
const MaxLine = 64 << 10

// appendWait is how long Append waits for the file's lock. It is a courtesy:
// without it lines still do not mix, only the repair of a torn line is left to
// the next writer.
const appendWait = time.Second

// HistoryError is any failure to keep history, so that callers can carry on: a
// full disk must not keep a session from being closed.
type HistoryError struct {
	Path string
	Err  error
}

func (e *HistoryError) Error() string { return fmt.Sprintf("history %s: %v", e.Path, e.Err) }

// Unwrap gives the cause.
func (e *HistoryError) Unwrap() error { return e.Err }

// Append adds an event to the file of its month, in one write. A Detail that
// makes the line longer than MaxLine is replaced by a note of its size. What a
// killed or failed writer left of a line is fenced off by a newline and costs
// that line alone. Every error is a *HistoryError.
func (s *Store) Append(ctx context.Context, e Event) error {
	e.Schema, e.UID = Schema, s.dirs.UID
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	path := filepath.Join(s.dirs.History, monthFile(e.Time))
	err := s.append(ctx, path, e)
	if err != nil {
		return &HistoryError{Path: path, Err: err}
	}
	return nil
}

func (s *Store) append(ctx context.Context, path string, e Event) error {
	line, err := eventLine(e)
	if err != nil {
		return err
	}
	fd, err := s.openMonth(path)
	if err != nil {
		return err
	}
	defer unlock(fd)
	if _, err := checkFile(path, fd, s.dirs.UID); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, appendWait)
	defer cancel()
	locked := flock(ctx, fd, unix.LOCK_EX) == nil
	size, err := checkFile(path, fd, s.dirs.UID)
	if err != nil {
		return err
	}
	if size > 0 {
		var last [1]byte
		if n, err := unix.Pread(fd, last[:], size-1); err == nil && n == 1 && last[0] != '\n' {
			line = append([]byte{'\n'}, line...)
		}
	}
	n, err := noEINTR(func() (int, error) { return unix.Write(fd, line) })
	if err == nil && n < len(line) {
		err = unix.ENOSPC // the only reason for a short write to a regular file
	}
	if err != nil {
		if locked && n > 0 {
			unix.Ftruncate(fd, size) // nobody else has written since
		}
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

func (s *Store) openMonth(path string) (int, error) {
	const flags = unix.O_RDWR | unix.O_APPEND | unix.O_CREAT
	fd, err := openFile(path, flags)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeDir(s.dirs.History, s.dirs.UID, true); err != nil {
			return -1, err
		}
		return openFile(path, flags)
	}
	return fd, err
}

func eventLine(e Event) ([]byte, error) {
	if e.Event == "" {
		return nil, errors.New("event has no kind")
	}
	line, err := e.MarshalJSON()
	if err != nil {
		return nil, err
	}
	if len(line) >= MaxLine && len(e.Detail) > 0 {
		if e.Detail, err = json.Marshal(map[string]int{"dropped_bytes": len(e.Detail)}); err != nil {
			return nil, err
		}
		if line, err = e.MarshalJSON(); err != nil {
			return nil, err
		}
	}
	if len(line) >= MaxLine {
		return nil, fmt.Errorf("%w: event of %d bytes, a line has at most %d", ErrTooLarge, len(line), MaxLine)
	}
	return append(line, '\n'), nil
}

const (
	monthPrefix = "history-"
	monthLayout = "2006-01"
	monthSuffix = ".jsonl"
)

// monthFile is the name of the file that an event of the time t goes to.
func monthFile(t time.Time) string {
	return monthPrefix + t.UTC().Format(monthLayout) + monthSuffix
}
