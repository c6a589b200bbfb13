package tmpdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrForeign says that a directory may be somebody else's, or entered by others.
var ErrForeign = errors.New("not this user's alone")

// parents is how many names the directory in between may have. Who takes all of them
// from us wants no sessions here.
const parents = 8

func parentName(uid, n int) string {
	if n == 0 {
		return fmt.Sprintf("sessionbox-%d", uid)
	}
	return fmt.Sprintf("sessionbox-%d.%d", uid, n)
}

// Place says where the directory of a session can be below base. It looks and makes
// nothing.
func Place(base string, uid int, id string) (string, error) {
	base, err := filepath.Abs(base)
	if err != nil {
		return "", err
	}
	var first error
	for n := range parents {
		dir := filepath.Join(base, parentName(uid, n))
		var st unix.Stat_t
		err := unix.Lstat(dir, &st)
		if err == nil {
			err = ownDir(dir, &st, uid)
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return filepath.Join(dir, id), nil
		}
		if first == nil {
			first = err
		}
	}
	return "", first
}

// ownDir is an error unless it is a directory which only uid can enter.
func ownDir(dir string, st *unix.Stat_t, uid int) error {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("%s is no directory: %w", dir, ErrForeign)
	case int(st.Uid) != uid:
		return fmt.Errorf("%s is owned by uid %d: %w", dir, st.Uid, ErrForeign)
	case st.Mode&0o077 != 0:
		return fmt.Errorf("%s has mode %04o, want 0700: %w", dir, st.Mode&0o7777, ErrForeign)
	}
	return nil
}

// Make makes the directory that [Place] has named, and leaves the mark in it. One that
// is there already is an error.
func Make(dir string, uid int, m Mark) error {
	// The directory in between goes with the last session: another one may be
	// closing right now.
	var err error
	for range 10 {
		if err = make1(dir, uid); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return err
	}
	return m.write(dir)
}

func make1(dir string, uid int) error {
	top := filepath.Dir(dir)
	if err := os.Mkdir(top, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	parent, err := openParent(top, uid)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	if err := unix.Mkdirat(parent, filepath.Base(dir), 0o700); err != nil {
		return &fs.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	return nil
}

// openParent opens a directory in between; it is the user's while the descriptor is
// held, whatever becomes of its name.
func openParent(dir string, uid int) (int, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil {
		err = ownDir(dir, &st, uid)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// valid says whether dir looks as [Place] makes it: only such a one is removed,
// whatever a record says.
func valid(dir string, uid int, id string) bool {
	parent := filepath.Base(filepath.Dir(dir))
	name := parentName(uid, 0)
	return id != "" && filepath.IsAbs(dir) && filepath.Clean(dir) == dir && filepath.Base(dir) == id &&
		(parent == name || strings.HasPrefix(parent, name+"."))
}
