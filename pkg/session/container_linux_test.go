package session

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/store"
)

// TestBoxRuntimeFrozen: a call of the runtime in a box that is frozen comes to an end, though
// the kernel does not even let it be started, and the kill of the box ends what was begun.
func TestBoxRuntimeFrozen(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(Config{Helper: self, NoGuard: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.Open(t.Context(), OpenOptions{Kind: store.KindCgroup})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close(t.Context(), s.ID(), CloseOptions{Now: true})
	s.rec.Container = &store.Container{ID: "none", Runtime: "/bin/true"}
	if err := os.MkdirAll(m.containerDir(&s.rec), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.callRuntime(t.Context(), "", "state"); err != nil {
		t.Fatalf("in a box that is not frozen: %v", err)
	}
	if err := s.box.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	brief, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := s.callRuntime(brief, "", "delete"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("in a frozen box: %v", err)
	}
	if err := s.box.Kill(t.Context(), ""); err != nil {
		t.Error(err)
	}
}
