package store

import (
	"bufio"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// tryLock fails at once when the lock is held.
func tryLock(t *testing.T, s *Store, id string, kind LockKind) *Lock {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l, err := s.Lock(ctx, id, kind)
	if err == nil {
		return l
	}
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("lock to %v: %v", kind, err)
	}
	return nil
}

func TestLockExclusion(t *testing.T) {
	s := testStore(t)
	id := mustClaim(t, s, newSession("")).ID
	other := mustClaim(t, s, newSession("")).ID
	excludes := map[LockKind]map[LockKind]bool{
		LockStart:  {LockStart: false, LockChange: true, LockClose: false},
		LockChange: {LockStart: true, LockChange: true, LockClose: false},
		LockClose:  {LockStart: false, LockChange: false, LockClose: true},
	}
	for held, others := range excludes {
		for wanted, excluded := range others {
			first := tryLock(t, s, id, held)
			if first == nil {
				t.Fatalf("a free lock to %v is held", held)
			}
			second := tryLock(t, s, id, wanted)
			if (second == nil) != excluded {
				t.Errorf("while %v is held, %v was got: %v", held, wanted, second != nil)
			}
			second.Unlock() // also of nil
			elsewhere := tryLock(t, s, other, wanted)
			if elsewhere == nil {
				t.Error("sessions exclude each other")
			}
			elsewhere.Unlock()
			first.Unlock()
			first.Unlock()
		}
	}
	if _, err := s.Lock(t.Context(), id, LockKind(9)); err == nil {
		t.Error("LockKind(9) was got")
	}
}

func TestLockWaitsAndGivesUp(t *testing.T) {
	s := testStore(t)
	id := mustClaim(t, s, newSession("")).ID
	held := tryLock(t, s, id, LockChange)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := s.Lock(ctx, id, LockStart); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Lock = %v, want DeadlineExceeded", err)
	}
	time.AfterFunc(30*time.Millisecond, held.Unlock)
	l, err := s.Lock(t.Context(), id, LockStart)
	if err != nil {
		t.Fatal(err)
	}
	l.Unlock()
}

func TestLockDiesWithItsProcess(t *testing.T) {
	s := testStore(t)
	id := mustClaim(t, s, newSession("")).ID
	cmd := helperCommand(t, nil, "hold", s.dirs.State, id)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(line, err)
	}
	if l := tryLock(t, s, id, LockStart); l != nil {
		t.Error("the lock of another process was got")
	}
	cmd.Process.Kill()
	cmd.Wait()
	l, err := s.Lock(t.Context(), id, LockChange)
	if err != nil {
		t.Fatal(err)
	}
	l.Unlock()
}

func TestLockOfARemovedSession(t *testing.T) {
	s := testStore(t)
	rec := mustClaim(t, s, newSession(""))
	held := tryLock(t, s, rec.ID, LockChange)
	errc := make(chan error)
	go func() {
		l, err := s.Lock(t.Context(), rec.ID, LockStart)
		l.Unlock()
		errc <- err
	}()
	time.Sleep(20 * time.Millisecond)
	if err := s.Remove(t.Context(), rec.ID); err != nil {
		t.Fatal(err)
	}
	task := newTask()
	if err := held.AddTask(&task); !errors.Is(err, ErrNotFound) {
		t.Errorf("AddTask = %v, want ErrNotFound", err)
	}
	held.Unlock()
	if err := <-errc; !errors.Is(err, ErrNotFound) {
		t.Errorf("waiter got %v, want ErrNotFound", err)
	}
}

func TestLockFileLost(t *testing.T) {
	s := testStore(t)
	rec := mustClaim(t, s, newSession(""))
	for _, name := range []string{"lock", "close.lock", "tasks"} {
		if err := os.Remove(filepath.Join(s.SessionDir(rec.ID), name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []LockKind{LockChange, LockClose, LockStart} {
		l := tryLock(t, s, rec.ID, kind)
		if l == nil {
			t.Fatal("not got")
		}
		if task := newTask(); kind == LockStart {
			if err := l.AddTask(&task); err != nil || task.N != 1 {
				t.Errorf("AddTask = %d, %v", task.N, err)
			}
		}
		l.Unlock()
	}
	path := filepath.Join(s.SessionDir(rec.ID), "lock")
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Lock(t.Context(), rec.ID, LockStart); !errors.Is(err, ErrNotRegular) {
		t.Errorf("a directory as lock file: %v", err)
	}
}

// Close must get in although commands are being started all the time.
func TestLockChangeIsNotStarved(t *testing.T) {
	s := testStore(t)
	id := mustClaim(t, s, newSession("")).ID
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var starts atomic.Int64
	for range 8 {
		wg.Go(func() {
			for ctx.Err() == nil {
				l, err := s.Lock(t.Context(), id, LockStart)
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(5 * time.Millisecond) // overlapping: there is always one
				starts.Add(1)
				l.Unlock()
			}
		})
	}
	for starts.Load() < 16 {
		time.Sleep(time.Millisecond)
	}
	for range 10 {
		wait, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		l, err := s.Lock(wait, id, LockChange)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		l.Unlock()
	}
	stop()
	wg.Wait()
}
