package guard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/internal/testcgroup"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// Processes of the tests that are this program.
const (
	inFrontArg = "test-guard"  // a guard in front: its state directory, its metrics
	openerArg  = "test-opener" // opens a session of its parent's
)

// inFront is `sessionbox guard` as far as this package is concerned.
func inFront(state, metrics string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	Frugal()
	self, _ := os.Executable()
	m, err := session.New(session.Config{StateDir: state, NoGuard: true, Helper: self})
	if err != nil {
		return complain(err)
	}
	err = Run(ctx, Options{Manager: m, Metrics: strings.TrimPrefix(metrics, "-"), Log: NewLog(os.Stderr, false, slog.LevelInfo)})
	if errors.Is(err, session.ErrHeld) {
		complain(err)
		return 7
	}
	return complain(err)
}

// opener opens a session that its parent owns, which starts a guard.
func opener() int {
	self, _ := os.Executable()
	m, err := session.New(session.Config{Helper: self, Log: NewLog(os.Stderr, false, slog.LevelDebug)})
	if err != nil {
		return complain(err)
	}
	s, err := m.Open(context.Background(), session.OpenOptions{Kind: store.KindCgroup, NoParent: true, Owner: &session.OwnerOptions{PID: os.Getppid()}})
	if err != nil {
		return complain(err)
	}
	fmt.Println(s.ID())
	return 0
}

// world is a state directory and a cgroup of a test's own. Nothing in it starts a
// guard but the test.
type world struct {
	t     testing.TB
	m     *session.Manager
	st    *store.Store
	state string
	root  *cgroup.Group // everything
	out   *cgroup.Group // below it: what is in no box
}

func newWorld(t testing.TB) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		required(t, "not root")
	}
	w := &world{t: t, root: testcgroup.Root(t), state: filepath.Join(t.TempDir(), "state")}
	var err error
	if w.out, err = w.root.Make("out"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.out.Close() })
	boxes, err := w.root.Make("boxes")
	if err != nil {
		t.Fatal(err)
	}
	boxes.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{"SESSIONBOX_STATE_DIR": w.state, "SESSIONBOX_CGROUP_ROOT": filepath.Join(w.root.Path(), "boxes"),
		"HOME": t.TempDir(), "TMPDIR": t.TempDir(), "XDG_CONFIG_HOME": "", session.EnvGuard: ""} {
		t.Setenv(k, v)
	}
	if w.m, err = session.New(session.Config{Helper: self, NoGuard: true}); err != nil {
		t.Fatal(err)
	}
	if w.st, err = store.Open(w.m.Dirs()); err != nil {
		t.Fatal(err)
	}
	return w
}

// in starts a command outside of all boxes, below the test's cgroup.
func (w *world) in(cmd *exec.Cmd) *exec.Cmd {
	w.t.Helper()
	if err := w.out.Start(cmd); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd
}

func (w *world) sleeper() *exec.Cmd {
	w.t.Helper()
	return w.in(exec.Command("sleep", "600"))
}

func (w *world) open(o session.OpenOptions) *session.Session {
	w.t.Helper()
	o.Kind = store.KindCgroup
	s, err := w.m.Open(w.t.Context(), o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { s.Release() })
	return s
}

// guard starts a guard in front as a process of its own.
func (w *world) guard(metrics string) (*exec.Cmd, *output) {
	w.t.Helper()
	self, _ := os.Executable()
	out := &output{}
	cmd := exec.Command(self, inFrontArg, w.state, "-"+metrics)
	cmd.Stderr = out
	return w.in(cmd), out
}

// output is what a process writes, to be read meanwhile.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// until waits for something, not longer than most.
func (w *world) until(most time.Duration, what string, ok func() bool) time.Duration {
	w.t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > most {
			w.t.Fatalf("not after %v: %s", most, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return time.Since(began)
}

func (w *world) ready() session.GuardInfo {
	w.t.Helper()
	var i session.GuardInfo
	w.until(5*time.Second, "a guard is ready", func() bool {
		var err error
		if i, err = w.m.Guard(); err != nil {
			w.t.Fatal(err)
		}
		return i.Ready
	})
	return i
}

func (w *world) closed(id string) bool {
	_, err := w.st.Get(id)
	return errors.Is(err, store.ErrNotFound)
}

func (w *world) events(kind string) []store.Event {
	w.t.Helper()
	page, err := w.st.ReadHistory(store.Filter{Events: []string{kind}})
	if err != nil {
		w.t.Fatal(err)
	}
	return page.Events
}

// endsWithTest has a guard that is not a child of ours end with the test.
func (w *world) endsWithTest(pid int) {
	w.t.Helper()
	id, err := proc.Lookup(pid)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { w.end(id, syscall.SIGKILL) })
}

func (w *world) end(id proc.ID, sig syscall.Signal) {
	w.t.Helper()
	h, err := proc.Open(id)
	if err != nil {
		return
	}
	defer h.Close()
	h.Signal(sig)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := h.Wait(ctx); err != nil {
		w.t.Errorf("process %d after %v: %v", id.PID, sig, err)
	}
}

func own(cmd *exec.Cmd) *session.OwnerOptions { return &session.OwnerOptions{PID: cmd.Process.Pid} }

// The end of an owner ends its session, and no other.
func TestGuardOwnerEnds(t *testing.T) {
	w := newWorld(t)
	owner, other := w.sleeper(), w.sleeper()
	before := w.open(session.OpenOptions{Name: "before", Owner: own(owner)})
	task, err := before.Start(t.Context(), exec.Command("sleep", "600"), session.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	go task.Wait()
	_, out := w.guard("")
	w.ready()
	after := w.open(session.OpenOptions{Owner: own(owner)})
	stays := w.open(session.OpenOptions{Owner: own(other)})
	nobodys := w.open(session.OpenOptions{})
	kept := w.open(session.OpenOptions{Owner: own(owner), OnOwnerExit: store.OwnerExitKeep})

	owner.Process.Kill() // and nobody waits for it: a zombie is no owner
	took := w.until(time.Second, "both are closed", func() bool { return w.closed(before.ID()) && w.closed(after.ID()) })
	t.Logf("closed after %v", took)
	w.until(time.Second, "one is kept", func() bool { r, err := w.st.Get(kept.ID()); return err == nil && r.Owner == nil })
	if w.closed(stays.ID()) || w.closed(nobodys.ID()) {
		t.Error("another session was closed")
	}
	for _, line := range []string{"guard started: ", "ended session before (" + before.ID() + "): its owner is gone: process ", "; 1 of its processes were alive", "kept session " + kept.ID()} {
		w.until(time.Second, "the log says "+line, func() bool { return strings.Contains(out.String(), line) })
	}
}

func TestGuardLeaseEnds(t *testing.T) {
	w := newWorld(t)
	w.guard("")
	w.ready()
	s := w.open(session.OpenOptions{Name: "leased", Owner: &session.OwnerOptions{Lease: time.Second}})
	for range 4 {
		time.Sleep(400 * time.Millisecond)
		if _, err := w.m.Touch(t.Context(), "leased", 1); err != nil {
			t.Fatal(err)
		}
	}
	took := w.until(3*time.Second, "it is closed", func() bool { return w.closed(s.ID()) })
	if took < 800*time.Millisecond || took > 1800*time.Millisecond {
		t.Errorf("closed %v after the lease of 1s was renewed last", took)
	}
}

// Killed at any moment, the next guard does what is left to do.
func TestGuardKilled(t *testing.T) {
	w := newWorld(t)
	owner := w.sleeper()
	var all []*session.Session
	for range 10 {
		all = append(all, w.open(session.OpenOptions{Owner: own(owner)}))
	}
	kill := func(after time.Duration) {
		g, _ := w.guard("")
		time.Sleep(after)
		g.Process.Kill()
		g.Wait()
	}
	for i := range 10 {
		kill(time.Duration(i) * 4 * time.Millisecond)
	}
	owner.Process.Kill()
	for i := range 6 { // now in the middle of what it does
		kill(time.Duration(10+5*i) * time.Millisecond)
	}
	w.guard("")
	w.until(10*time.Second, "all are closed", func() bool {
		for _, s := range all {
			if !w.closed(s.ID()) {
				return false
			}
		}
		return true
	})
	left, _ := filepath.Glob(filepath.Join(w.root.Path(), "boxes", "*", "sessionbox-*"))
	if len(left) > 0 {
		t.Errorf("boxes are left: %v", left)
	}
}

// Of two guards one runs, and the other says who.
func TestGuardIsOne(t *testing.T) {
	w := newWorld(t)
	first, _ := w.guard("")
	w.ready()
	second, out := w.guard("")
	second.Wait()
	if code := second.ProcessState.ExitCode(); code != 7 || !strings.Contains(out.String(), fmt.Sprintf("process %d", first.Process.Pid)) {
		t.Errorf("exit code %d: %s", code, out)
	}
	// Many at once, with nobody there.
	first.Process.Signal(syscall.SIGTERM)
	first.Wait()
	if code := first.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the first ended with %d", code)
	}
	var all []*exec.Cmd
	for range 8 {
		g, _ := w.guard("")
		all = append(all, g)
	}
	pid := w.ready().PID
	for _, g := range all {
		if g.Process.Pid != pid {
			g.Wait()
			if code := g.ProcessState.ExitCode(); code != 7 {
				t.Errorf("one of many ended with %d", code)
			}
		}
	}
	if i, err := w.m.Guard(); err != nil || i.PID != pid {
		t.Errorf("%+v, %v; want %d", i, err, pid)
	}
}

// opened opens a session of ours in a process of its own, in a cgroup of the test, and
// gives the session's id.
func (w *world) opened(in *cgroup.Group) string {
	w.t.Helper()
	self, _ := os.Executable()
	cmd := exec.Command(self, openerArg)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := in.Start(cmd); err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		w.t.Fatalf("%v: %s", err, errs.String())
	}
	if errs.Len() > 0 && strings.Contains(errs.String(), "nobody watches") {
		w.t.Error(errs.String())
	}
	return strings.TrimSpace(out.String())
}

// Who opens a session that must be watched starts a guard, which lies in no box, holds
// nothing of its starter's, and gives way.
func TestGuardOnDemand(t *testing.T) {
	w := newWorld(t)
	// The opener runs in a session itself, which is closed later.
	around := w.open(session.OpenOptions{Name: "around"})
	info, err := w.m.Inspect(t.Context(), around.ID(), session.InspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	box, err := cgroup.Open(info.Box.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	leaf, err := box.Make("task-9")
	if err != nil {
		t.Fatal(err)
	}
	defer leaf.Close()
	id := w.opened(leaf)
	g, err := w.m.Guard()
	if err != nil || !g.Ready || !g.OnDemand {
		t.Fatalf("%+v, %v; want one on demand that is ready", g, err)
	}
	w.endsWithTest(g.PID)
	first, err := proc.Lookup(g.PID)
	if err != nil {
		t.Fatal(err)
	}
	cg, err := proc.Cgroup(g.PID)
	if err != nil || strings.Contains(cg, "sessionbox.slice") || !strings.Contains(cg, filepath.Base(w.root.Path())) {
		t.Errorf("the guard is in %s, %v", cg, err)
	}
	if _, err := w.m.Close(t.Context(), "around", session.CloseOptions{Now: true}); err != nil {
		t.Fatal(err)
	}
	if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", g.PID)); cwd != "/" {
		t.Errorf("its directory is %s, %v", cwd, err)
	}
	for fd := range 3 {
		if at, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", g.PID, fd)); at != "/dev/null" {
			t.Errorf("its descriptor %d is %s, %v", fd, at, err)
		}
	}
	// A second session finds it.
	w.opened(w.out)
	if again, _ := w.m.Guard(); again.PID != g.PID {
		t.Errorf("another guard was started: %+v", again)
	}
	// It gives way, and is not missed.
	front, out := w.guard("")
	w.until(5*time.Second, "the other takes over", func() bool { i, _ := w.m.Guard(); return i.PID == front.Process.Pid && i.Ready })
	w.until(5*time.Second, "the first has ended", func() bool { return proc.FateOf(first) == proc.Gone })
	if !strings.Contains(out.String(), "taking over from") {
		t.Error(out.String())
	}
	if _, err := w.st.Get(id); err != nil {
		t.Errorf("the session is gone: %v", err)
	}
}

// EnsureGuard is cheap when there is one, does not start two, and is told not to.
func TestEnsureGuard(t *testing.T) {
	w := newWorld(t)
	self, _ := os.Executable()
	m, err := session.New(session.Config{Helper: self})
	if err != nil {
		t.Fatal(err)
	}
	none := func(m *session.Manager, why string) {
		t.Helper()
		if err := m.EnsureGuard(t.Context()); err != nil {
			t.Errorf("%s: %v", why, err)
		}
		if i, _ := m.Guard(); i.Running {
			t.Errorf("%s: a guard runs", why)
		}
	}
	none(w.m, "NoGuard")
	t.Setenv(session.EnvGuard, "off")
	none(m, session.EnvGuard)
	t.Setenv(session.EnvGuard, "")
	config := filepath.Join(os.Getenv("HOME"), ".config", "sessionbox", "config.toml")
	if err := errors.Join(os.MkdirAll(filepath.Dir(config), 0o700), os.WriteFile(config, []byte("guard.start = \"never\"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	none(m, "the config")
	os.Remove(config)
	// A program that is no guard says so.
	no, err := session.New(session.Config{Helper: "/bin/true"})
	if err != nil {
		t.Fatal(err)
	}
	if err := no.EnsureGuard(t.Context()); !errors.Is(err, session.ErrUnsupported) {
		t.Errorf("a helper that is no guard: %v", err)
	}

	// The session has gone before the guard looks: it ends after a while. Fifty at once.
	if err := os.Mkdir(w.state, 0o700); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if err := m.EnsureGuard(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	i := w.ready()
	w.endsWithTest(i.PID)
	if n := len(w.events("guard_started")); n != 1 {
		t.Errorf("%d guards were started", n)
	}
	began := time.Now()
	for range 100 {
		if err := m.EnsureGuard(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	each := time.Since(began) / 100
	t.Logf("with one running: %v", each)
	if each > time.Millisecond {
		t.Errorf("%v to see that there is a guard", each)
	}
	w.until(linger+5*time.Second, "it ends by itself", func() bool { i, _ := m.Guard(); return !i.Running })
	// It gives the lock up first: whoever opens a session meanwhile starts another.
	w.until(5*time.Second, "it says so", func() bool { return len(w.events("guard_ended")) == 1 })
	if e := w.events("guard_ended"); e[0].Msg != "nothing is left to watch" {
		t.Errorf("%+v", e)
	}
}

// A guard on demand whose state directory is removed ends, and does not make it anew;
// nor does one that is started again after that.
func TestGuardStateRemoved(t *testing.T) {
	w := newWorld(t)
	opened := w.opened(w.out)
	g := w.ready()
	id, err := proc.Lookup(g.PID)
	if err != nil {
		t.Fatal(err)
	}
	w.endsWithTest(g.PID)
	w.until(5*time.Second, "it says so", func() bool { return len(w.events("guard_started")) == 1 }) // the last that it writes
	// A box that is left would be given a record anew.
	if _, err := w.m.Close(t.Context(), opened, session.CloseOptions{Now: true}); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(w.state); err != nil {
		t.Fatal(err)
	}
	w.until(5*time.Second, "it ends", func() bool { return proc.FateOf(id) == proc.Gone })
	self, _ := os.Executable()
	again := w.in(exec.Command(self, session.GuardArg))
	again.Wait()
	if code := again.ProcessState.ExitCode(); code != 0 || exists(w.state) {
		t.Errorf("exit code %d, the directory is there: %v", code, exists(w.state))
	}
}

// Among a thousand sessions the one whose owner ends is found at once.
func TestGuardThousand(t *testing.T) {
	w := newWorld(t)
	owner, others := w.sleeper(), w.sleeper()
	boot, err := proc.BootID()
	if err != nil {
		t.Fatal(err)
	}
	one := w.open(session.OpenOptions{Name: "one", Owner: own(owner)})
	id, err := proc.Lookup(others.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		// Without a box, which takes long to make: being opened, and their opener lives.
		rec := store.Session{ID: store.NewID(), State: store.StateOpening, Created: time.Now(), Boot: boot, Kind: store.KindCgroup,
			Creator: store.ProcID(id), UID: os.Geteuid(), StateDir: w.state}
		if err := w.st.Claim(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
	}
	g, _ := w.guard("")
	began := time.Now()
	w.ready()
	t.Logf("ready after %v", time.Since(began))
	time.Sleep(500 * time.Millisecond) // it looks at everything
	owner.Process.Kill()
	// The first look at all of them may still go on.
	took := w.until(3*time.Second, "it is closed", func() bool { return w.closed(one.ID()) })
	t.Logf("closed after %v, %.1f MiB", took, float64(costOf(t, g.Process.Pid).rss)/(1<<20))
	if all, err := w.m.Watches(); err != nil || len(all) != 1000 {
		t.Errorf("%d sessions are left, %v", len(all), err)
	}
}

// One who follows the events and stops reading holds nobody up.
func TestGuardWithAStuckReader(t *testing.T) {
	w := newWorld(t)
	owner := w.sleeper()
	s := w.open(session.OpenOptions{Owner: own(owner)})
	w.guard("")
	w.ready()
	stuck, seen := make(chan struct{}), make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range w.m.Follow(ctx, store.Filter{}) {
			select {
			case seen <- struct{}{}:
			default:
			}
			<-stuck
		}
	}()
	defer func() { cancel(); close(stuck); <-done }()
	time.Sleep(50 * time.Millisecond)
	big := json.RawMessage(`"` + strings.Repeat("x", 60000) + `"`)
	for range 50 { // more than any pipe holds
		if err := w.st.Append(t.Context(), store.Event{Event: "noise", Detail: json.RawMessage(`{"x":` + string(big) + `}`)}); err != nil {
			t.Fatal(err)
		}
	}
	<-seen
	owner.Process.Kill()
	w.until(time.Second, "it is closed", func() bool { return w.closed(s.ID()) })
}

// What a guard costs with a hundred idle sessions that have an owner.
func TestGuardIdle(t *testing.T) {
	w := newWorld(t)
	owner := w.sleeper()
	for range 100 {
		w.open(session.OpenOptions{Owner: own(owner)})
	}
	g, _ := w.guard("")
	w.ready()
	const span = 3 * time.Second
	var before, after cost
	var share float64
	// The first look at everything takes its time on a busy machine; and Go collects
	// garbage every two minutes, come what may.
	for range 4 {
		time.Sleep(time.Second)
		before = costOf(t, g.Process.Pid)
		time.Sleep(span)
		after = costOf(t, g.Process.Pid)
		share = float64(after.cpu-before.cpu) / float64(span)
		if after.switches == before.switches {
			break
		}
	}
	t.Logf("100 idle sessions: %.4f %% of a core, %d wake-ups in %v, %.1f MiB", 100*share, after.switches-before.switches, span, float64(after.rss)/(1<<20))
	if share > 0.002 {
		t.Errorf("%.3f %% of a core, want at most 0.2 %%", 100*share)
	}
	if after.rss > 30<<20 && !raceDetector {
		t.Errorf("%d bytes, want at most 30 MiB", after.rss)
	}
	if n := after.switches - before.switches; n > 0 {
		t.Errorf("%d wake-ups without cause", n)
	}
}

// cost is what a process has used.
type cost struct {
	cpu      time.Duration
	switches int
	rss      int64
}

func costOf(t testing.TB, pid int) (c cost) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("threads of %d: %v", pid, err)
	}
	for _, th := range threads {
		var ns int64
		b, _ := os.ReadFile(th + "/schedstat")
		fmt.Sscan(string(b), &ns)
		c.cpu += time.Duration(ns)
		b, _ = os.ReadFile(th + "/status")
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			n := 0
			if len(f) > 1 {
				fmt.Sscan(f[1], &n)
			}
			switch f[0] {
			case "voluntary_ctxt_switches:":
				c.switches += n
			case "VmRSS:":
				c.rss = int64(n) << 10
			}
		}
	}
	return c
}
