package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// Sessions reads all records, oldest first, and next to them those that cannot
// be used. The error is for the directory of the sessions itself; a state
// directory that does not exist holds no sessions.
func (s *Store) Sessions() ([]Session, []*BadRecord, error) {
	entries, err := os.ReadDir(s.sessionsDir())
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil, nil
		}
		return nil, nil, fmt.Errorf("list sessions: %w", err)
	}
	recs, errs := make([]Session, len(entries)), make([]error, len(entries))
	var wg sync.WaitGroup
	workers := min(runtime.GOMAXPROCS(0), len(entries))
	for w := range workers {
		wg.Go(func() {
			for i := w; i < len(entries); i += workers {
				recs[i], errs[i] = s.Get(entries[i].Name())
			}
		})
	}
	wg.Wait()
	good := make([]Session, 0, len(entries))
	var bad []*BadRecord
	for i, e := range entries {
		if !ValidID(e.Name()) {
			continue // a claim or a removal under way
		}
		if errs[i] == nil {
			good = append(good, recs[i])
		} else if b, ok := errors.AsType[*BadRecord](errs[i]); ok {
			bad = append(bad, b)
		} // else it was removed since
	}
	slices.SortFunc(good, func(a, b Session) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
	})
	return good, bad, nil
}

// Tasks reads all tasks of a session by number, and next to them the records
// that cannot be used. ErrNotFound: no such session.
func (s *Store) Tasks(id string) ([]Task, []*BadRecord, error) {
	if err := s.checkSession(id); err != nil {
		return nil, nil, err
	}
	numbers, err := s.taskNumbers(id)
	if err != nil {
		return nil, nil, fmt.Errorf("list tasks of session %s: %w", id, err)
	}
	good := make([]Task, 0, len(numbers))
	var bad []*BadRecord
	for _, n := range numbers {
		t, err := s.Task(id, n)
		if err == nil {
			good = append(good, t)
		} else if b, ok := errors.AsType[*BadRecord](err); ok {
			bad = append(bad, b)
		}
	}
	return good, bad, nil
}

// taskNumbers lists the numbers in use, ascending, whatever the records are
// worth. A missing directory holds none.
func (s *Store) taskNumbers(id string) ([]int, error) {
	entries, err := os.ReadDir(s.tasksDir(id))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	numbers := make([]int, 0, len(entries))
	for _, e := range entries {
		base, isJSON := strings.CutSuffix(e.Name(), ".json")
		if n, err := parseTask(base); isJSON && err == nil {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}
