package store

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestDefaultDirs(t *testing.T) {
	run, uid := t.TempDir(), os.Geteuid()
	if uid == 0 {
		uid = 1000 // the rules of an ordinary user, on directories made theirs
	}
	own := func(parts ...string) string {
		dir := filepath.Join(append([]string{run}, parts...)...)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if os.Geteuid() == 0 {
			if err := os.Chown(dir, uid, -1); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	xdg := own("xdg")
	withUser := filepath.Join(run, "a")
	user := own("a", "user", "1000")
	if uid != 1000 {
		user = own("a", "user", strconv.Itoa(uid))
	}
	foreign := "/proc/1" // root's
	for _, c := range []struct {
		name           string
		env            map[string]string
		uid            int
		goos, home     string
		run            string
		state, history string // "" = error
	}{
		{"given", map[string]string{"SESSIONBOX_STATE_DIR": "/d"}, uid, "linux", "/h", withUser, "/d", "/d/history"},
		{"given as root", map[string]string{"SESSIONBOX_STATE_DIR": "/d/"}, 0, "linux", "", withUser, "/d", "/d/history"},
		{"xdg", map[string]string{"XDG_RUNTIME_DIR": xdg}, uid, "linux", "/h", withUser, xdg + "/sessionbox", "/h/.local/state/sessionbox"},
		{"xdg state", map[string]string{"XDG_RUNTIME_DIR": xdg, "XDG_STATE_HOME": "/s"}, uid, "linux", "/h", withUser, xdg + "/sessionbox", "/s/sessionbox"},
		{"relative xdg", map[string]string{"XDG_RUNTIME_DIR": "x", "XDG_STATE_HOME": "s"}, uid, "linux", "/h", withUser, user + "/sessionbox", "/h/.local/state/sessionbox"},
		{"another user's xdg", map[string]string{"XDG_RUNTIME_DIR": foreign}, uid, "linux", "/h", withUser, user + "/sessionbox", "/h/.local/state/sessionbox"},
		{"missing xdg", map[string]string{"XDG_RUNTIME_DIR": "/nowhere"}, uid, "linux", "/h", withUser, user + "/sessionbox", "/h/.local/state/sessionbox"},
		{"unset", nil, uid, "linux", "/h", withUser, user + "/sessionbox", "/h/.local/state/sessionbox"},
		{"temp", nil, uid, "linux", "/h", run, "/tmp/x/sessionbox-" + strconv.Itoa(uid), "/h/.local/state/sessionbox"},
		{"no home", nil, uid, "linux", "", withUser, "", ""},
		{"root", map[string]string{"XDG_RUNTIME_DIR": xdg, "XDG_STATE_HOME": "/s"}, 0, "linux", "", run, run + "/sessionbox", "/lib/sessionbox"},
		{"darwin", map[string]string{"XDG_RUNTIME_DIR": xdg}, uid, "darwin", "/Users/me", run, "/Users/me/Library/Application Support/sessionbox", "/Users/me/Library/Application Support/sessionbox/history"},
		{"darwin, no home", nil, uid, "darwin", "", run, "", ""},
	} {
		lookup := func(k string) (string, bool) { v, ok := c.env[k]; return v, ok }
		d, err := DefaultDirs(Env{Lookup: lookup, UID: c.uid, GOOS: c.goos, Home: c.home, Temp: "/tmp/x", RunDir: c.run, VarLib: "/lib"})
		if (err == nil) != (c.state != "") || d.State != c.state || d.History != c.history {
			t.Errorf("%s: %+v, %v; want %s, %s", c.name, d, err, c.state, c.history)
		}
		if err == nil && (d.UID != c.uid || d.Given != strings.HasPrefix(c.name, "given")) {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
	if _, err := DefaultDirs(SystemEnv()); err != nil {
		t.Log(err) // no home: nothing to check
	}
}

func TestOpenRefuses(t *testing.T) {
	base, uid := t.TempDir(), os.Geteuid()
	open := func(state string, uid int, given bool) error {
		_, err := Open(Dirs{State: state, History: state + "/history", UID: uid, Given: given})
		return err
	}
	mkdir := func(name string, mode os.FileMode) string {
		dir := filepath.Join(base, name)
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, mode)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	good, wide := mkdir("good", 0o700), mkdir("wide", 0o750)
	link, file := filepath.Join(base, "link"), filepath.Join(base, "file")
	if err := os.Symlink(good, link); err != nil {
		t.Fatal(err)
	}
	writeFile(t, file, "")
	for _, c := range []struct {
		name  string
		err   error
		where string // named in the error; "" = no error
	}{
		{"good", open(good, uid, false), ""},
		{"missing", open(base+"/no/such", uid, false), ""},
		{"group may enter", open(wide, uid, false), wide},
		{"group may enter what the user chose", open(wide, uid, true), ""},
		{"symlink", open(link, uid, false), link},
		{"symlink that the user chose", open(link, uid, true), ""},
		{"another user's", open(good, uid+1, false), good},
		{"another user's, chosen", open(good, uid+1, true), good},
		{"a file", open(file, uid, true), file},
		{"relative", open("state", uid, true), "state"},
	} {
		switch {
		case c.where == "" && c.err != nil:
			t.Errorf("%s: %v", c.name, c.err)
		case c.where != "" && (c.err == nil || !strings.Contains(c.err.Error(), c.where)):
			t.Errorf("%s: %v, want an error with %s", c.name, c.err, c.where)
		}
	}
	if err := open(wide, uid, false); !errors.Is(err, ErrForeign) {
		t.Errorf("%v, want ErrForeign", err)
	}
	if _, err := os.Lstat(base + "/no"); err == nil {
		t.Error("Open has created a directory")
	}
}
