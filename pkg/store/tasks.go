package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// AddTask gives t the session's next number and stores its first record. The
// lock must be LockStart or LockChange, and be held; that is what keeps numbers
// from being reused when old records are pruned.
//
// The number is claimed by the record's name appearing with its content, so that
// any number of starters may do this at once.
func (l *Lock) AddTask(t *Task) error {
	if l.fd < 0 || l.kind == LockClose {
		return fmt.Errorf("add task to session %s: needs a held start or change lock", l.id)
	}
	rec := *t
	rec.Schema, rec.N = Schema, 0 // the number is in the file's name
	err := rec.Check()
	if err == nil {
		err = l.addTask(&rec)
	}
	if err != nil {
		return fmt.Errorf("add task to session %s: %w", l.id, err)
	}
	*t = rec
	return nil
}

func (l *Lock) addTask(t *Task) error {
	data, err := marshalRecord(*t)
	if err != nil {
		return err
	}
	dir := l.store.tasksDir(l.id)
	tmp, err := writeTemp(dir, data)
	if errors.Is(err, fs.ErrNotExist) {
		// The directory of the tasks was lost; that of the session is there, or
		// Mkdir says that it is not.
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return gone(err)
		}
		tmp, err = writeTemp(dir, data)
	}
	if err != nil {
		return err
	}
	defer os.Remove(tmp)
	n := l.hint()
	for tries := 0; ; tries++ {
		// A hint that is far behind costs one listing, not a walk.
		if n == 0 || tries == 16 {
			if n, err = l.store.afterLastTask(l.id); err != nil {
				return err
			}
			tries = 0
		}
		if n > maxTask {
			return fmt.Errorf("%w: no task numbers left", ErrTooLarge)
		}
		err := linkNew(tmp, l.store.taskFile(l.id, n), data)
		if err == nil {
			t.N = n
			l.setHint(n + 1) // if this fails the next one finds the number taken
			return nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		n++
	}
}

// linkNew makes path the file tmp, unless path exists. Where there are no hard
// links the record may be seen empty for a moment, which the name still claims.
func linkNew(tmp, path string, data []byte) error {
	err := os.Link(tmp, path)
	if err == nil || errors.Is(err, fs.ErrExist) || !noLinks(err) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(path)
	}
	return err
}

func noLinks(err error) bool {
	for _, errno := range []error{unix.EPERM, unix.ENOTSUP, unix.EOPNOTSUPP, unix.ENOSYS, unix.EMLINK} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// hint reads the next number from the lock file; 0 when it tells none. Only the
// first line counts: a shorter number leaves digits of a longer one behind it.
func (l *Lock) hint() int {
	var buf [32]byte
	n, err := noEINTR(func() (int, error) { return unix.Pread(l.fd, buf[:], 0) })
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(buf[:n]), "\n")
	next, err := parseTask(line)
	if err != nil {
		return 0
	}
	return next
}

func (l *Lock) setHint(n int) error {
	_, err := noEINTR(func() (int, error) { return unix.Pwrite(l.fd, []byte(strconv.Itoa(n)+"\n"), 0) })
	if errors.Is(err, unix.EBADF) { // open for reading only: opening it for writing says why
		fd, err := openFile(filepath.Join(l.store.SessionDir(l.id), "lock"), unix.O_RDWR)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		_, err = unix.Pwrite(fd, []byte(strconv.Itoa(n)+"\n"), 0)
		return err
	}
	return err
}

func (s *Store) afterLastTask(id string) (int, error) {
	numbers, err := s.taskNumbers(id)
	if err != nil || len(numbers) == 0 {
		return 1, err
	}
	return slices.Max(numbers) + 1, nil
}

// Task reads one task's record: ErrNotFound when there is none, a *BadRecord
// when it cannot be used.
func (s *Store) Task(id string, n int) (Task, error) {
	if !ValidID(id) || n < 1 {
		return Task{}, fmt.Errorf("task %s/%d: %w", id, n, ErrNotFound)
	}
	path := s.taskFile(id, n)
	data, err := readRecord(path, s.dirs.UID)
	if errors.Is(err, fs.ErrNotExist) {
		return Task{}, fmt.Errorf("task %s/%d: %w", id, n, ErrNotFound)
	}
	if err == nil {
		var t Task
		if t, err = parseTaskRecord(data, n); err == nil {
			return t, nil
		}
	}
	return Task{}, &BadRecord{ID: id, Task: n, Path: path, Err: err}
}

func parseTaskRecord(data []byte, n int) (Task, error) {
	var t Task
	if err := t.UnmarshalJSON(data); err != nil {
		if newer := newerSchema(data); newer != nil {
			return Task{}, newer
		}
		return Task{}, err
	}
	if err := t.Check(); err != nil {
		return Task{}, err
	}
	if t.N != 0 && t.N != n {
		return Task{}, fmt.Errorf("record of task %d in the file of task %d", t.N, n)
	}
	t.N = n
	return t, nil
}

// PutTask replaces the record of the task t.N; ErrNotFound when the session was
// removed. Where several may write one record, use UpdateTask.
func (s *Store) PutTask(id string, t Task) error {
	t.Schema = Schema
	err := s.checkSession(id)
	if err == nil {
		err = t.Check()
	}
	if err == nil && t.N == 0 {
		err = errors.New("it has no number")
	}
	if err != nil {
		return fmt.Errorf("put task %s/%d: %w", id, t.N, err)
	}
	data, err := marshalRecord(t)
	if err == nil {
		err = writeRecord(s.tasksDir(id), filepath.Base(s.taskFile(id, t.N)), data)
	}
	if err != nil {
		return fmt.Errorf("put task %s/%d: %w", id, t.N, gone(err))
	}
	return nil
}

// UpdateTask changes a task's record under LockChange: change gets the record as
// it is now, so that whoever corrects records does not overwrite the end that a
// supervisor has just recorded. Its error is returned, and nothing is written.
func (s *Store) UpdateTask(ctx context.Context, id string, n int, change func(*Task) error) (Task, error) {
	lock, err := s.Lock(ctx, id, LockChange)
	if err != nil {
		return Task{}, err
	}
	defer lock.Unlock()
	t, err := s.Task(id, n)
	if err != nil {
		return Task{}, err
	}
	if err := change(&t); err != nil {
		return Task{}, err
	}
	return t, s.PutTask(id, t)
}

// PruneTasks removes the records of ended tasks but the newest keep of them, and
// tells how many. The highest number always stays, so that it is not given out
// again even when the hint is lost. Bad records stay. It takes LockChange. spare, if not nil, keeps more.
func (s *Store) PruneTasks(ctx context.Context, id string, keep int, spare func(Task) bool) (int, error) {
	lock, err := s.Lock(ctx, id, LockChange)
	if err != nil {
		return 0, err
	}
	defer lock.Unlock()
	dir := s.tasksDir(id)
	if entries, err := os.ReadDir(dir); err == nil {
		sweepTemp(dir, entries)
	}
	numbers, err := s.taskNumbers(id)
	if err != nil {
		return 0, fmt.Errorf("prune tasks of session %s: %w", id, err)
	}
	var ended []int
	for _, n := range numbers {
		if t, err := s.Task(id, n); err == nil && t.State.Ended() && n != numbers[len(numbers)-1] && (spare == nil || !spare(t)) {
			ended = append(ended, n)
		}
	}
	ended = ended[:max(0, len(ended)-max(0, keep))]
	if len(ended) == 0 {
		return 0, nil
	}
	// Starters at once may have left the hint behind; a number is free only
	// while its record holds it, so it must be right before one goes.
	if err := lock.setHint(numbers[len(numbers)-1] + 1); err != nil {
		return 0, fmt.Errorf("prune tasks of session %s: write the next number: %w", id, err)
	}
	removed := 0
	for _, n := range ended {
		if err := os.Remove(s.taskFile(id, n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return removed, fmt.Errorf("prune tasks of session %s: %w", id, err)
		}
		removed++
	}
	return removed, nil
}
