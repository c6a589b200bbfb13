package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// MaxLineage is the most bytes that one file of a lineage may have: some hundred for each
// process that is known of.
const MaxLineage = 64 << 20

// What is known of the processes of a session that no kernel object holds is kept in files
// of its directory, one for each that writes it, so that nobody waits for a lock: a task's
// keeper writes its own. Who reads puts them together.
const lineagePrefix, lineageSuffix = "lineage-", ".json"

func lineageFile(part string) (string, error) {
	if part == "" || strings.ContainsAny(part, "/.") {
		return "", fmt.Errorf("%q names no part of a lineage", part)
	}
	return lineagePrefix + part + lineageSuffix, nil
}

// lineageMark is a file that says that sessions here may be held by their lineage alone.
const lineageMark = "lineage"

// MarkLineage notes that a session here is held by its lineage alone, for good.
func (s *Store) MarkLineage() error {
	path := filepath.Join(s.dirs.State, lineageMark)
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("note that there are lineages: %w", err)
	}
	return f.Close()
}

// MayHaveLineage says whether sessions may be held by their lineage alone: one was opened
// with these records, or there are none and they may be lost. Who wants to find such
// sessions without their records has to read the whole process table.
func (s *Store) MayHaveLineage() bool {
	if _, err := os.Lstat(filepath.Join(s.dirs.State, lineageMark)); err == nil {
		return true
	}
	f, err := os.Open(s.sessionsDir())
	if err != nil {
		return true
	}
	defer f.Close()
	names, _ := f.Readdirnames(1)
	return len(names) == 0
}

// PutLineage writes one part of what is known of a session's processes, whole or not at all.
// ErrNotFound: the session is gone.
func (s *Store) PutLineage(id, part string, data []byte) error {
	if err := s.checkSession(id); err != nil {
		return fmt.Errorf("record the processes of session %s: %w", id, err)
	}
	name, err := lineageFile(part)
	if err == nil {
		err = writeRecord(s.SessionDir(id), name, data)
	}
	if err != nil {
		return fmt.Errorf("record the processes of session %s: %w", id, gone(err))
	}
	return nil
}

// Lineage reads all parts. One that cannot be read does not hide the others: the error then
// comes with those.
func (s *Store) Lineage(id string) (map[string][]byte, error) {
	if err := s.checkSession(id); err != nil {
		return nil, fmt.Errorf("read the processes of session %s: %w", id, err)
	}
	entries, err := os.ReadDir(s.SessionDir(id))
	if err != nil {
		return nil, fmt.Errorf("read the processes of session %s: %w", id, gone(err))
	}
	parts := map[string][]byte{}
	var failed error
	for _, e := range entries {
		rest, first := strings.CutPrefix(e.Name(), lineagePrefix)
		part, last := strings.CutSuffix(rest, lineageSuffix)
		if !first || !last {
			continue
		}
		b, err := readUpTo(filepath.Join(s.SessionDir(id), e.Name()), s.dirs.UID, MaxLineage)
		switch {
		case err == nil:
			parts[part] = b
		case !errors.Is(err, fs.ErrNotExist): // else it was removed meanwhile
			failed = errors.Join(failed, fmt.Errorf("read %s of session %s: %w", e.Name(), id, err))
		}
	}
	return parts, failed
}

// LineagePart reads one part, nil if it is not there.
func (s *Store) LineagePart(id, part string) ([]byte, error) {
	name, err := lineageFile(part)
	if err != nil {
		return nil, err
	}
	if err := s.checkSession(id); err != nil {
		return nil, fmt.Errorf("read the processes of session %s: %w", id, err)
	}
	b, err := readUpTo(filepath.Join(s.SessionDir(id), name), s.dirs.UID, MaxLineage)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// RemoveLineage removes one part; one that is not there is no error.
func (s *Store) RemoveLineage(id, part string) error {
	name, err := lineageFile(part)
	if err != nil {
		return err
	}
	if err := s.checkSession(id); err != nil {
		return fmt.Errorf("forget processes of session %s: %w", id, err)
	}
	if err := os.Remove(filepath.Join(s.SessionDir(id), name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget processes of session %s: %w", id, err)
	}
	return nil
}
