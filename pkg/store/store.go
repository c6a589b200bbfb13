package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// Store reads and writes records. It has no state of its own besides its
// directories, and may be used by many goroutines and processes at once.
type Store struct {
	dirs Dirs
}

// Open checks that the state directory, if it exists, is safely the user's.
// It creates nothing: that happens at the first Claim and the first Append.
func Open(d Dirs) (*Store, error) {
	if !filepath.IsAbs(d.State) || !filepath.IsAbs(d.History) {
		return nil, fmt.Errorf("open store: want absolute directories, have %q and %q", d.State, d.History)
	}
	if err := d.checkState(); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	return &Store{dirs: d}, nil
}

// Unusable is the store of one whose directories cannot be used: it holds
// nothing, and every write fails. Ending things must not depend on records.
func Unusable() *Store {
	nowhere := filepath.Join(os.DevNull, "sessionbox") // below what is no directory
	return &Store{dirs: Dirs{State: nowhere, History: filepath.Join(nowhere, "history"), UID: os.Geteuid()}}
}

// Dirs tells where the store keeps things.
func (s *Store) Dirs() Dirs { return s.dirs }

func (s *Store) namesDir() string    { return filepath.Join(s.dirs.State, "names") }
func (s *Store) sessionsDir() string { return filepath.Join(s.dirs.State, "sessions") }

// SessionDir is the directory of a session's records. Callers may keep files of
// their own there (logs, sockets) below names that the layout does not use;
// Remove takes them with it.
func (s *Store) SessionDir(id string) string { return filepath.Join(s.sessionsDir(), id) }

// StateDir is where the records are.
func (s *Store) StateDir() string { return s.dirs.State }

func (s *Store) tasksDir(id string) string { return filepath.Join(s.SessionDir(id), "tasks") }

func (s *Store) taskFile(id string, n int) string {
	return filepath.Join(s.tasksDir(id), strconv.Itoa(n)+".json")
}

const sessionFile = "session.json"

// Get reads a session's record: ErrNotFound when there is no such session, a
// *BadRecord when there is one whose record cannot be used.
func (s *Store) Get(id string) (Session, error) {
	if err := s.checkSession(id); err != nil {
		return Session{}, err
	}
	path := filepath.Join(s.SessionDir(id), sessionFile)
	data, err := readRecord(path, s.dirs.UID)
	if err == nil {
		var rec Session
		if rec, err = parseSession(data, id); err == nil {
			return rec, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		if gone := s.checkSession(id); errors.Is(gone, ErrNotFound) {
			return Session{}, gone // it was removed since its directory was seen
		}
	}
	return Session{}, &BadRecord{ID: id, Path: path, Err: err}
}

// parseSession reads and judges the record of the session id.
func parseSession(data []byte, id string) (Session, error) {
	var rec Session
	if err := rec.UnmarshalJSON(data); err != nil {
		// What a newer version changed may well not decode; its number says why.
		if newer := newerSchema(data); newer != nil {
			return Session{}, newer
		}
		return Session{}, err
	}
	if err := rec.Check(); err != nil {
		return Session{}, err
	}
	if rec.ID != id {
		return Session{}, fmt.Errorf("record of session %q in the directory of %s", rec.ID, id)
	}
	return rec, nil
}

func newerSchema(data []byte) error {
	var head struct {
		Schema int `json:"schema"`
	}
	if json.Unmarshal(data, &head) == nil && head.Schema > Schema {
		return checkSchema(head.Schema)
	}
	return nil
}

// checkSession answers ErrNotFound for no session directory, and refuses one of
// another user with a *BadRecord.
func (s *Store) checkSession(id string) error {
	if !ValidID(id) {
		return fmt.Errorf("session %q: %w", id, ErrNotFound)
	}
	dir := s.SessionDir(id)
	exists, err := statDir(dir, s.dirs.UID, false)
	if err != nil {
		return &BadRecord{ID: id, Path: dir, Err: err}
	}
	if !exists {
		return fmt.Errorf("session %s: %w", id, ErrNotFound)
	}
	return nil
}

// Put replaces a session's record; ErrNotFound when the session was removed.
// Two writers at once lose one's changes: hold LockChange, or use Update.
func (s *Store) Put(rec Session) error {
	rec.Schema = Schema
	if err := rec.Check(); err != nil {
		return fmt.Errorf("put session: %w", err)
	}
	if err := s.checkSession(rec.ID); err != nil {
		return fmt.Errorf("put session: %w", err)
	}
	data, err := marshalRecord(rec)
	if err != nil {
		return fmt.Errorf("put session %s: %w", rec.ID, err)
	}
	dir := s.SessionDir(rec.ID)
	if entries, err := os.ReadDir(dir); err == nil {
		sweepTemp(dir, entries)
	}
	if err := writeRecord(dir, sessionFile, data); err != nil {
		return fmt.Errorf("put session %s: %w", rec.ID, gone(err))
	}
	return nil
}

// Update changes a session's record under LockChange: change gets the record as
// it is now. Its error is returned, and nothing is written then.
func (s *Store) Update(ctx context.Context, id string, change func(*Session) error) (Session, error) {
	lock, err := s.Lock(ctx, id, LockChange)
	if err != nil {
		return Session{}, err
	}
	defer lock.Unlock()
	rec, err := s.Get(id)
	if err != nil {
		return Session{}, err
	}
	if err := change(&rec); err != nil {
		return Session{}, err
	}
	return rec, s.Put(rec)
}

// marshalRecord is one line of JSON with a newline, within MaxRecord.
func marshalRecord(rec json.Marshaler) ([]byte, error) {
	data, err := rec.MarshalJSON()
	if err != nil {
		return nil, err
	}
	if len(data) >= MaxRecord {
		return nil, fmt.Errorf("%w: %d bytes, a record has at most %d", ErrTooLarge, len(data), MaxRecord)
	}
	return append(data, '\n'), nil
}

// gone turns a missing directory below a session into ErrNotFound.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}
