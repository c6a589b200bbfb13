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

// GuardNote is what a guard says of itself in the file that it holds locked.
type GuardNote struct {
	Process ProcID `json:"process"`
	// OnDemand says that the opener of a session started it: it gives way to one that
	// was started by hand or by a service manager.
	OnDemand bool      `json:"on_demand,omitempty"`
	Since    time.Time `json:"since"`
	// Ready says that it watches.
	Ready   bool   `json:"ready,omitempty"`
	Metrics string `json:"metrics,omitempty"` // where they are served
	// Hold says why new sessions are to wait; "": they are not. It holds as long as the
	// lock is held, so that a guard that has died holds nobody.
	Hold string `json:"hold,omitempty"`
}

// maxHold keeps a note within what [Store.Guard] reads.
const maxHold = 500

// GuardLock is held by the one guard of a state directory. The kernel drops it when
// the process ends, whatever ends it; the file stays and means nothing by itself.
type GuardLock struct {
	path string
	fd   int
}

func (s *Store) guardFile() string { return filepath.Join(s.dirs.State, "guard.lock") }

// LockGuard waits for the guard's lock until ctx ends; a ctx that has ended already
// makes it try once. It should be given a moment: those who only look, see
// [Store.Guard], hold the lock while they do. Directories are made as needed.
func (s *Store) LockGuard(ctx context.Context) (*GuardLock, error) {
	path := s.guardFile()
	for {
		if err := s.makeDirs(); err != nil {
			return nil, fmt.Errorf("lock guard: %w", err)
		}
		fd, err := openFile(path, unix.O_RDWR|unix.O_CREAT)
		if err != nil {
			return nil, fmt.Errorf("lock guard: %w", err)
		}
		l := &GuardLock{path: path, fd: fd}
		if _, err = checkFile(path, fd, s.dirs.UID); err == nil {
			err = flock(ctx, fd, unix.LOCK_EX)
		}
		if err != nil {
			unix.Close(fd)
			return nil, fmt.Errorf("lock guard: %s: %w", path, err)
		}
		if l.Valid() {
			unix.Ftruncate(fd, 0) // one that was killed has left its note
			return l, nil
		}
		l.Unlock() // the file was removed while we waited
	}
}

// Valid says whether the lock still is the one that others look for: not if its file
// was removed, with its directory for instance.
func (l *GuardLock) Valid() bool { return l.fd >= 0 && samePath(l.path, l.fd) }

// Note replaces what the file says of its holder.
func (l *GuardLock) Note(n GuardNote) error {
	n.Hold = n.Hold[:min(len(n.Hold), maxHold)]
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	b = append(b, '\n')
	// In one write and without emptying the file before: who reads meanwhile gets the
	// old note or the new one.
	for _, write := range []func() (int, error){
		func() (int, error) { return unix.Pwrite(l.fd, b, 0) },
		func() (int, error) { return 0, unix.Ftruncate(l.fd, int64(len(b))) },
	} {
		if _, err := noEINTR(write); err != nil {
			return &fs.PathError{Op: "write", Path: l.path, Err: err}
		}
	}
	return nil
}

// Unlock releases the lock. Further calls do nothing.
func (l *GuardLock) Unlock() {
	if l == nil || l.fd < 0 {
		return
	}
	unix.Ftruncate(l.fd, 0) // else the next holder seems to be us until it has its note
	unlock(l.fd)
	l.fd = -1
}

// Guard says whether a guard holds the lock, and what it says of itself: nothing, if
// it has not come to that yet.
func (s *Store) Guard() (note GuardNote, held bool, err error) {
	fd, err := openFile(s.guardFile(), unix.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return GuardNote{}, false, nil
	}
	if err != nil {
		return GuardNote{}, false, err
	}
	defer unix.Close(fd)
	switch err := unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB); {
	case err == nil:
		unix.Flock(fd, unix.LOCK_UN)
		return GuardNote{}, false, nil
	case !errors.Is(err, unix.EWOULDBLOCK):
		return GuardNote{}, false, &fs.PathError{Op: "flock", Path: s.guardFile(), Err: err}
	}
	var buf [4096]byte
	n, err := noEINTR(func() (int, error) { return unix.Pread(fd, buf[:], 0) })
	if err != nil {
		return GuardNote{}, true, nil
	}
	// A longer note of an earlier holder may still stick out behind a new one.
	line := buf[:n]
	for i, c := range line {
		if c == '\n' {
			line = line[:i]
			break
		}
	}
	if json.Unmarshal(line, &note) != nil {
		note = GuardNote{}
	}
	return note, true, nil
}

// SessionsDir is where the directories of the sessions are.
func (s *Store) SessionsDir() string { return s.sessionsDir() }
