package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestClaimGetPutRemove(t *testing.T) {
	s, ctx := testStore(t), t.Context()
	if _, err := s.Get(NewID()); !errors.Is(err, ErrNotFound) {
		t.Errorf("Get in an empty store = %v", err)
	}
	if good, bad, err := s.Sessions(); err != nil || len(good)+len(bad) > 0 {
		t.Errorf("Sessions in an empty store = %v, %v, %v", good, bad, err)
	}
	if _, err := os.Lstat(s.dirs.State); err == nil {
		t.Error("reading has created the state directory")
	}
	rec := mustClaim(t, s, newSession("web"))
	got, err := s.Get(rec.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rec, got); diff != "" {
		t.Errorf("Get after Claim (-want +got):\n%s", diff)
	}
	for path, want := range map[string]fs.FileMode{
		s.dirs.State: 0o700, s.namesDir(): 0o700, s.SessionDir(rec.ID): 0o700, s.tasksDir(rec.ID): 0o700,
		s.SessionDir(rec.ID) + "/session.json": 0o600, s.SessionDir(rec.ID) + "/lock": 0o600,
		s.SessionDir(rec.ID) + "/close.lock": 0o600, s.dirs.State + "/names.lock": 0o600,
	} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
	if _, err := s.Update(ctx, rec.ID, func(r *Session) error { r.State = StateClosed; return nil }); err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	if _, err := s.Update(ctx, rec.ID, func(r *Session) error { r.Cwd = "/no"; return boom }); !errors.Is(err, boom) {
		t.Errorf("Update = %v", err)
	}
	if got, err := s.Get(rec.ID); err != nil || got.State != StateClosed || got.Cwd != "/work" {
		t.Errorf("after Update: %+v, %v", got, err)
	}
	if err := s.Remove(ctx, rec.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(ctx, rec.ID); err != nil {
		t.Errorf("Remove again = %v", err)
	}
	if err := s.Put(rec); !errors.Is(err, ErrNotFound) {
		t.Errorf("Put after Remove = %v", err)
	}
	if err := s.PutTask(rec.ID, Task{N: 1, State: TaskExited}); !errors.Is(err, ErrNotFound) {
		t.Errorf("PutTask after Remove = %v", err)
	}
	if _, err := s.Lock(ctx, rec.ID, LockStart); !errors.Is(err, ErrNotFound) {
		t.Errorf("Lock after Remove = %v", err)
	}
	for _, dir := range []string{s.namesDir(), s.sessionsDir()} {
		if entries, _ := os.ReadDir(dir); len(entries) > 0 {
			t.Errorf("left in %s: %v", dir, entries)
		}
	}
}

// Each kind of damage costs its own session and nothing else.
func TestBadRecords(t *testing.T) {
	s := testStore(t)
	good := mustClaim(t, s, newSession("good"))
	foreign := func(path string) {
		if err := os.Chown(path, 12345, -1); err != nil {
			t.Fatal(err)
		}
	}
	kinds := map[string]struct {
		damage func(path string)
		want   error // or nil for any
	}{
		"half":         {func(p string) { b, _ := os.ReadFile(p); os.WriteFile(p, b[:len(b)/2], 0o600) }, nil},
		"empty":        {func(p string) { os.Truncate(p, 0) }, nil},
		"garbage":      {func(p string) { os.WriteFile(p, []byte("\x00\xff\x7fELF{"), 0o600) }, nil},
		"not-a-record": {func(p string) { os.WriteFile(p, []byte(`{"hello":"world"}`), 0o600) }, nil},
		"null":         {func(p string) { os.WriteFile(p, []byte(`null`), 0o600) }, nil},
		"newer":        {func(p string) { os.WriteFile(p, []byte(`{"schema":2,"id":{"new":"form"}}`), 0o600) }, ErrNewerSchema},
		"other-id":     {func(p string) { os.WriteFile(p, mustMarshal(t, newSession("x")), 0o600) }, nil},
		"directory":    {func(p string) { os.Remove(p); os.Mkdir(p, 0o700) }, ErrNotRegular},
		"fifo":         {func(p string) { os.Remove(p); unix.Mkfifo(p, 0o600) }, ErrNotRegular},
		"symlink":      {func(p string) { os.Remove(p); os.Symlink(s.SessionDir(good.ID)+"/session.json", p) }, ErrNotRegular},
		"huge":         {func(p string) { os.Truncate(p, 100<<20) }, ErrTooLarge},
		"missing":      {func(p string) { os.Remove(p) }, fs.ErrNotExist},
		"foreign":      {foreign, nil},
		"foreign-dir":  {func(p string) { foreign(filepath.Dir(p)) }, nil},
	}
	if os.Geteuid() != 0 {
		t.Log("not root: foreign records are not tried")
		delete(kinds, "foreign")
		delete(kinds, "foreign-dir")
	}
	ids := map[string]string{}
	for kind, k := range kinds {
		rec := mustClaim(t, s, newSession(kind))
		ids[rec.ID] = kind
		k.damage(filepath.Join(s.SessionDir(rec.ID), sessionFile))
	}
	begin := time.Now()
	list, bad, err := s.Sessions()
	if err != nil || len(list) != 1 || list[0].ID != good.ID {
		t.Fatalf("Sessions = %v, %v; want the good one", list, err)
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("Sessions took %v", took)
	}
	for _, b := range bad {
		kind := ids[b.ID]
		delete(ids, b.ID)
		if b.Err == nil || !strings.Contains(b.Path, b.ID) || !strings.Contains(b.Error(), b.Path) {
			t.Errorf("%s: %+v", kind, b)
		}
		if want := kinds[kind].want; want != nil && !errors.Is(b, want) {
			t.Errorf("%s: %v, want %v", kind, b, want)
		}
		if strings.HasPrefix(kind, "foreign") && os.Geteuid() == 0 && !errors.Is(b, ErrForeign) {
			t.Errorf("%s: %v, want ErrForeign", kind, b)
		}
		if _, err := s.Get(b.ID); err == nil {
			t.Errorf("%s: Get has no error", kind)
		}
		if kind == "foreign-dir" {
			continue // not ours to find or remove
		}
		if id, err := s.Resolve(kind); err != nil || id != b.ID {
			t.Errorf("Resolve(%q) = %q, %v; a bad record must be found by name", kind, id, err)
		}
		if id, err := s.Resolve(b.ID); err != nil || id != b.ID {
			t.Errorf("Resolve(%q) = %q, %v; a bad record must be found by id", b.ID, id, err)
		}
		if id, err := s.search(kind, func(c candidate) bool { return c.Name == kind }); err != nil || id != b.ID {
			t.Errorf("search for %q = %q, %v; also the long way", kind, id, err)
		}
		if err := s.Claim(t.Context(), newSession(kind)); !errors.Is(err, ErrNameTaken) {
			t.Errorf("Claim(%q) = %v; a bad record keeps its name", kind, err)
		}
		if err := s.Remove(t.Context(), b.ID); err != nil {
			t.Errorf("%s: Remove = %v", kind, err)
		}
		if _, err := os.Lstat(filepath.Join(s.namesDir(), kind)); err == nil {
			t.Errorf("%s: its name outlived it", kind)
		}
	}
	if len(ids) > 0 {
		t.Errorf("not listed: %v", ids)
	}
}

func TestBadTasks(t *testing.T) {
	s := testStore(t)
	rec := mustClaim(t, s, newSession("web"))
	l, err := s.Lock(t.Context(), rec.ID, LockStart)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		task := newTask()
		if err := l.AddTask(&task); err != nil {
			t.Fatal(err)
		}
	}
	l.Unlock()
	writeFile(t, s.taskFile(rec.ID, 2), `{"schema":1,"state":"running","pid":-1}`)
	writeFile(t, s.taskFile(rec.ID, 3), `{"schema":1,"state":"running","n":4}`)
	if err := errors.Join(os.Remove(s.taskFile(rec.ID, 4)), syscall.Mkfifo(s.taskFile(rec.ID, 4), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x.json", "01.json", "-3.json", ".tmp-1", "6"} {
		writeFile(t, filepath.Join(s.tasksDir(rec.ID), name), "")
	}
	good, bad, err := s.Tasks(rec.ID)
	if err != nil || len(good) != 2 || good[0].N != 1 || good[1].N != 5 {
		t.Errorf("Tasks = %v, %v; want 1 and 5", good, err)
	}
	var numbers []int
	for _, b := range bad {
		numbers = append(numbers, b.Task)
	}
	if !slices.Equal(numbers, []int{2, 3, 4}) {
		t.Errorf("bad tasks %v, want 2, 3, 4", numbers)
	}
	if _, err := s.Task(rec.ID, 99); !errors.Is(err, ErrNotFound) {
		t.Errorf("Task(99) = %v", err)
	}
	if _, _, err := s.Tasks(NewID()); !errors.Is(err, ErrNotFound) {
		t.Errorf("Tasks of no session = %v", err)
	}
}

// A writer killed at any instant leaves the old record or the new one, and at
// worst a temporary file that goes away.
func TestKilledWriter(t *testing.T) {
	s := testStore(t)
	rec := mustClaim(t, s, newSession("web"))
	dir := s.SessionDir(rec.ID)
	for i := range 30 {
		cmd := helperCommand(t, nil, "put", s.dirs.State, rec.ID)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(20+i) * time.Millisecond)
		cmd.Process.Kill()
		cmd.Wait()
		if _, err := s.Get(rec.ID); err != nil {
			t.Fatalf("after kill %d: %v", i, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		l, err := s.Lock(ctx, rec.ID, LockChange)
		cancel()
		if err != nil {
			t.Fatalf("after kill %d: %v", i, err)
		}
		l.Unlock()
	}
	page, err := s.ReadHistory(Filter{})
	if err != nil || page.Skipped > 0 {
		t.Errorf("history: %d skipped, %v", page.Skipped, err)
	}
	stale := filepath.Join(dir, tmpPrefix+"stale")
	fresh := filepath.Join(dir, tmpPrefix+"fresh")
	writeFile(t, stale, "half a rec")
	writeFile(t, fresh, "half a rec")
	old := time.Now().Add(-2 * StaleAge)
	if err := os.Chtimes(stale, old, old); err != nil {
		t.Fatal(err)
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		known := slices.Contains([]string{"session.json", "lock", "close.lock", "tasks"}, e.Name())
		if !known && !strings.HasPrefix(e.Name(), tmpPrefix) {
			t.Errorf("left behind: %s", e.Name())
		}
	}
	if err := s.Put(rec); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(stale); err == nil {
		t.Error("a stale temporary file outlived a writer")
	}
	if _, err := os.Lstat(fresh); err != nil {
		t.Error("a fresh temporary file, perhaps of a living writer, was removed")
	}
}

func TestPutTooLarge(t *testing.T) {
	s := testStore(t)
	rec := mustClaim(t, s, newSession("web"))
	rec.Cwd = strings.Repeat("x", MaxRecord)
	if err := s.Put(rec); !errors.Is(err, ErrTooLarge) {
		t.Errorf("Put = %v, want ErrTooLarge", err)
	}
}

// TestGetMeanwhile: a record that is removed while it is read is gone, not bad.
func TestGetMeanwhile(t *testing.T) {
	s := testStore(t)
	rec := newSession("")
	over := make(chan struct{})
	go func() {
		defer close(over)
		for range 300 {
			if err := s.Claim(t.Context(), rec); err != nil {
				t.Error(err)
			}
			if err := s.Remove(t.Context(), rec.ID); err != nil {
				t.Error(err)
			}
		}
	}()
	for {
		select {
		case <-over:
			return
		default:
		}
		if _, err := s.Get(rec.ID); err != nil && !errors.Is(err, ErrNotFound) {
			t.Fatalf("Get = %v, want the record or ErrNotFound", err)
		}
	}
}
