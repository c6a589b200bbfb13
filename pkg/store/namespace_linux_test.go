package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a mount namespace of its own")
	}
}

func TestFullDisk(t *testing.T) {
	needRoot(t)
	runInNamespace(t, "full")
}

func TestReadOnly(t *testing.T) {
	needRoot(t)
	runInNamespace(t, "readonly")
}

func runInNamespace(t *testing.T, what string) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := helperCommand(t, &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}, what, dir)
	if err := cmd.Run(); errors.Is(err, unix.EPERM) {
		t.Skip("root may not make a mount namespace here")
	} else if err != nil {
		t.Fatal(err)
	}
}

// inNamespace runs in a process with mounts of its own.
func inNamespace(what string, s *Store) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", s.dirs.State, "tmpfs", 0, "size=256k,mode=0700"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	rec := newSession("web")
	if err := s.Claim(ctx, rec); err != nil {
		return err
	}
	l, err := s.Lock(ctx, rec.ID, LockStart)
	if err != nil {
		return err
	}
	for range 2 {
		task := newTask()
		task.State = TaskExited
		if err := l.AddTask(&task); err != nil {
			return err
		}
	}
	l.Unlock()
	if err := s.Append(ctx, Event{Event: "opened", ID: rec.ID}); err != nil {
		return err
	}
	want := error(unix.ENOSPC)
	switch what {
	case "full":
		err = fill(s.dirs.State)
	case "readonly":
		want = unix.EROFS
		err = unix.Mount("", s.dirs.State, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")
	default:
		err = fmt.Errorf("no helper %q", what)
	}
	if err != nil {
		return err
	}
	return brake(ctx, s, rec, want)
}

func fill(dir string) error {
	f, err := os.OpenFile(dir+"/filler", os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, err = f.Write(make([]byte, 4096)); err == nil; {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		return err
	}
	return nil
}

// brake is what must work, and how the rest must fail, when nothing can be
// written.
func brake(ctx context.Context, s *Store, rec Session, want error) error {
	var errs []error
	check := func(what string, err, want error) {
		if !errors.Is(err, want) || (want == nil) != (err == nil) {
			errs = append(errs, fmt.Errorf("%s: got %w, want %w", what, orNil(err), orNil(want)))
		}
	}
	id, err := s.Resolve("web")
	check("Resolve", err, nil)
	_, err = s.Get(id)
	check("Get", err, nil)
	for _, kind := range []LockKind{LockClose, LockChange, LockStart} {
		l, err := s.Lock(ctx, id, kind)
		check("Lock "+kind.String(), err, nil)
		if kind == LockStart && err == nil {
			task := newTask()
			task.Argv = append(task.Argv, strings.Repeat("x", 8192)) // no free page holds it
			check("AddTask", l.AddTask(&task), want)
		}
		l.Unlock()
	}
	rec.Cwd = strings.Repeat("/x", 4096)
	check("Put", s.Put(rec), want)
	check("PutTask", s.PutTask(id, Task{N: 1, State: TaskExited, Argv: []string{strings.Repeat("x", 8192)}}), want)
	check("Claim", s.Claim(ctx, newSession("other")), want)
	hist := s.Append(ctx, Event{Event: "closed", ID: id, Msg: strings.Repeat("m", 8192)})
	check("Append", hist, want)
	if _, ok := errors.AsType[*HistoryError](hist); !ok {
		errs = append(errs, fmt.Errorf("Append = %T, want a *HistoryError", hist))
	}
	// Nothing that failed has left a trace.
	good, bad, err := s.Sessions()
	check("Sessions", err, nil)
	if len(good) != 1 || len(bad) != 0 {
		errs = append(errs, fmt.Errorf("Sessions: %d good, %v bad, want 1 good", len(good), bad))
	}
	tasks, badTasks, err := s.Tasks(id)
	check("Tasks", err, nil)
	if len(tasks) != 2 || len(badTasks) != 0 {
		errs = append(errs, fmt.Errorf("Tasks: %v, %v, want two", tasks, badTasks))
	}
	page, err := s.ReadHistory(Filter{})
	check("ReadHistory", err, nil)
	if len(page.Events) != 1 || page.Skipped != 0 {
		errs = append(errs, fmt.Errorf("history: %d events, %d skipped, want 1, 0", len(page.Events), page.Skipped))
	}
	fs.WalkDir(os.DirFS(s.dirs.State), ".", func(path string, _ fs.DirEntry, _ error) error {
		if strings.Contains(path, tmpPrefix) {
			errs = append(errs, fmt.Errorf("left behind: %s", path))
		}
		return nil
	})
	if errors.Is(want, unix.ENOSPC) {
		want = nil // deleting needs no space
	}
	_, err = s.PruneTasks(ctx, id, 0, nil)
	check("PruneTasks", err, want)
	check("Remove", s.Remove(ctx, id), want)
	return errors.Join(errs...)
}

// A user who may not write is told so, and can still look and lock.
func TestNoPermission(t *testing.T) {
	s := testStore(t)
	rec := mustClaim(t, s, newSession("web"))
	if os.Geteuid() == 0 {
		t.Skip("root may write anywhere; TestReadOnly covers the rest")
	}
	dir := s.SessionDir(rec.ID)
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o700)
	if err := s.Put(rec); !errors.Is(err, unix.EACCES) {
		t.Errorf("Put = %v, want EACCES", err)
	}
	l, err := s.Lock(t.Context(), rec.ID, LockChange)
	if err != nil {
		t.Fatal(err)
	}
	l.Unlock()
}

// orNil is err, or an error that says that there is none.
func orNil(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}
