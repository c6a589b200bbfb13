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
