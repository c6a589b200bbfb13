package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// LockKind says what a session is locked for.
type LockKind int

const (
	// LockStart is held while a task is being started. Many may hold it at once,
	// nobody while another holds LockChange.
	LockStart LockKind = iota + 1
	// LockChange is held alone, while the session's state or its task records
	// are changed.
	LockChange
	// LockClose is held alone by whoever closes the session, for as long as that
	// takes. It excludes no other kind.
	LockClose
)

func (k LockKind) String() string {
	switch k {
	case LockStart:
		return "start"
	case LockChange:
		return "change"
	case LockClose:
		return "close"
	default:
		return fmt.Sprintf("LockKind(%d)", int(k))
	}
}

// Lock is a held lock. The kernel drops it when the process ends.
type Lock struct {
	store *Store
	id    string
	kind  LockKind
	fd    int
}

// Unlock releases the lock. Further calls do nothing. It is not for two
// goroutines at once.
func (l *Lock) Unlock() {
	if l == nil || l.fd < 0 {
		return
	}
	unlock(l.fd)
	l.fd = -1
}

// Lock waits for the lock until ctx ends; a ctx that has ended already makes it
// try once. It works on a read-only file system. ErrNotFound: the session is
// gone, or was removed while waiting.
//
// A waiter for LockChange is not starved by a stream of tasks being started: it
// holds the session's directory locked meanwhile, and starters pass that first.
func (s *Store) Lock(ctx context.Context, id string, kind LockKind) (*Lock, error) {
	lock, err := s.lock(ctx, id, kind)
	if err != nil {
		return nil, fmt.Errorf("lock session %s to %v: %w", id, kind, err)
	}
	return lock, nil
}

func (s *Store) lock(ctx context.Context, id string, kind LockKind) (*Lock, error) {
	if err := s.checkSession(id); err != nil {
		return nil, err
	}
	name, how := "lock", unix.LOCK_EX
	switch kind {
	case LockStart:
		how = unix.LOCK_SH
	case LockChange:
	case LockClose:
		name = "close.lock"
	default:
		return nil, errors.New("no such lock")
	}
	dir := s.SessionDir(id)
	if kind != LockClose {
		turnstile, err := openFile(dir, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return nil, gone(err)
		}
		defer unlock(turnstile)
		if err := flock(ctx, turnstile, how); err != nil && !noFlock(err) {
			return nil, err
		}
	}
	path := filepath.Join(dir, name)
	fd, err := openLock(path)
	if err != nil {
		return nil, gone(err)
	}
	if _, err := checkFile(path, fd, s.dirs.UID); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := flock(ctx, fd, how); err != nil {
		unix.Close(fd)
		return nil, err
	}
	if !samePath(path, fd) {
		unlock(fd)
		return nil, fmt.Errorf("%w: removed meanwhile", ErrNotFound)
	}
	return &Lock{store: s, id: id, kind: kind, fd: fd}, nil
}

// openLock opens a lock file for writing where that can be, creates it where it
// is missing, and falls back to reading: flock needs no more.
func openLock(path string) (int, error) {
	fd, err := openFile(path, unix.O_RDWR|unix.O_CREAT)
	if err == nil {
		return fd, nil
	}
	if fd, rerr := openFile(path, unix.O_RDONLY); rerr == nil {
		return fd, nil
	}
	return -1, err
}

// flock waits in the kernel's queue, which is served in order: polling would
// starve some of two hundred waiters. flock(2) cannot be cancelled, and the
// holder may be a stopped process; so a goroutine waits on a copy of the
// descriptor, and one that is given up drops the lock as soon as it gets it.
func flock(ctx context.Context, fd, how int) error {
	try := func(fd, how int) error {
		_, err := noEINTR(func() (struct{}, error) { return struct{}{}, unix.Flock(fd, how) })
		return err
	}
	err := try(fd, how|unix.LOCK_NB)
	if err == nil || !errors.Is(err, unix.EWOULDBLOCK) {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("held by another: %w", context.Cause(ctx))
	}
	same, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	got := make(chan error, 1)
	go func() {
		err := try(same, how)
		unix.Close(same) // fd, if it is still open, keeps the lock
		got <- err
	}()
	select {
	case err := <-got:
		return err
	case <-ctx.Done():
		return fmt.Errorf("held by another: %w", context.Cause(ctx))
	}
}

// Turn waits, until ctx ends, for this user's turn at something that serves one
// at a time anyway, and gives the way to pass it on. Whoever cannot get it, or
// where it cannot be kept, goes on without: it is a courtesy.
func (s *Store) Turn(ctx context.Context) (done func()) { return s.turn(ctx, "turn.lock") }

// TurnOf is a turn at something that serves so many at a time; each process waits in one of
// as many queues.
func (s *Store) TurnOf(ctx context.Context, what string, most int) (done func()) {
	return s.turn(ctx, fmt.Sprintf("turn-%s-%d.lock", what, os.Getpid()%most))
}

func (s *Store) turn(ctx context.Context, name string) (done func()) {
	fd, err := openLock(filepath.Join(s.dirs.State, name))
	if err != nil {
		return func() {}
	}
	if flock(ctx, fd, unix.LOCK_EX) != nil {
		unix.Close(fd)
		return func() {}
	}
	return func() { unlock(fd) }
}

// Owe notes the name of something that is left to do for a service that could not be
// reached. That it cannot be noted is not told: there is nothing that the caller
// could do.
func (s *Store) Owe(name string) {
	fd, err := openFile(s.owedFile(), unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	unix.Write(fd, []byte(name+"\n"))
}

// Owed gives the names that were noted and forgets them: what cannot be done now is
// to be noted again.
func (s *Store) Owed() []string {
	b, err := readRecord(s.owedFile(), s.dirs.UID)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	unix.Unlink(s.owedFile())
	return strings.Fields(string(b))
}

func (s *Store) owedFile() string { return filepath.Join(s.dirs.State, "owed") }

// noFlock tells a file system that cannot lock a directory (NFS wants it open
// for writing) from one that is held.
func noFlock(err error) bool {
	return errors.Is(err, unix.EBADF) || errors.Is(err, unix.ENOLCK) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EINVAL)
}

// unlock releases explicitly: a child between fork and exec still has a copy of
// the descriptor, and closing ours would leave the lock with it.
func unlock(fd int) {
	unix.Flock(fd, unix.LOCK_UN)
	unix.Close(fd)
}

// samePath tells whether path still is the file that fd has open.
func samePath(path string, fd int) bool {
	var a, b unix.Stat_t
	if unix.Fstat(fd, &a) != nil || unix.Lstat(path, &b) != nil {
		return false
	}
	return a.Dev == b.Dev && a.Ino == b.Ino
}
