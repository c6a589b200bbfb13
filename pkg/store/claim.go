package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Claim makes the record of a new session and, if it has a name, takes that
// name. Either both happen or nothing does. The error is a *NameTakenError when
// a session that is not closed holds the name (or the name is another session's
// id), ErrExist when the id is in use. A name left by a closed session, or by a
// claim that was killed half way, is taken over. Directories are created as
// needed. Tasks that the session has already get their records, and their numbers are
// not given out again.
func (s *Store) Claim(ctx context.Context, rec Session, tasks ...Task) error {
	rec.Schema = Schema
	if err := rec.Check(); err != nil {
		return fmt.Errorf("claim session: %w", err)
	}
	data, err := firstFiles(rec, tasks)
	if err != nil {
		return fmt.Errorf("claim session %s: %w", rec.ID, err)
	}
	if err := s.makeDirs(); err != nil {
		return fmt.Errorf("claim session %s: %w", rec.ID, err)
	}
	if rec.Name == "" {
		err = s.create(rec.ID, data)
	} else {
		err = s.claimName(ctx, rec, data)
	}
	if err != nil {
		return fmt.Errorf("claim session %s: %w", rec.ID, err)
	}
	return nil
}

func (s *Store) makeDirs() error {
	if err := makeDir(s.dirs.State, s.dirs.UID, s.dirs.Given); err != nil {
		return err
	}
	if err := s.dirs.checkState(); err != nil {
		return err
	}
	for _, dir := range []string{s.namesDir(), s.sessionsDir()} {
		if err := makeDir(dir, s.dirs.UID, false); err != nil {
			return err
		}
	}
	if entries, err := os.ReadDir(s.sessionsDir()); err == nil {
		sweepTemp(s.sessionsDir(), entries)
	}
	return nil
}

// claimName takes the name, then makes the session. Names change hands only
// under names.lock, so that a symlink to nothing is the remains of a claimer that
// died, never one at work.
func (s *Store) claimName(ctx context.Context, rec Session, data []newFile) error {
	if ValidID(rec.Name) && s.checkSession(rec.Name) == nil {
		return &NameTakenError{Name: rec.Name, ID: rec.Name}
	}
	// A holder whose symlink was lost is found only by its record.
	if holder, err := s.findName(rec.Name); err != nil {
		return err
	} else if holder != "" {
		return &NameTakenError{Name: rec.Name, ID: holder}
	}
	release, err := s.lockNames(ctx)
	if err != nil {
		return err
	}
	defer release()
	link := filepath.Join(s.namesDir(), rec.Name)
	for {
		err := os.Symlink(rec.ID, link)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		id, taken, err := s.nameHolder(link, rec.Name)
		if err != nil {
			return err
		}
		if taken {
			return &NameTakenError{Name: rec.Name, ID: id}
		}
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := s.create(rec.ID, data); err != nil {
		os.Remove(link)
		return err
	}
	return nil
}

// nameHolder tells whether the session that a name points to still has it. A
// record that cannot be read keeps its name: it may be a living session.
func (s *Store) nameHolder(link, name string) (id string, taken bool, err error) {
	id, err = os.Readlink(link)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("%w: %s is no claim of a name", err, link)
	}
	rec, err := s.Get(id)
	switch {
	case errors.Is(err, ErrNotFound):
		return id, false, nil
	case err != nil:
		return id, true, nil
	}
	// On a file system that ignores case the link may be for another spelling.
	return id, rec.State != StateClosed && strings.EqualFold(rec.Name, name), nil
}

func (s *Store) lockNames(ctx context.Context) (release func(), err error) {
	path := filepath.Join(s.dirs.State, "names.lock")
	fd, err := openLock(path)
	if err != nil {
		return nil, err
	}
	if _, err := checkFile(path, fd, s.dirs.UID); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := flock(ctx, fd, unix.LOCK_EX); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("lock names: %w", err)
	}
	return func() { unlock(fd) }, nil
}

// create builds the session's directory aside and renames it into place.
func (s *Store) create(id string, files []newFile) error {
	tmp := tmpName(s.sessionsDir())
	err := writeFiles(tmp, files)
	if err == nil {
		err = os.Rename(tmp, s.SessionDir(id))
	}
	if err != nil {
		os.RemoveAll(tmp)
		if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) {
			return fmt.Errorf("%w: %w", ErrExist, err)
		}
	}
	return err
}

// newFile is a file of a new session.
type newFile struct {
	name string
	data []byte
}

// firstFiles gives the files of a new session.
func firstFiles(rec Session, tasks []Task) ([]newFile, error) {
	data, err := marshalRecord(rec)
	if err != nil {
		return nil, err
	}
	files := []newFile{{"close.lock", nil}, {sessionFile, data}}
	next := 1
	for _, t := range tasks {
		t.Schema = Schema
		if err := t.Check(); err != nil {
			return nil, err
		}
		if t.N < 1 {
			return nil, errors.New("a task without a number")
		}
		data, err := marshalRecord(t)
		if err != nil {
			return nil, err
		}
		files = append(files, newFile{filepath.Join("tasks", strconv.Itoa(t.N)+".json"), data})
		next = max(next, t.N+1)
	}
	return append(files, newFile{"lock", []byte(strconv.Itoa(next) + "\n")}), nil
}

func writeFiles(dir string, files []newFile) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(dir, "tasks"), 0o700); err != nil {
		return err
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f.name), f.data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Remove forgets a session: its name, if it still holds it, its records and
// whatever else is in its directory. Removing what is not there is no error. The
// caller holds LockClose and has made sure that no task is being started; those
// who wait for a lock of the session get ErrNotFound.
func (s *Store) Remove(ctx context.Context, id string) error {
	if !ValidID(id) {
		return fmt.Errorf("remove session %q: %w", id, ErrNotFound)
	}
	if err := s.checkSession(id); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("remove session: %w", err)
	}
	rec, err := s.Get(id)
	if err := s.releaseName(ctx, id, rec.Name, err == nil); err != nil {
		return fmt.Errorf("remove session %s: %w", id, err)
	}
	tmp := tmpName(s.sessionsDir())
	switch err := os.Rename(s.SessionDir(id), tmp); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("remove session %s: %w", id, err)
	}
	os.Remove(s.boxlessFile(id))
	if err := os.RemoveAll(tmp); err != nil {
		return fmt.Errorf("remove session %s: %w", id, err)
	}
	return nil
}

// releaseName removes the names that point to id: the one in the record, or,
// when the record does not tell, any.
func (s *Store) releaseName(ctx context.Context, id, name string, known bool) error {
	if known && name == "" {
		return nil
	}
	names := []string{name}
	if !known {
		names = names[:0]
		all, err := s.names()
		if err != nil {
			return err
		}
		for n, holder := range all {
			if holder == id {
				names = append(names, n)
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	release, err := s.lockNames(ctx)
	if err != nil {
		return err
	}
	defer release()
	for _, n := range names {
		link := filepath.Join(s.namesDir(), n)
		if holder, err := os.Readlink(link); err != nil || holder != id {
			continue
		}
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Sweep removes what claimers that were killed have left: names of no session, and
// temporary files that are old enough. What cannot be removed is tried again next time.
func (s *Store) Sweep(ctx context.Context) error {
	if entries, err := os.ReadDir(s.sessionsDir()); err == nil {
		sweepTemp(s.sessionsDir(), entries)
	}
	all, err := s.names()
	if err != nil {
		return fmt.Errorf("sweep names: %w", err)
	}
	var left []string
	for name, id := range all {
		if errors.Is(s.checkSession(id), ErrNotFound) {
			left = append(left, name)
		}
	}
	if len(left) == 0 {
		return nil
	}
	release, err := s.lockNames(ctx)
	if err != nil {
		return fmt.Errorf("sweep names: %w", err)
	}
	defer release()
	for _, name := range left {
		// A claimer makes the session before it lets go of the lock.
		link := filepath.Join(s.namesDir(), name)
		if id, rerr := os.Readlink(link); rerr == nil && errors.Is(s.checkSession(id), ErrNotFound) {
			err = errors.Join(err, os.Remove(link))
		}
	}
	return err
}
