//go:build unix

package session

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/store"
)

// No session is opened while a guard holds them, and any as soon as it lets them, or
// is no more.
func TestHeldOpens(t *testing.T) {
	m, err := New(Config{StateDir: t.TempDir(), NoGuard: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.unheld(t.Context()); err != nil {
		t.Fatalf("without a guard: %v", err)
	}
	l, err := m.store.LockGuard(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	if err := l.Note(store.GuardNote{Hold: "this host is critical"}); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = m.Open(short, OpenOptions{})
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, ErrTimeout) || !e.Retry || e.Hint == "" {
		t.Fatalf("while it holds: %v", err)
	}
	if err := l.Note(store.GuardNote{}); err != nil {
		t.Fatal(err)
	}
	if err := m.unheld(t.Context()); err != nil {
		t.Errorf("when it lets them: %v", err)
	}
	if err := l.Note(store.GuardNote{Hold: "this host is critical"}); err != nil {
		t.Fatal(err)
	}
	dead := make(chan struct{})
	time.AfterFunc(20*time.Millisecond, func() { l.Unlock(); close(dead) })
	defer func() { <-dead }()
	if err := m.unheld(t.Context()); err != nil {
		t.Errorf("when it has died: %v", err)
	}
}
