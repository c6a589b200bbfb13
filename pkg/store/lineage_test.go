package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestLineageParts(t *testing.T) {
	s := testStore(t)
	rec := newSession("")
	if err := s.Claim(context.Background(), rec); err != nil {
		t.Fatal(err)
	}
	for part, data := range map[string]string{"task-1": "{}", "task-2": `{"a":1}`} {
		if err := s.PutLineage(rec.ID, part, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Lineage(rec.ID)
	if err != nil || len(got) != 2 || string(got["task-2"]) != `{"a":1}` {
		t.Fatalf("Lineage = %q, %v", got, err)
	}
	if err := s.RemoveLineage(rec.ID, "task-1"); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveLineage(rec.ID, "task-1"); err != nil {
		t.Errorf("removing what is not there: %v", err)
	}
	// One that is no regular file costs itself, not the others.
	if err := os.Symlink("/etc/passwd", filepath.Join(s.SessionDir(rec.ID), "lineage-task-3.json")); err != nil {
		t.Fatal(err)
	}
	got, err = s.Lineage(rec.ID)
	if !errors.Is(err, ErrNotRegular) || len(got) != 1 {
		t.Errorf("with a symlink among them: %q, %v", got, err)
	}
	for _, part := range []string{"", "../x", "a/b"} {
		if err := s.PutLineage(rec.ID, part, nil); err == nil {
			t.Errorf("part %q was written", part)
		}
	}
	if err := s.Remove(context.Background(), rec.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.PutLineage(rec.ID, "task-1", []byte("{}")); !errors.Is(err, ErrNotFound) {
		t.Errorf("written to a session that is gone: %v", err)
	}
}

// The process table is read for lost lineages only where there may be some.
func TestMayHaveLineage(t *testing.T) {
	s := testStore(t)
	if !s.MayHaveLineage() {
		t.Error("without any record there may be")
	}
	if err := s.Claim(t.Context(), Session{ID: "abcdefghij", State: StateOpening}); err != nil {
		t.Fatal(err)
	}
	if s.MayHaveLineage() {
		t.Error("with records, and none of a lineage, there is none")
	}
	if err := s.MarkLineage(); err != nil || !s.MayHaveLineage() {
		t.Errorf("one was opened: %v", err)
	}
}
