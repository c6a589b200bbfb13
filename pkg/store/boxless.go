package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// boxlessPrefix begins the name of a file that says that a session may have no box any more:
// a close has removed it, and could not end what others run for the session.
const boxlessPrefix = "boxless-"

func (s *Store) boxlessFile(id string) string { return filepath.Join(s.dirs.State, boxlessPrefix+id) }

// MarkBoxless notes that a recorded session may have no box, until it is removed.
func (s *Store) MarkBoxless(id string) error {
	if err := s.checkSession(id); err != nil {
		return fmt.Errorf("note that session %s has no box: %w", id, err)
	}
	f, err := os.OpenFile(s.boxlessFile(id), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("note that session %s has no box: %w", id, err)
	}
	return f.Close()
}

// Boxless gives the records of the sessions that may have no box: no kernel object names
// them. What a killed remover has left is removed.
func (s *Store) Boxless() ([]Session, error) {
	entries, err := os.ReadDir(s.dirs.State)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for sessions without a box: %w", err)
	}
	var recs []Session
	for _, e := range entries {
		id, ok := strings.CutPrefix(e.Name(), boxlessPrefix)
		if !ok || !ValidID(id) {
			continue
		}
		rec, err := s.Get(id)
		switch {
		case err == nil:
			recs = append(recs, rec)
		case errors.Is(err, ErrNotFound): // ids are not given out again
			os.Remove(s.boxlessFile(id))
		}
	}
	return recs, nil
}
