package session

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sessionbox/sessionbox/pkg/internal/shim"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// shimDir is where the shims of a session are, "" if it has none.
func (m *Manager) shimDir(rec *store.Session) shim.Dir {
	if !rec.Shims {
		return ""
	}
	return shim.At(m.store.SessionDir(rec.ID))
}

// makeShims makes the shims of a new session, if they are wanted. It is done without
// where they cannot be made: they let a close find more, and hold nobody.
//
// lost says that it had some, whose notes are gone with its records.
func (m *Manager) makeShims(rec *store.Session, lost bool) {
	if !rec.Shims {
		return
	}
	c := m.shimConfig(rec)
	c.Lost = lost
	helper, err := m.helper()
	if err == nil {
		_, err = shim.Make(string(m.shimDir(rec)), c, helper)
	}
	if err != nil {
		m.log.Warn("the session has no shims for docker and others", "id", rec.ID, "err", err)
		rec.Shims = false
	}
}

// shimConfig is what the shims are told of a session.
func (m *Manager) shimConfig(rec *store.Session) shim.Config {
	c := shim.Config{ID: rec.ID, Cookie: rec.Cookie, Strict: rec.Strict, TableLock: m.tableLock()}
	switch rec.Kind {
	case store.KindSystemd:
		c.Slice, c.User = rec.Unit, os.Geteuid() != 0
	case store.KindCgroup:
		// An engine that makes cgroups itself counts from the place where it sees the tree.
		if rel, ok := strings.CutPrefix(rec.Path, rec.Mount+"/"); ok && rec.Mount == "/sys/fs/cgroup" && os.Geteuid() == 0 {
			c.Cgroup = "/" + rel
		}
	}
	return c
}

// shimEnviron puts the shims into the environment of a command, in place of those of a
// session around it: what is started through them is to be ours.
func (s *Session) shimEnviron(env []string) []string {
	switch dir := s.m.shimDir(&s.rec); {
	case dir != "":
		if _, err := dir.Config(); err != nil { // they were lost with the records
			s.m.makeShims(&s.rec, true)
		}
		return shim.Environ(env, dir)
	case s.rec.Parent == "": // those of a session that we are not inside of
		return shim.Environ(env, "")
	}
	return env
}

// shimCommand has a command that was looked up in our own PATH found in the session's.
func (s *Session) shimCommand(cmd *exec.Cmd) {
	dir := s.m.shimDir(&s.rec)
	if dir == "" || len(cmd.Args) == 0 || !slices.Contains(shim.Names(), cmd.Args[0]) {
		return // with a slash in it, it is meant as it is
	}
	link := filepath.Join(dir.Bin(), cmd.Args[0])
	if _, err := os.Stat(link); err == nil {
		cmd.Path = link
	}
}
