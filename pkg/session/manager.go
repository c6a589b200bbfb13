package session

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"github.com/sessionbox/sessionbox/pkg/internal/launchd"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// Environment variables that a session's processes carry.
const (
	EnvID      = "SESSIONBOX_ID"      // of the session, for people and nested calls
	EnvSession = "SESSIONBOX_SESSION" // its name, or its id when it has none
	EnvCookie  = "SESSIONBOX_COOKIE"  // random: marks the session's processes
	EnvKeep    = "SESSIONBOX_KEEP"    // "1": let me outlive my session
	EnvTmpDir  = "SESSIONBOX_TMPDIR"  // directory for temporary files, removed with the session
)

// Config is how a Manager works. The zero value is right for most programs.
type Config struct {
	// StateDir holds records and history. Empty: $SESSIONBOX_STATE_DIR, else
	// the user's runtime and state directories.
	StateDir string
	// Helper is a sessionbox program, used for the process that stays in each
	// box and for starting commands where the kernel wants a detour. Empty: this
	// program if it is sessionbox, else the one in PATH. A program that calls
	// [Helper] at the start of its main can name itself; with [GuardArg] it is
	// started as the guard, which is guard.Helper's.
	Helper string
	// CgroupRoot is the directory below which the cgroup box makes its tree.
	// Empty: $SESSIONBOX_CGROUP_ROOT, else the highest one that may be written.
	CgroupRoot string
	// NoGuard keeps [Manager.Open] from starting a guard for sessions with an owner,
	// a time limit or a memory ceiling: the program calls [Manager.Reconcile] itself.
	NoGuard bool
	// OwnerSees says that this program is the owner of the sessions that it opens, and
	// closes them itself: a guard is started only for what it does not do, which is idle
	// times and memory.
	OwnerSees bool
	// Log gets what is worth knowing and no error; nil discards it.
	Log *slog.Logger
}

// Manager opens, finds and closes the sessions of one user. It holds no lock
// and no connection: any number of them, in any number of processes, work on
// the same sessions.
type Manager struct {
	cfg     Config
	log     *slog.Logger
	store   *store.Store
	boot    func() (string, error) // the boot id, read once
	machine func() string          // the machine id, read once
	// busFailed is when the systemd manager did not answer, in ns; 0 is never.
	busFailed atomic.Int64
	// keepers are those of lineage boxes that were found last: to find them the whole process
	// table is read.
	keepers about[[]keeperProc]
	// launchd starts the jobs of sessions; nil: there is none on this system.
	launchd *launchd.Control
	// table opens the process table.
	table func() (darwinjob.Table, error)
	// stateErr says why there are no records, nil when there are.
	stateErr error
}

// New makes a Manager. It reads nothing from disk but the place of the records;
// if that cannot be used, sessions can still be listed and closed.
func New(cfg Config) (*Manager, error) {
	if cfg.CgroupRoot == "" {
		cfg.CgroupRoot = os.Getenv("SESSIONBOX_CGROUP_ROOT")
	}
	if cfg.Log == nil {
		cfg.Log = discard()
	}
	env := store.SystemEnv()
	if cfg.StateDir != "" {
		lookup := env.Lookup
		env.Lookup = func(key string) (string, bool) {
			if key == "SESSIONBOX_STATE_DIR" {
				return cfg.StateDir, true
			}
			return lookup(key)
		}
	}
	m := newManager(cfg)
	dirs, err := store.DefaultDirs(env)
	if err == nil {
		m.store, err = store.Open(dirs)
	}
	if err != nil {
		// The brake must work when records do not: sessions are still found by
		// their boxes, and closed. Opening one says what is wrong.
		m.store, m.stateErr = store.Unusable(), stateError(err)
		m.log.Warn("go on without records", "err", err)
	}
	return m, nil
}

func newManager(cfg Config) *Manager {
	return &Manager{cfg: cfg, log: cfg.Log, boot: sync.OnceValues(proc.BootID), machine: sync.OnceValue(machineID),
		launchd: systemLaunchd(), table: darwinjob.System}
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func stateError(err error) error {
	return &Error{Kind: ErrPermission, Text: "the state directory cannot be used", Err: err,
		Hint: "SESSIONBOX_STATE_DIR names another one"}
}

// helper is the absolute path of a sessionbox program.
func (m *Manager) helper() (string, error) {
	if m.cfg.Helper != "" {
		return filepath.Abs(m.cfg.Helper)
	}
	self, err := os.Executable()
	if err == nil && strings.HasPrefix(filepath.Base(self), "sessionbox") {
		return self, nil
	}
	found, err := exec.LookPath("sessionbox")
	if err != nil {
		return "", &Error{Kind: ErrUnsupported, Text: "no sessionbox program found", Err: err,
			Hint: "install it in PATH, or set Config.Helper"}
	}
	return filepath.Abs(found)
}

// resolve turns a reference (name, id, unique prefix, or "." inside a session)
// into an id, from the records or, when there is none, from the kernel's objects.
func (m *Manager) resolve(ref string) (string, error) {
	if ref == "" {
		return "", &Error{Kind: ErrUsage, Text: `"" names no session`, Hint: "is a variable empty? `sessionbox ls` lists the sessions"}
	}
	if ref == "." {
		ids := m.ownSession()
		if len(ids) == 0 {
			return "", &Error{Kind: ErrNotFound, Text: "not inside a session",
				Hint: "name one: `sessionbox ls` lists them"}
		}
		return ids[len(ids)-1], nil
	}
	// What is meant by its whole name comes before what begins so, also when only its
	// box tells of it, or it was closed: who closes a session twice does not mean
	// another.
	id, err := m.store.ResolveExact(ref)
	if err == nil {
		return id, nil
	}
	if errors.Is(err, store.ErrNotFound) {
		boxes := m.findBoxes(nil)
		for _, f := range boxes {
			if f.rec.ID == ref || f.rec.Name == ref {
				return f.rec.ID, nil
			}
		}
		if r, ok := m.lastReceipt(ref); ok {
			return "", closedAt(ref, r.Closed)
		}
		if id, err = m.store.Resolve(ref); errors.Is(err, store.ErrNotFound) {
			return resolveUnrecorded(ref, boxes)
		}
	}
	switch {
	case err == nil:
		return id, nil
	case errors.Is(err, store.ErrAmbiguous):
		return "", &Error{Kind: ErrUsage, Text: err.Error(), Hint: "give more of the name"}
	}
	m.log.Warn("records cannot be read", "err", err)
	return resolveUnrecorded(ref, m.findBoxes(nil))
}

// resolveUnrecorded looks for ref among the boxes that the kernel has.
func resolveUnrecorded(ref string, boxes []found) (string, error) {
	var matches []string
	for _, f := range boxes {
		switch {
		case f.rec.ID == ref || f.rec.Name == ref:
			return f.rec.ID, nil
		case strings.HasPrefix(f.rec.ID, ref) || store.PrefixOfName(ref, f.rec.Name):
			matches = append(matches, f.rec.ID)
		}
	}
	switch len(matches) {
	case 1:
		return matches[0], nil
	case 0:
		return "", notFound(ref)
	}
	return "", &Error{Kind: ErrUsage, Text: fmt.Sprintf("%q fits %s", ref, strings.Join(matches, ", ")), Hint: "give more of the id"}
}

// found is a box that the kernel has, with the record its xattr carries.
type found struct {
	rec  store.Session
	path string
	ids  []string // of it and the sessions around it, outermost first
}

// load gives a session's record. With the record gone or unusable it is rebuilt
// from the box itself; problem then says so.
func (m *Manager) load(id string) (rec store.Session, problem string, err error) {
	rec, err = m.store.Get(id)
	if err == nil {
		return rec, "", nil
	}
	for _, f := range m.findBoxes(nil) {
		if f.rec.ID == id {
			if rec, err := m.store.Get(id); err == nil { // it was opened meanwhile
				return rec, "", nil
			}
			if errors.Is(err, store.ErrNotFound) {
				return f.rec, "its record is gone; known from its cgroup alone", nil
			}
			return f.rec, fmt.Sprintf("its record is unusable (%v); known from its cgroup alone", err), nil
		}
	}
	return store.Session{}, "", err
}
