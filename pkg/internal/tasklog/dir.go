package tasklog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// place is the directory of all logs, below that of the history.
const place = "logs"

// regular is the type of a file that is nothing special.
const regular fs.FileMode = 0

const (
	lockName = "lock"
	suffix   = ".log"
)

// Path is the directory of a task's log.
func Path(history, session string, task int) string {
	return filepath.Join(history, place, session, strconv.Itoa(task))
}

// Dir is the directory of one log, held open: what happens to its name meanwhile,
// or to those above, does not matter.
type Dir struct{ f *os.File }

// Open opens the log of a task for reading. It follows no symlink below the
// history, and takes only what is this user's.
func Open(history, session string, task int) (*Dir, error) {
	return open(history, session, task, false)
}

func open(history, session string, task int, create bool) (*Dir, error) {
	if create {
		if err := os.MkdirAll(history, 0o700); err != nil {
			return nil, err
		}
	}
	at, err := os.Open(history) // given by the user, who may have it elsewhere
	if err != nil {
		return nil, err
	}
	for _, name := range []string{place, session, strconv.Itoa(task)} {
		next, err := below(at, name, create)
		at.Close()
		if err != nil {
			return nil, err
		}
		at = next
	}
	return &Dir{at}, nil
}

// below opens a directory in another.
func below(at *os.File, name string, create bool) (*os.File, error) {
	if create {
		if err := unix.Mkdirat(int(at.Fd()), name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, &fs.PathError{Op: "mkdir", Path: filepath.Join(at.Name(), name), Err: err}
		}
	}
	return openAt(at, name, unix.O_RDONLY|unix.O_DIRECTORY, fs.ModeDir)
}

// openAt opens what a directory has under a name, if it is of a type and ours. It
// follows no symlink and waits for no writer of a pipe.
func openAt(at *os.File, name string, flags int, want fs.FileMode) (*os.File, error) {
	path := filepath.Join(at.Name(), name)
	var fd int
	var err error
	for {
		fd, err = unix.Openat(int(at.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0o600)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	fi, err := f.Stat()
	if err == nil {
		if st, ok := fi.Sys().(*syscall.Stat_t); fi.Mode().Type() != want || !ok || int(st.Uid) != os.Geteuid() {
			err = fmt.Errorf("%s is not this user's, or of another type than it should be", path)
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Close lets go of it.
func (d *Dir) Close() error { return d.f.Close() }

// Path is where it was when it was opened.
func (d *Dir) Path() string { return d.f.Name() }

// Live says that the pump is there: the log may grow. Look before reading to the
// end, not after.
func (d *Dir) Live() bool {
	// Not for writing: its close would wake whoever watches the directory, us.
	f, err := openAt(d.f, lockName, unix.O_RDONLY, regular)
	if err != nil {
		return false
	}
	defer f.Close() // gives back the lock
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// starts are the places where the segments begin, oldest first.
func (d *Dir) starts() ([]int64, error) {
	if _, err := d.f.Seek(0, 0); err != nil {
		return nil, err
	}
	names, err := d.f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []int64
	for _, name := range names {
		if at, ok := startOf(name); ok {
			all = append(all, at)
		}
	}
	slices.Sort(all)
	return all, nil
}

// segmentName sorts as the place does.
func segmentName(start int64) string { return fmt.Sprintf("%015d", start) + suffix }

func startOf(name string) (int64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil && n >= 0 && segmentName(n) == name
}

func (d *Dir) openSegment(start int64, flags int) (*os.File, error) {
	return openAt(d.f, segmentName(start), flags, regular)
}

func (d *Dir) removeSegment(start int64) error {
	err := unix.Unlinkat(int(d.f.Fd()), segmentName(start), 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
