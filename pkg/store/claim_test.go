package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestClaimTaken(t *testing.T) {
	s, ctx := testStore(t), t.Context()
	first := mustClaim(t, s, newSession("web"))
	err := s.Claim(ctx, newSession("web"))
	if taken, ok := errors.AsType[*NameTakenError](err); !ok || taken.ID != first.ID || taken.Name != "web" || !errors.Is(err, ErrNameTaken) {
		t.Errorf("Claim of a taken name = %v", err)
	}
	again := newSession("other")
	again.ID = first.ID
	if err := s.Claim(ctx, again); !errors.Is(err, ErrExist) {
		t.Errorf("Claim of a taken id = %v", err)
	}
	if _, err := s.Resolve("other"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a failed claim left its name: %v", err)
	}
	// Whoever types that id must get that session.
	if err := s.Claim(ctx, newSession(first.ID)); !errors.Is(err, ErrNameTaken) {
		t.Errorf("Claim of another session's id as a name = %v", err)
	}
	if entries, _ := os.ReadDir(s.sessionsDir()); len(entries) != 1 {
		t.Errorf("left in sessions: %v", entries)
	}
	for _, bad := range []string{".", "..", "a/b", "-x", "../x"} {
		if err := s.Claim(ctx, newSession(bad)); !errors.Is(err, ErrBadName) {
			t.Errorf("Claim(%q) = %v", bad, err)
		}
	}
	for range 2 { // no name, no conflict
		mustClaim(t, s, newSession(""))
	}
}

func TestClaimFreesStaleNames(t *testing.T) {
	s, ctx := testStore(t), t.Context()
	closed := newSession("closed")
	closed.State = StateClosed
	mustClaim(t, s, closed)
	if err := s.Claim(ctx, newSession("closed")); err != nil {
		t.Errorf("name of a closed session: %v", err)
	}
	// What a claimer leaves that was killed between the name and the session.
	for name, target := range map[string]string{"dead": NewID(), "odd": "../../x", "empty": "x"} {
		if err := os.Symlink(target, filepath.Join(s.namesDir(), name)); err != nil {
			t.Fatal(err)
		}
		rec := newSession(name)
		if err := s.Claim(ctx, rec); err != nil {
			t.Errorf("name %s: %v", name, err)
		}
		if id, err := s.Resolve(name); err != nil || id != rec.ID {
			t.Errorf("Resolve(%s) = %s, %v", name, id, err)
		}
	}
	// Removing the closed session leaves the name with its new holder.
	if err := s.Remove(ctx, closed.ID); err != nil {
		t.Fatal(err)
	}
	if id, err := s.Resolve("closed"); err != nil || id == closed.ID {
		t.Errorf("Resolve(closed) = %s, %v", id, err)
	}
	// A living holder whose symlink was lost still holds its name.
	lost := mustClaim(t, s, newSession("lost"))
	if err := os.RemoveAll(s.namesDir()); err != nil {
		t.Fatal(err)
	}
	err := s.Claim(ctx, newSession("lost"))
	if taken, ok := errors.AsType[*NameTakenError](err); !ok || taken.ID != lost.ID {
		t.Errorf("Claim of a name without its symlink = %v", err)
	}
}

func TestClaimSweepsHalfClaims(t *testing.T) {
	s := testStore(t)
	mustClaim(t, s, newSession(""))
	half := filepath.Join(s.sessionsDir(), tmpPrefix+"half")
	if err := os.MkdirAll(half+"/tasks", 0o700); err != nil {
		t.Fatal(err)
	}
	mustClaim(t, s, newSession(""))
	if _, err := os.Lstat(half); err != nil {
		t.Error("a claim under way was removed")
	}
	old := time.Now().Add(-2 * StaleAge)
	if err := os.Chtimes(half, old, old); err != nil {
		t.Fatal(err)
	}
	mustClaim(t, s, newSession(""))
	if _, err := os.Lstat(half); err == nil {
		t.Error("the remains of a claim outlived the next one")
	}
	if good, bad, err := s.Sessions(); len(good) != 3 || len(bad) != 0 || err != nil {
		t.Errorf("Sessions = %d, %v, %v", len(good), bad, err)
	}
}

func TestClaimIsBoundByContext(t *testing.T) {
	s := testStore(t)
	mustClaim(t, s, newSession("web"))
	release, err := s.lockNames(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if err := s.Claim(ctx, newSession("other")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Claim = %v, want DeadlineExceeded", err)
	}
	mustClaim(t, s, newSession("")) // no name, no lock
}

// 200 goroutines and 4 processes want the same 20 names: each name goes once.
func TestClaimRace(t *testing.T) {
	s := testStore(t)
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprintf("name-%02d", i))
	}
	var mu sync.Mutex
	var got []string
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			name := names[i%len(names)]
			err := s.Claim(t.Context(), newSession(name))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				got = append(got, name)
			} else if !errors.Is(err, ErrNameTaken) {
				t.Error(err)
			}
		})
	}
	for range 4 {
		wg.Go(func() {
			out, err := helperCommand(t, nil, "claim", append([]string{s.dirs.State}, names...)...).Output()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			got = append(got, strings.Fields(string(out))...)
		})
	}
	wg.Wait()
	slices.Sort(got)
	if !slices.Equal(got, names) {
		t.Errorf("claimed: %v", got)
	}
	good, bad, err := s.Sessions()
	if err != nil || len(good) != len(names) || len(bad) != 0 {
		t.Errorf("Sessions = %d, %v, %v", len(good), bad, err)
	}
	for _, rec := range good {
		if id, err := s.Resolve(rec.Name); err != nil || id != rec.ID {
			t.Errorf("Resolve(%s) = %s, %v; want %s", rec.Name, id, err, rec.ID)
		}
	}
}

func TestClaimRefusesForeignDirs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a directory away")
	}
	s := testStore(t)
	mustClaim(t, s, newSession("web"))
	if err := os.Chown(s.namesDir(), 12345, -1); err != nil {
		t.Fatal(err)
	}
	if err := s.Claim(t.Context(), newSession("x")); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), s.namesDir()) {
		t.Errorf("Claim = %v, want ErrForeign that names the directory", err)
	}
	if err := errors.Join(os.Chown(s.namesDir(), 0, -1), os.Chown(s.dirs.State+"/names.lock", 12345, -1)); err != nil {
		t.Fatal(err)
	}
	if err := s.Claim(t.Context(), newSession("x")); !errors.Is(err, ErrForeign) {
		t.Errorf("Claim with a foreign lock file = %v", err)
	}
}

func TestClaimNameIsNoLink(t *testing.T) {
	s := testStore(t)
	mustClaim(t, s, newSession("web"))
	if err := os.Mkdir(filepath.Join(s.namesDir(), "dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Claim(t.Context(), newSession("dir")); !errors.Is(err, unix.EINVAL) {
		t.Errorf("Claim = %v, want EINVAL", err)
	}
}

// TestClaimWithTasks: the numbers of tasks that a session has already are not given out
// again.
func TestClaimWithTasks(t *testing.T) {
	s := testStore(t)
	rec := newSession("web")
	one, seven := newTask(), newTask()
	one.N, seven.N = 1, 7
	if err := s.Claim(t.Context(), rec, one, seven); err != nil {
		t.Fatal(err)
	}
	tasks, bad, err := s.Tasks(rec.ID)
	if err != nil || len(bad) != 0 || len(tasks) != 2 || tasks[1].N != 7 {
		t.Fatalf("tasks %+v, %v, %v; want 1 and 7", tasks, bad, err)
	}
	lock, err := s.Lock(t.Context(), rec.ID, LockStart)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	next := newTask()
	next.N = 0
	if err := lock.AddTask(&next); err != nil || next.N != 8 {
		t.Errorf("the next task is %d, %v; want 8", next.N, err)
	}
}

// TestSweep: the name of no session goes, those of sessions stay.
func TestSweep(t *testing.T) {
	s := testStore(t)
	rec := newSession("web")
	if err := s.Claim(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(NewID(), filepath.Join(s.namesDir(), "half-made")); err != nil {
		t.Fatal(err)
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	names, err := s.names()
	if err != nil || len(names) != 1 || names["web"] != rec.ID {
		t.Errorf("names %v, %v; want web alone", names, err)
	}
}
