package tmpdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// canary is a directory outside that must not be touched.
func canary(t *testing.T) (dir string, lives func()) {
	t.Helper()
	dir = t.TempDir()
	file := filepath.Join(dir, "canary")
	if err := errors.Join(os.WriteFile(file, []byte("sings"), 0o640), os.Mkdir(filepath.Join(dir, "nest"), 0o750)); err != nil {
		t.Fatal(err)
	}
	return dir, func() {
		t.Helper()
		if b, err := os.ReadFile(file); err != nil || string(b) != "sings" {
			t.Errorf("the canary: %q, %v", b, err)
		}
		for name, mode := range map[string]fs.FileMode{file: 0o640, filepath.Join(dir, "nest"): 0o750 | fs.ModeDir} {
			if fi, err := os.Stat(name); err != nil || fi.Mode() != mode {
				t.Errorf("%s: %v, %v; want mode %v", name, fi, err, mode)
			}
		}
	}
}

func remove(dir string) error { return Remove(context.Background(), dir, os.Geteuid(), id) }

// gone fails unless dir and the one around it are.
func gone(t *testing.T, dir string) {
	t.Helper()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if _, err := os.Lstat(d); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", d, err)
		}
	}
}

func TestRemove(t *testing.T) {
	dir := made(t)
	out, lives := canary(t)
	for i := range 300 {
		sub := filepath.Join(dir, fmt.Sprintf("d%d", i%10), fmt.Sprintf("e%d", i%7))
		if err := errors.Join(os.MkdirAll(sub, 0o755), os.WriteFile(filepath.Join(sub, fmt.Sprint(i)), nil, 0o444)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 1500 { // more than one reading of the directory
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("f", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(
		os.Symlink(out, filepath.Join(dir, "to-dir")),
		os.Symlink(filepath.Join(out, "canary"), filepath.Join(dir, "d1", "to-file")),
		os.Symlink("..", filepath.Join(dir, "d1", "up")),
		os.Symlink("loop", filepath.Join(dir, "loop")),
		os.Link(filepath.Join(out, "canary"), filepath.Join(dir, "hard")),
		unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600),
		os.Mkdir(filepath.Join(dir, "-rf *"), 0o700),
		os.WriteFile(filepath.Join(dir, "new\nline\xff"), nil, 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := remove(dir); err != nil {
		t.Fatal(err)
	}
	gone(t, dir)
	lives()
	if err := remove(dir); err != nil {
		t.Errorf("once more: %v", err)
	}
}

// Commands may put anything in the place of their own directory.
func TestRemoveReplaced(t *testing.T) {
	out, lives := canary(t)
	for name, replace := range map[string]func(at string) error{
		"link":   func(at string) error { return os.Symlink(out, at) },
		"file":   func(at string) error { return os.WriteFile(at, nil, 0o600) },
		"absent": func(string) error { return nil },
		"mark is a directory": func(at string) error {
			return os.MkdirAll(filepath.Join(at, markFile, "x"), 0o700)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := made(t)
			if err := errors.Join(os.RemoveAll(dir), replace(dir)); err != nil {
				t.Fatal(err)
			}
			if err := remove(dir); err != nil {
				t.Error(err)
			}
			gone(t, dir)
			lives()
		})
	}
}

// Only what looks like a session's directory is removed, whatever a record says.
func TestRemoveRefuses(t *testing.T) {
	out, lives := canary(t)
	uid := os.Geteuid()
	link := filepath.Join(t.TempDir(), parentName(uid, 0))
	if err := os.Symlink(out, link); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(t.TempDir(), parentName(uid, 0))
	if err := errors.Join(os.MkdirAll(filepath.Join(open, "nest"), 0o700), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ dir, id string }{
		{"/", ""},
		{"", ""},
		{out, filepath.Base(out)},
		{filepath.Join(out, "nest"), "nest"},
		{filepath.Join(link, "nest"), "nest"},
		{filepath.Join(open, "nest"), "nest"},
		{filepath.Join(link, "..", filepath.Base(out)), filepath.Base(out)},
		{filepath.Join(link, "nest"), "another"},
		{parentName(uid, 0) + "/nest", "nest"},
	} {
		if err := Remove(context.Background(), tt.dir, uid, tt.id); err == nil {
			t.Errorf("Remove(%q, %q) succeeded", tt.dir, tt.id)
		}
	}
	lives()
	if _, err := os.Stat(filepath.Join(open, "nest")); err != nil {
		t.Error(err)
	}
}

// deepen makes a chain of directories that no path can name.
func deepen(t *testing.T, dir string, levels int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for i := 0; i < levels && err == nil; i++ {
		if err = unix.Mkdirat(fd, "deep", 0o700); err != nil {
			break
		}
		var next int
		if next, err = unix.Openat(fd, "deep", unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
			unix.Close(fd)
			fd = next
		}
	}
	if err == nil {
		err = unix.Symlinkat("/", fd, "root")
	}
	unix.Close(fd)
	if err != nil {
		t.Fatal(err)
	}
}

func TestRemoveDeep(t *testing.T) {
	dir := made(t)
	for _, branch := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(dir, branch), 0o700); err != nil {
			t.Fatal(err)
		}
		deepen(t, filepath.Join(dir, branch), 5000)
	}
	// What a removal that was killed has lifted is in the way of the next.
	if err := os.MkdirAll(filepath.Join(dir, ".lifted-1", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	few := unix.Rlimit{Cur: 3*maxDepth + 64, Max: old.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
	if err := remove(dir); err != nil {
		t.Error(err)
	}
	gone(t, dir)
}

// A broken-off removal is finished by the next one.
func TestRemoveCancelled(t *testing.T) {
	dir := made(t)
	for i := range 2000 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := Remove(ctx, dir, os.Geteuid(), id); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if err := remove(dir); err != nil {
		t.Error(err)
	}
	gone(t, dir)
}

// Two that remove at once do not trip over each other.
func TestRemoveTwice(t *testing.T) {
	for range 4 {
		dir := made(t)
		deepen(t, dir, 200)
		for i := range 200 {
			if err := os.MkdirAll(filepath.Join(dir, fmt.Sprint(i), "x", "y"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if err := remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		gone(t, dir)
	}
}

func TestLeftText(t *testing.T) {
	l := &Left{Paths: []string{"/a", "/b"}, Count: 7, Err: unix.EBUSY}
	if got := l.Error(); !strings.HasPrefix(got, "/a and 6 more could not be removed: ") {
		t.Error(got)
	}
}
