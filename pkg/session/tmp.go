package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/tmpdir"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// TmpDir is the session's own directory for temporary files, "" when it has none. It
// goes with the session.
func (s *Session) TmpDir() string { return s.rec.TmpDir }

// placeTmp writes into a new record where the session's directory will be: before it
// is made, so that a crash leaves none that no record names.
func (m *Manager) placeTmp(rec *store.Session) error {
	dir, err := tmpdir.Place(tmpBase(), os.Geteuid(), rec.ID)
	if err != nil {
		return m.withoutTmp(rec, err)
	}
	rec.TmpDir = dir
	return nil
}

// makeTmp makes the directory.
func (m *Manager) makeTmp(rec *store.Session) error {
	if rec.TmpDir == "" {
		return nil
	}
	mark := tmpdir.NewMark(rec.ID, m.store.Dirs().State, rec.Boot)
	if err := tmpdir.Make(rec.TmpDir, os.Geteuid(), mark); err != nil {
		m.dropTmp(rec)
		return m.withoutTmp(rec, err)
	}
	m.sweepTmp(rec)
	return nil
}

// withoutTmp decides whether a session can do without: a full or read-only /tmp keeps
// nobody from opening one, unless the directory was asked for.
func (m *Manager) withoutTmp(rec *store.Session, cause error) error {
	rec.TmpDir = ""
	if rec.PrivateTmp {
		return &Error{Kind: ErrPermission, Text: "no directory for temporary files can be made", Err: cause,
			Hint: "TMPDIR names another place for it; without --private-tmp a session needs none"}
	}
	m.log.Warn("the session has no directory for temporary files", "id", rec.ID, "err", cause)
	return nil
}

// dropTmp removes the directory of a session that could not be opened.
func (m *Manager) dropTmp(rec *store.Session) {
	if rec.TmpDir == "" {
		return
	}
	if err := tmpdir.Remove(context.Background(), rec.TmpDir, os.Geteuid(), rec.ID); err != nil {
		m.log.Warn("remove the directory of a session that could not be opened", "err", err)
	}
}

// removeTmp removes the session's directories. Its processes are proven gone, so nothing
// that is left there keeps it from being closed. Only when it is told to stop does it:
// the record is there still, and the next close goes on.
func (c *closing) removeTmp(ctx context.Context) error {
	for _, dir := range tmpDirs(&c.rec) {
		if tmpdir.Shared(dir) && c.m.namedByOther(dir, c.rec.ID) {
			c.note(dir + " stays for what was kept of the session")
			c.shared = append(c.shared, dir)
			continue
		}
		err := tmpdir.Remove(ctx, dir, os.Geteuid(), filepath.Base(dir))
		if err != nil && ctx.Err() != nil {
			return err
		}
		if _, ok := errors.AsType[*tmpdir.Left](err); ok {
			c.note(err.Error())
		} else if err != nil {
			c.note("its directory for temporary files could not be removed: " + err.Error())
		}
	}
	return nil
}

// removeShared looks once more at the directories that stayed for another session. Of
// two that are closed at once each finds the other's record while its own is there
// still; when both are gone the later one finds none.
func (c *closing) removeShared(ctx context.Context) {
	for _, dir := range c.shared {
		if c.m.namedByOther(dir, c.rec.ID) {
			continue
		}
		if err := tmpdir.Remove(ctx, dir, os.Geteuid(), filepath.Base(dir)); err != nil {
			c.m.log.Warn("remove the directory of two sessions that were closed at once", "err", err)
		}
	}
}

// tmpDirs are the directories that a session's processes may use: its own, and those of
// the sessions that they were kept from.
func tmpDirs(rec *store.Session) []string {
	if rec.TmpDir == "" {
		return rec.KeptTmp
	}
	return append([]string{rec.TmpDir}, rec.KeptTmp...)
}

// shareTmp gives the session's directories to one that something of it is moved to: the
// last of them to be closed removes them.
func (s *Session) shareTmp() []string {
	dirs := tmpDirs(&s.rec)
	for _, dir := range dirs {
		if err := tmpdir.Share(dir); err != nil {
			s.m.log.Debug("share a directory", "err", err)
		}
	}
	return dirs
}

// namedByOther says whether another session uses a directory.
func (m *Manager) namedByOther(dir, id string) bool {
	recs, _, _ := m.store.Sessions()
	for _, f := range m.findBoxes(nil) { // of those without a record, too
		recs = append(recs, f.rec)
	}
	return slices.ContainsFunc(recs, func(r store.Session) bool { return r.ID != id && slices.Contains(tmpDirs(&r), dir) })
}

// tmpBase is where directories are made. Inside of a session with a TMPDIR of its own
// that is beside it, not in it: who is opened from inside may outlive it.
func tmpBase() string {
	base := os.TempDir()
	if around := os.Getenv(EnvTmpDir); around != "" && base == around {
		return filepath.Dir(filepath.Dir(around))
	}
	return base
}

const (
	// sweepSome is how many directories an open looks at for ones that nobody owns.
	sweepSome = 16
	// sweepAge is how old they must be.
	sweepAge = 24 * time.Hour
)

// sweepTmp removes directories whose session is no more though nobody closed it: its
// record was lost, with a reboot or by hand.
//
// That the records here do not name one proves nothing, as it may be of a session with
// records elsewhere: in another state directory, in a container that shares /tmp. So
// its mark decides. Either it was made under another boot, on a file system that only
// this machine mounts; or it names this very state directory, where its record would
// be, and there is neither a record nor a box. What carries no mark stays.
func (m *Manager) sweepTmp(rec *store.Session) {
	for _, f := range tmpdir.Some(rec.TmpDir, os.Geteuid(), sweepSome) {
		if time.Since(f.Made) < sweepAge || f.Mark.Boot == "" || !m.nobodys(&f, rec.Boot) {
			continue
		}
		if err := tmpdir.Remove(context.Background(), f.Path, os.Geteuid(), f.Mark.Session); err != nil {
			m.log.Debug("remove a directory that is nobody's", "err", err)
		}
	}
}

func (m *Manager) nobodys(f *tmpdir.Found, boot string) bool {
	if f.Mark.Boot != boot {
		return f.Local
	}
	if f.Mark != tmpdir.NewMark(f.Mark.Session, m.store.Dirs().State, boot) {
		return false
	}
	if _, err := m.store.Get(f.Mark.Session); !errors.Is(err, store.ErrNotFound) {
		return false
	}
	return !m.namedByOther(f.Path, "")
}

// tmpEnviron tells commands of the session's directory in an environment that was made
// for them. What it says of another session's directory goes.
func tmpEnviron(rec *store.Session, env []string) []string {
	around, tmp := lookup(env, EnvTmpDir), lookup(env, "TMPDIR")
	env = slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, EnvTmpDir+"=") })
	if rec.TmpDir != "" {
		env = append(env, EnvTmpDir+"="+rec.TmpDir)
	}
	drop := func() {
		env = slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "TMPDIR=") })
	}
	switch {
	// One that the caller has not himself is one that he chose for the command.
	case rec.PrivateTmp && rec.TmpDir != "" && (tmp == "" || tmp == around || tmp == os.Getenv("TMPDIR")):
		drop()
		env = append(env, "TMPDIR="+rec.TmpDir)
	// That of a session around the caller goes with it: too soon, if ours is not inside.
	case tmp != "" && tmp == around && tmp != rec.TmpDir && rec.Parent == "":
		drop()
	}
	return env
}

// lookup is the value that counts: the last one.
func lookup(env []string, key string) string {
	for _, kv := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(kv, key+"="); ok {
			return v
		}
	}
	return ""
}
