package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Dirs are the two places of a store.
type Dirs struct {
	State   string // sessions and names; dies with the boot
	History string // monthly event files; stays
	// UID owns everything in both.
	UID int
	// Given says that the user chose State: it may be a symlink and have any
	// mode, as long as it is the user's. Otherwise it must be a real directory
	// that nobody else can enter.
	Given bool
}

// Env is what DefaultDirs decides on. SystemEnv fills it for this process.
type Env struct {
	Lookup func(key string) (value string, ok bool) // os.LookupEnv
	UID    int                                      // effective user id
	GOOS   string                                   // runtime.GOOS
	Home   string                                   // home directory, may be empty
	Temp   string                                   // os.TempDir()
	RunDir string                                   // "/run": holds user/<uid> and sessionbox
	VarLib string                                   // "/var/lib"
}

// SystemEnv is the environment of this process.
func SystemEnv() Env {
	home, _ := os.UserHomeDir() // DefaultDirs says so if it is needed and missing
	return Env{
		Lookup: os.LookupEnv, UID: os.Geteuid(), GOOS: runtime.GOOS, Home: home,
		Temp: os.TempDir(), RunDir: "/run", VarLib: "/var/lib",
	}
}

// DefaultDirs finds where records and history are kept. SESSIONBOX_STATE_DIR=D
// puts them in D and D/history. Else, for the state: root's is
// /run/sessionbox; a user's is sessionbox in XDG_RUNTIME_DIR or in
// /run/user/<uid>, whichever exists and is the user's (a su or sudo -E leaves
// another user's directory in the environment), else <temp>/sessionbox-<uid>; on
// macOS ~/Library/Application Support/sessionbox. For the history: root's is
// /var/lib/sessionbox, a user's is sessionbox in XDG_STATE_HOME or in
// ~/.local/state, on macOS history in the state directory. Relative paths in the
// XDG variables are ignored, as their specification says.
//
// It looks at directories and creates none.
func DefaultDirs(env Env) (Dirs, error) {
	d := Dirs{UID: env.UID}
	if dir := env.get("SESSIONBOX_STATE_DIR"); dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return Dirs{}, fmt.Errorf("SESSIONBOX_STATE_DIR %q: %w", dir, err)
		}
		d.State, d.History, d.Given = abs, filepath.Join(abs, "history"), true
		return d, nil
	}
	switch {
	case env.GOOS == "darwin":
		if !filepath.IsAbs(env.Home) {
			return Dirs{}, fmt.Errorf("no home directory for the state: set HOME or SESSIONBOX_STATE_DIR")
		}
		d.State = filepath.Join(env.Home, "Library", "Application Support", "sessionbox")
		d.History = filepath.Join(d.State, "history")
		return d, nil
	case env.UID == 0:
		d.State = filepath.Join(env.RunDir, "sessionbox")
		d.History = filepath.Join(env.VarLib, "sessionbox")
		return d, nil
	}
	d.State = env.userState()
	switch state := env.get("XDG_STATE_HOME"); {
	case filepath.IsAbs(state):
		d.History = filepath.Join(state, "sessionbox")
	case filepath.IsAbs(env.Home):
		d.History = filepath.Join(env.Home, ".local", "state", "sessionbox")
	default:
		return Dirs{}, fmt.Errorf("no home directory for the history: set HOME, XDG_STATE_HOME or SESSIONBOX_STATE_DIR")
	}
	return d, nil
}

func (e Env) get(key string) string {
	if e.Lookup == nil {
		return ""
	}
	v, _ := e.Lookup(key)
	return v
}

// userState is the state directory of an ordinary Linux user.
func (e Env) userState() string {
	uid := strconv.Itoa(e.UID)
	for _, dir := range []string{e.get("XDG_RUNTIME_DIR"), filepath.Join(e.RunDir, "user", uid)} {
		if !filepath.IsAbs(dir) {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && int(st.Uid) == e.UID {
			return filepath.Join(dir, "sessionbox")
		}
	}
	return filepath.Join(e.Temp, "sessionbox-"+uid)
}

// checkState refuses a state directory that another user owns or could have
// prepared. One that does not exist is fine.
func (d Dirs) checkState() error {
	if d.Given {
		return checkDir(d.State, d.UID, true)
	}
	if err := checkDir(d.State, d.UID, false); err != nil {
		return err
	}
	var st unix.Stat_t
	if unix.Lstat(d.State, &st) == nil && st.Mode&0o077 != 0 {
		return fmt.Errorf("state directory %s has mode %04o, want 0700: %w", d.State, st.Mode&0o7777, ErrForeign)
	}
	return nil
}

// checkDir refuses what is no directory of uid. One that does not exist is fine.
func checkDir(dir string, uid int, followLink bool) error {
	_, err := statDir(dir, uid, followLink)
	return err
}

// statDir is checkDir that tells whether there is a directory.
func statDir(dir string, uid int, followLink bool) (exists bool, err error) {
	var st unix.Stat_t
	op, stat := "lstat", unix.Lstat
	if followLink {
		op, stat = "stat", unix.Stat
	}
	switch err := stat(dir, &st); {
	case errors.Is(err, unix.ENOENT):
		return false, nil
	case err != nil:
		return false, &fs.PathError{Op: op, Path: dir, Err: err}
	case int(st.Uid) != uid:
		return false, fmt.Errorf("directory %s is owned by uid %d, not %d: %w", dir, st.Uid, uid, ErrForeign)
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return false, fmt.Errorf("directory %s is a symlink: %w", dir, ErrForeign)
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return false, &fs.PathError{Op: op, Path: dir, Err: unix.ENOTDIR}
	}
	return true, nil
}

// makeDir creates dir, and its parents, unless it is there, and checks it.
func makeDir(dir string, uid int, followLink bool) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return checkDir(dir, uid, followLink)
}
