package store

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

// ended is a context that has ended: whoever waits with it tries once.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestGuardLock(t *testing.T) {
	s := testStore(t)
	if _, held, err := s.Guard(); held || err != nil {
		t.Fatalf("before there is a file: held %v, %v", held, err)
	}
	l, err := s.LockGuard(ended())
	if err != nil {
		t.Fatal(err)
	}
	if n, held, err := s.Guard(); !held || err != nil || n != (GuardNote{}) {
		t.Errorf("nothing noted yet: %+v, held %v, %v", n, held, err)
	}
	want := GuardNote{Process: ProcID{PID: 4711, Start: 12, Boot: "b", NS: 3}, OnDemand: true, Since: july, Metrics: "unix:/a/very/long/path"}
	if err := l.Note(want); err != nil {
		t.Fatal(err)
	}
	if n, held, _ := s.Guard(); !held || n != want {
		t.Errorf("%+v, held %v; want %+v", n, held, want)
	}
	if _, err := s.LockGuard(ended()); err == nil {
		t.Error("locked twice")
	}
	l.Unlock()
	l.Unlock()
	if n, held, _ := s.Guard(); held || n != (GuardNote{}) {
		t.Errorf("a note that nobody holds counts: %+v, held %v", n, held)
	}
	// The next one's note is shorter.
	if l, err = s.LockGuard(ended()); err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	if n, held, _ := s.Guard(); !held || n != (GuardNote{}) {
		t.Errorf("the note of the holder before counts: %+v, held %v", n, held)
	}
	short := GuardNote{Process: ProcID{PID: 2}, Since: july, Ready: true}
	if err := l.Note(short); err != nil {
		t.Fatal(err)
	}
	if n, held, _ := s.Guard(); !held || n != short {
		t.Errorf("%+v, held %v; want %+v", n, held, short)
	}
}

// Looking never keeps a guard from getting the lock, if it is given a moment.
func TestGuardLockAmongLookers(t *testing.T) {
	s := testStore(t)
	l, err := s.LockGuard(ended())
	if err != nil {
		t.Fatal(err)
	}
	l.Unlock()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for range 4 {
		go func() {
			for ctx.Err() == nil {
				s.Guard()
			}
		}()
	}
	for range 50 {
		wait, cancel := context.WithTimeout(ctx, 5*time.Second)
		l, err := s.LockGuard(wait)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		l.Unlock()
	}
}

// A lock whose file was removed is nobody's any more: the next one makes a new file.
func TestGuardLockRemoved(t *testing.T) {
	s := testStore(t)
	old, err := s.LockGuard(ended())
	if err != nil {
		t.Fatal(err)
	}
	defer old.Unlock()
	if !old.Valid() {
		t.Error("not valid while it is")
	}
	if err := os.RemoveAll(s.Dirs().State); err != nil {
		t.Fatal(err)
	}
	if old.Valid() {
		t.Error("valid without a file")
	}
	l, err := s.LockGuard(ended())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	if old.Valid() || !l.Valid() {
		t.Errorf("old %v, new %v", old.Valid(), l.Valid())
	}
}

// A note that has new sessions held is as good as the lock, and never too long to be
// read.
func TestGuardHolds(t *testing.T) {
	s := testStore(t)
	l, err := s.LockGuard(ended())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Note(GuardNote{Hold: "this host is critical"}); err != nil {
		t.Fatal(err)
	}
	if n, held, err := s.Guard(); err != nil || !held || n.Hold != "this host is critical" {
		t.Errorf("%+v, %v, %v", n, held, err)
	}
	if err := l.Note(GuardNote{Hold: strings.Repeat("x", 10000)}); err != nil {
		t.Fatal(err)
	}
	if n, _, _ := s.Guard(); len(n.Hold) < 100 {
		t.Errorf("a long reason is read as %q", n.Hold)
	}
	l.Unlock()
	if n, held, _ := s.Guard(); held || n.Hold != "" {
		t.Errorf("without a guard new sessions are held: %+v", n)
	}
}
