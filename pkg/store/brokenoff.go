package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// brokenOffFile holds the receipt of a close that did not come to its end, for the next one.
const brokenOffFile = "broken-off.json"

// PutBrokenOff keeps the receipt of a close that did not come to its end, until the session
// is removed. ErrNotFound: it is.
func (s *Store) PutBrokenOff(id string, receipt []byte) error {
	err := s.checkSession(id)
	switch {
	case err != nil:
	case len(receipt) > MaxRecord:
		err = fmt.Errorf("%w: %d bytes, a record has at most %d", ErrTooLarge, len(receipt), MaxRecord)
	default:
		err = writeRecord(s.SessionDir(id), brokenOffFile, receipt)
	}
	if err != nil {
		return fmt.Errorf("keep the receipt of session %s: %w", id, gone(err))
	}
	return nil
}

// BrokenOff reads that receipt, nil if there is none.
func (s *Store) BrokenOff(id string) ([]byte, error) {
	if err := s.checkSession(id); err != nil {
		return nil, fmt.Errorf("read the receipt of session %s: %w", id, err)
	}
	b, err := readRecord(filepath.Join(s.SessionDir(id), brokenOffFile), s.dirs.UID)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the receipt of session %s: %w", id, err)
	}
	return b, nil
}
