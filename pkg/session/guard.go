package session

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/config"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// GuardArg is the first argument of a guard that is started on demand, see
// pkg/guard; after it comes [GuardByPipe] if it says by a pipe that it is ready.
const (
	GuardArg    = "__guard"
	GuardByPipe = "pipe"
	// GuardReadyFD is where who started it waits for a byte then.
	GuardReadyFD = 3
)

// EnvGuard in the environment, set to "off", keeps guards from being started.
const EnvGuard = "SESSIONBOX_GUARD"

// GuardMemoryMin is what the service manager is to keep for a guard: who watches memory
// must get on when there is none. It needs a fourth of that.
const GuardMemoryMin = 64 << 20

// guardTime is how long an opener waits for a guard to be ready.
const guardTime = 2 * time.Second

// GuardInfo is the guard of a state directory, as it says of itself.
type GuardInfo struct {
	Running  bool      `json:"running"`
	PID      int       `json:"pid,omitempty"`
	OnDemand bool      `json:"on_demand,omitempty"`
	Since    time.Time `json:"since"`
	Ready    bool      `json:"ready"`
	Metrics  string    `json:"metrics,omitempty"`
	// Hold says why new sessions wait, "" when they do not.
	Hold string `json:"hold,omitempty"`
}

// Guard says whether a guard watches the sessions. It disturbs none.
func (m *Manager) Guard() (GuardInfo, error) {
	note, held, err := m.store.Guard()
	return GuardInfo{Running: held, PID: note.Process.PID, OnDemand: note.OnDemand, Since: note.Since, Ready: note.Ready, Metrics: note.Metrics, Hold: note.Hold}, err
}

// Dirs says where records and history are kept.
func (m *Manager) Dirs() store.Dirs { return m.store.Dirs() }

// WatchOf is the [Watch] of one session; the error is [store.ErrNotFound] when there
// is none of that id.
func (m *Manager) WatchOf(id string) (Watch, error) {
	rec, err := m.store.Get(id)
	if err != nil {
		return Watch{}, err
	}
	return m.watch(&rec), nil
}

// EnsureGuard makes sure that a guard watches the sessions: where none does, one is
// started, as a service of the systemd manager or, without one, as a process of its
// own that outlives the caller. It returns when the guard is ready, or after two
// seconds with an error.
//
// The record that the guard is wanted for must have been written before: a guard that
// is about to end for want of anything to watch gives its lock up first and then looks
// once more, so that either it sees the record or we see that it is gone.
func (m *Manager) EnsureGuard(ctx context.Context) error {
	if m.stateErr != nil {
		return m.stateErr
	}
	if m.guarded() || m.guardOff() != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, guardTime)
	defer cancel()
	// Of fifty openers at once one starts it.
	defer m.store.Turn(ctx)()
	if m.guarded() {
		return nil
	}
	helper, err := m.helper()
	if err != nil {
		return err
	}
	return m.startGuard(ctx, helper)
}

// guardOff is what keeps guards from being started, "" if nothing does.
func (m *Manager) guardOff() string {
	if m.cfg.NoGuard {
		return "Config.NoGuard is set"
	}
	if os.Getenv(EnvGuard) == "off" {
		return EnvGuard + " is off"
	}
	home, _ := os.UserHomeDir()
	cfg, err := config.Load(config.Paths(os.LookupEnv, home)...)
	if err == nil && cfg.Guard.Start == "never" {
		return "guard.start in the config file is never"
	}
	return "" // that the config is wrong is said by what needs it
}

// guarded says whether a guard holds the lock and lives. One that was killed a moment
// ago holds it until the kernel has taken it apart, and watches nothing.
func (m *Manager) guarded() bool {
	note, held, err := m.store.Guard()
	if err != nil || !held {
		return false
	}
	return note.Process.PID == 0 || !proc.Ending(proc.ID(note.Process))
}

// reguard starts a guard anew for a session that has one by its nature, when it was
// killed: whoever uses the session notices.
func (m *Manager) reguard(ctx context.Context, rec *store.Session) {
	if m.byNature(rec) && !m.guarded() {
		m.wantGuard(ctx, rec)
	}
}

// byNature says whether a session needs a guard whatever runs in it.
func (m *Manager) byNature(rec *store.Session) bool {
	return rec.Owner != nil && !m.cfg.OwnerSees || rec.IdleTimeout > 0 || watchesMemory(rec)
}

// wantGuard starts a guard for a session that somebody must watch. That it cannot be
// started is said and no failure: every reconcile does what it would have done.
func (m *Manager) wantGuard(ctx context.Context, rec *store.Session) {
	if w := m.watch(rec); !w.Policy || m.cfg.OwnerSees && !m.byNature(rec) {
		return
	}
	if err := m.EnsureGuard(ctx); err != nil {
		m.log.Warn("nobody watches the session's owner, time limits and memory: start `sessionbox guard`", "session", rec.ID, "err", err)
	}
}

// guardEnv is the environment of a guard: what decides where records, config and
// boxes are found is as it is here.
func (m *Manager) guardEnv() []string {
	var env []string
	for _, k := range []string{"HOME", "PATH", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME"} {
		if v := os.Getenv(k); v != "" {
			env = append(env, k+"="+v)
		}
	}
	if d := m.store.Dirs(); d.Given {
		env = append(env, "SESSIONBOX_STATE_DIR="+d.State)
	}
	if m.cfg.CgroupRoot != "" {
		env = append(env, "SESSIONBOX_CGROUP_ROOT="+m.cfg.CgroupRoot)
	}
	return env
}

// spawnGuard starts a guard as a process of its own, with nothing of ours: neither
// our terminal nor our directory nor our files.
func (m *Manager) spawnGuard(ctx context.Context, helper string) error {
	ready, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := exec.Command(helper, GuardArg, GuardByPipe)
	cmd.Env = m.guardEnv()
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return fmt.Errorf("start the guard: %w", err)
	}
	go cmd.Wait() // reap it if it ends before us
	if d, ok := ctx.Deadline(); ok {
		ready.SetReadDeadline(d)
	}
	var buf [1]byte
	n, err := ready.Read(buf[:])
	switch {
	case n == 1, m.guarded() && !errors.Is(err, os.ErrDeadlineExceeded):
		return nil // it is ready, or another one was faster
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &Error{Kind: ErrTimeout, Text: fmt.Sprintf("the guard (process %d) is not ready after %v", cmd.Process.Pid, guardTime), Retry: true}
	}
	return &Error{Kind: ErrUnsupported, Text: filepath.Base(helper) + " ended and is no guard",
		Hint: "`sessionbox guard` in front says why; a program that names itself as the helper has to call guard.Helper first in main"}
}

// guardUnit is the name of the unit of a guard that is started on demand. It is not
// that of an installed one, sessionbox-guard.service: of two units of one name the
// manager knows one, and the installed one could not take over.
func (m *Manager) guardUnit() string {
	env := store.SystemEnv()
	env.Lookup = nil
	usual, err := store.DefaultDirs(env)
	if d := m.store.Dirs(); err != nil || d.State != usual.State {
		sum := sha256.Sum256([]byte(d.State))
		return fmt.Sprintf("sessionbox-guard-auto-%x.service", sum[:4])
	}
	return "sessionbox-guard-auto.service"
}
