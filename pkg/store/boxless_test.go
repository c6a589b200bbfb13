package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func boxlessIDs(t *testing.T, s *Store) (ids []string) {
	t.Helper()
	recs, err := s.Boxless()
	if err != nil {
		t.Fatal(err)
	}
	for i := range recs {
		ids = append(ids, recs[i].ID)
	}
	slices.Sort(ids)
	return ids
}

// The note lasts as long as the record, and no longer.
func TestBoxless(t *testing.T) {
	s := testStore(t)
	if got := boxlessIDs(t, s); len(got) > 0 {
		t.Errorf("before there is anything: %q", got)
	}
	a, b := newSession(""), newSession("")
	for _, rec := range []Session{a, b} {
		if err := s.Claim(context.Background(), rec); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := s.MarkBoxless(a.ID); err != nil {
			t.Fatal(err)
		}
	}
	if got := boxlessIDs(t, s); !slices.Equal(got, []string{a.ID}) {
		t.Errorf("boxless: %q, want %s", got, a.ID)
	}
	// A remover that was killed in the middle leaves the note.
	if err := os.RemoveAll(s.SessionDir(a.ID)); err != nil {
		t.Fatal(err)
	}
	if got := boxlessIDs(t, s); len(got) > 0 {
		t.Errorf("without its record: %q", got)
	}
	if err := s.MarkBoxless(a.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("mark of what is gone: %v, want ErrNotFound", err)
	}
	if err := s.MarkBoxless(b.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(context.Background(), b.ID); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.dirs.State, boxlessPrefix+"*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestBrokenOff(t *testing.T) {
	s := testStore(t)
	rec := newSession("")
	if err := s.Claim(context.Background(), rec); err != nil {
		t.Fatal(err)
	}
	if b, err := s.BrokenOff(rec.ID); b != nil || err != nil {
		t.Errorf("before there is one: %q, %v", b, err)
	}
	for _, text := range []string{`{"id":1}`, `{"id":2}`} {
		if err := s.PutBrokenOff(rec.ID, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if b, err := s.BrokenOff(rec.ID); string(b) != text || err != nil {
			t.Errorf("read %q, %v; want %q", b, err, text)
		}
	}
	if err := s.PutBrokenOff(rec.ID, make([]byte, MaxRecord+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("one that is too long: %v", err)
	}
	if err := s.Remove(context.Background(), rec.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.PutBrokenOff(rec.ID, []byte("{}")); !errors.Is(err, ErrNotFound) {
		t.Errorf("of a session that is gone: %v, want ErrNotFound", err)
	}
	if _, err := os.Stat(s.SessionDir(rec.ID)); err == nil {
		t.Error("it made the directory of a session that is gone")
	}
}
