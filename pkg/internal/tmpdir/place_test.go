package tmpdir

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

const id = "abcdefgh12"

// made is the directory of a session below a base of the test.
func made(t *testing.T) string {
	t.Helper()
	dir, err := Place(t.TempDir(), os.Geteuid(), id)
	if err != nil {
		t.Fatal(err)
	}
	if err := Make(dir, os.Geteuid(), NewMark(id, t.TempDir(), "boot")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPlace(t *testing.T) {
	uid := os.Geteuid()
	first, second := parentName(uid, 0), parentName(uid, 1)
	for _, tt := range []struct {
		name string
		make func(at string) error
		uid  int
		want string
	}{
		{"nothing there", func(string) error { return nil }, uid, first},
		{"ours", func(at string) error { return os.Mkdir(at, 0o700) }, uid, first},
		{"others may enter", func(at string) error { return errors.Join(os.Mkdir(at, 0o700), os.Chmod(at, 0o755)) }, uid, second},
		{"a link to a directory of ours", func(at string) error { return os.Symlink(t.TempDir(), at) }, uid, second},
		{"a dangling link", func(at string) error { return os.Symlink("/nowhere", at) }, uid, second},
		{"a file", func(at string) error { return os.WriteFile(at, nil, 0o600) }, uid, second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			base := t.TempDir()
			if err := tt.make(filepath.Join(base, first)); err != nil {
				t.Fatal(err)
			}
			got, err := Place(base, tt.uid, id)
			if want := filepath.Join(base, tt.want, id); err != nil || got != want {
				t.Errorf("Place = %q, %v; want %q", got, err, want)
			}
		})
	}
	t.Run("another user's", func(t *testing.T) {
		base := t.TempDir()
		if err := os.Mkdir(filepath.Join(base, parentName(uid+1, 0)), 0o700); err != nil {
			t.Fatal(err)
		}
		got, err := Place(base, uid+1, id)
		if want := filepath.Join(base, parentName(uid+1, 1), id); err != nil || got != want {
			t.Errorf("Place = %q, %v; want %q", got, err, want)
		}
	})
	t.Run("all names taken", func(t *testing.T) {
		base := t.TempDir()
		for n := range parents {
			if err := os.WriteFile(filepath.Join(base, parentName(uid, n)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := Place(base, uid, id); !errors.Is(err, ErrForeign) {
			t.Errorf("Place = %q, %v; want ErrForeign", got, err)
		}
	})
}

// Who takes the name between Place and Make gets nothing.
func TestMakeChecks(t *testing.T) {
	base, trap := t.TempDir(), t.TempDir()
	dir, err := Place(base, os.Geteuid(), id)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(trap, filepath.Dir(dir)); err != nil {
		t.Fatal(err)
	}
	if err := Make(dir, os.Geteuid(), Mark{}); err == nil {
		t.Error("Make followed a link")
	}
	if left, _ := os.ReadDir(trap); len(left) > 0 {
		t.Errorf("it made %v at the end of the link", left)
	}
}

// The directory in between goes with the last session while the next one comes.
func TestComeAndGo(t *testing.T) {
	base := t.TempDir()
	var wg sync.WaitGroup
	for _, id := range []string{"aaaaaaaaaa", "bbbbbbbbbb", "cccccccccc"} {
		wg.Go(func() {
			for range 200 {
				dir, err := Place(base, os.Geteuid(), id)
				if err == nil {
					err = Make(dir, os.Geteuid(), Mark{Session: id})
				}
				if err == nil {
					err = Remove(context.Background(), dir, os.Geteuid(), id)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if left, _ := os.ReadDir(base); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestMarks(t *testing.T) {
	dir := made(t)
	if got := Some(filepath.Join(filepath.Dir(dir), "another"), os.Geteuid(), 16); len(got) != 1 || got[0].Path != dir ||
		got[0].Mark.Session != id || got[0].Mark.Boot != "boot" || got[0].Mark.Inode == 0 || time.Since(got[0].Made) > time.Minute {
		t.Errorf("Some = %+v; want the mark of %s", got, dir)
	}
	if got := Some(dir, os.Geteuid(), 16); len(got) != 0 {
		t.Errorf("Some found the session's own: %+v", got)
	}
	// A mark of another session, and none.
	for name, mark := range map[string]string{"a": `{"session":"b"}`, "c": "", "d": "{"} {
		at := filepath.Join(filepath.Dir(dir), name)
		if err := errors.Join(os.Mkdir(at, 0o700), os.WriteFile(filepath.Join(at, markFile), []byte(mark), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if got := Some(dir, os.Geteuid(), 16); len(got) != 0 {
		t.Errorf("Some = %+v; want no other", got)
	}
}
