package cgroup_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/park"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/internal/testcgroup"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"golang.org/x/sys/unix"
)

// TestMain lets the test binary be the parked stub and a process without a
// leading thread.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case park.Arg:
			os.Exit(park.Main(os.Args[2:]))
		case "headless":
			headless()
		case "__elsewhere":
			os.Exit(elsewhere(os.Args[2], os.Args[3]))
		}
	}
	os.Exit(m.Run())
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func make1(t *testing.T, g *cgroup.Group, name string) *cgroup.Group {
	t.Helper()
	c, err := g.Make(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func start(t *testing.T, g *cgroup.Group, argv ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	if err := g.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd
}

func TestStartListKill(t *testing.T) {
	g := testcgroup.Root(t)
	leaf := make1(t, g, "leaf")
	cmd := start(t, leaf, "sh", "-c", "sleep 600 & sleep 600 & wait")
	canary := exec.Command("sleep", "600")
	if err := canary.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { canary.Process.Kill(); canary.Wait() }()

	for { // the shell forks both
		m, err := g.Members()
		if err != nil {
			t.Fatal(err)
		}
		if len(m) == 3 && m[0].Leaf == "leaf" {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if p, err := g.Populated(); err != nil || !p {
		t.Fatalf("Populated = %v, %v; want true", p, err)
	}
	if err := leaf.Remove(deadline(t)); !errors.Is(err, unix.EBUSY) {
		t.Errorf("Remove of a populated group: %v, want EBUSY", err)
	}
	if err := g.Kill(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if p, err := g.Populated(); err != nil || p {
		t.Errorf("Populated after Kill = %v, %v; want false", p, err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the command ended well, want killed")
	}
	if err := canary.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the canary outside is gone: %v", err)
	}
}

// A process whose leading thread has ended survives cgroup.kill (measured on
// 6.18), so this fails without the second pass.
func TestKillReachesProcessWithoutLeader(t *testing.T) {
	g := testcgroup.Root(t)
	leaf := make1(t, g, "leaf")
	cmd := start(t, leaf, os.Args[0], "headless")
	for {
		s, err := proc.ReadStat(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if s.State == 'Z' {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := leaf.Kill(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if p, _ := leaf.Populated(); p {
		t.Error("still populated")
	}
}

// What lives of a process whose leading thread has ended can be moved, and is found and
// killed where it is, and nowhere else: the kernel goes on listing the dead thread where
// it was, and lists nothing in the other place.
func TestMovedWithoutLeader(t *testing.T) {
	g := testcgroup.Root(t)
	from, to := make1(t, g, "from"), make1(t, g, "to")
	cmd := start(t, from, os.Args[0], "headless")
	pid := cmd.Process.Pid
	for {
		s, err := proc.ReadStat(pid)
		if err != nil {
			t.Fatal(err)
		}
		if s.State == 'Z' {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := errors.Join(to.Add(pid), to.Verify(pid)); err != nil {
		t.Fatal(err)
	}
	if pids, err := from.Procs(); err != nil || len(pids) != 0 {
		t.Errorf("where it was: %v, %v; want nobody", pids, err)
	}
	if pids, err := to.Procs(); err != nil || !slices.Equal(pids, []int{pid}) {
		t.Errorf("where it is: %v, %v; want %d", pids, err, pid)
	}
	if n, err := from.Signal(unix.SIGKILL); n != 0 || err != nil {
		t.Errorf("a signal to where it was reached %d, %v", n, err)
	}
	if cg, err := proc.Cgroup(pid); err != nil || filepath.Base(cg) != "to" {
		t.Errorf("it is said to be in %s, %v", cg, err)
	}
	beside := start(t, to, "sleep", "600")
	if err := to.Verify(pid); err != nil {
		t.Errorf("among others: %v", err)
	}
	if err := from.Remove(deadline(t)); err != nil {
		t.Error(err)
	}
	if err := to.Kill(deadline(t)); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	beside.Wait()
}

// headless ends the leading thread and lives on in another.
func headless() {
	go func() { time.Sleep(10 * time.Minute); os.Exit(0) }()
	unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
}

// Without cgroup.kill (before 5.14) the group is frozen and signalled.
func TestKillByHand(t *testing.T) {
	g := testcgroup.Root(t)
	leaf := make1(t, g, "leaf")
	start(t, leaf, "sh", "-c", "trap '' TERM HUP INT; (sleep 600; sleep 600) & while :; do sleep 0.01; done")
	if err := leaf.KillByHand(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if p, _ := leaf.Populated(); p {
		t.Error("still populated")
	}
	if f, _ := leaf.Frozen(); f {
		t.Error("still frozen")
	}
}

func TestKillStoppedAndFrozen(t *testing.T) {
	g := testcgroup.Root(t)
	leaf := make1(t, g, "leaf")
	cmd := start(t, leaf, "sleep", "600")
	if n, err := leaf.Signal(unix.SIGSTOP); n != 1 || err != nil {
		t.Fatalf("Signal = %d, %v; want 1", n, err)
	}
	if err := g.Freeze(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if f, err := leaf.Frozen(); !f || err != nil {
		t.Errorf("Frozen of the leaf = %v, %v; want true through its parent", f, err)
	}
	if err := g.Kill(deadline(t)); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if f, _ := g.Frozen(); f {
		t.Error("frozen after Kill: what is started next would not run")
	}
}

func TestSignalReachesEachOnce(t *testing.T) {
	g := testcgroup.Root(t)
	leaf := make1(t, g, "leaf")
	out := filepath.Join(t.TempDir(), "out")
	start(t, leaf, "sh", "-c", fmt.Sprintf("trap 'echo x >>%s' USR1; echo ready >>%s; while :; do sleep 0.01; done", out, out))
	await(t, func() bool { b, _ := os.ReadFile(out); return string(b) == "ready\n" })
	if _, err := g.SignalExcept(unix.SIGUSR1, func(rel string) bool { return rel == "leaf" }); err != nil {
		t.Fatal(err)
	}
	if n, err := leaf.Signal(unix.SIGUSR1); n < 1 || err != nil {
		t.Fatalf("Signal = %d, %v", n, err)
	}
	await(t, func() bool { b, _ := os.ReadFile(out); return string(b) == "ready\nx\n" })
}

func TestRemoveTree(t *testing.T) {
	g := testcgroup.Root(t)
	top := make1(t, g, "top")
	a := make1(t, top, "a")
	make1(t, a, "b")
	make1(t, top, "c")
	if err := top.RemoveEmpty(); err == nil {
		t.Error("RemoveEmpty removed a directory with others in it")
	}
	if err := top.Remove(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if !top.Gone() {
		t.Error("not gone")
	}
	if err := top.Remove(deadline(t)); err != nil {
		t.Errorf("Remove again: %v, want nil", err)
	}
	if err := top.Kill(deadline(t)); err != nil {
		t.Errorf("Kill of a removed group: %v, want nil", err)
	}
	if p, err := top.Populated(); p || err != nil {
		t.Errorf("Populated of a removed group = %v, %v", p, err)
	}
}

// A directory made anew under the same name is a stranger's.
func TestStaleHandleNeverMeansTheNewGroup(t *testing.T) {
	g := testcgroup.Root(t)
	old := make1(t, g, "x")
	if err := old.Remove(deadline(t)); err != nil {
		t.Fatal(err)
	}
	fresh := make1(t, g, "x")
	start(t, fresh, "sleep", "600")
	if err := old.Kill(deadline(t)); err != nil {
		t.Errorf("Kill through the stale handle: %v", err)
	}
	if err := old.Remove(deadline(t)); err != nil {
		t.Errorf("Remove through the stale handle: %v", err)
	}
	if p, _ := fresh.Populated(); !p {
		t.Error("the stale handle ended a stranger's process")
	}
	if _, err := cgroup.OpenExact(fresh.Path(), old.Inode()); !errors.Is(err, cgroup.ErrReplaced) {
		t.Errorf("OpenExact = %v, want ErrReplaced", err)
	}
}

func TestStartParked(t *testing.T) {
	g := testcgroup.Root(t)
	leaf := make1(t, g, "leaf")
	var out strings.Builder
	cmd := exec.Command("sh", "-c", "cat /proc/self/cgroup; ls -l /proc/self/fd | wc -l; echo $X")
	cmd.Env, cmd.Stdout = append(os.Environ(), "X=kept as it was"), &out
	if err := leaf.StartParked(t.Context(), cmd, os.Args[0], nil); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "/"+filepath.Base(leaf.Path())+"\n") || !strings.Contains(out.String(), "kept as it was") {
		t.Errorf("ran elsewhere or with another environment:\n%s", &out)
	}
	if cmd.Path == os.Args[0] {
		t.Error("the caller's cmd shows the stub")
	}

	missing := &exec.Cmd{Path: "/no/such/program", Args: []string{"x"}}
	if err := leaf.StartParked(t.Context(), missing, os.Args[0], nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing program: %v, want ErrNotExist", err)
	}
	refused := errors.New("refused")
	marker := filepath.Join(t.TempDir(), "ran")
	cmd = exec.Command("touch", marker)
	if err := leaf.StartParked(t.Context(), cmd, os.Args[0], func(int) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("a refused move: %v, want what attach said", err)
	}
	if err := leaf.StartParked(t.Context(), exec.Command("touch", marker), os.Args[0], func(int) error { return nil }); !errors.Is(err, cgroup.ErrCannotEnter) {
		t.Errorf("a move that did not happen: %v, want ErrCannotEnter", err)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the command ran outside of the group")
	}
}

func TestXattr(t *testing.T) {
	g := testcgroup.Root(t)
	if _, err := g.Xattr("sessionbox.meta"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Xattr = %v, want ErrNotExist", err)
	}
	long := strings.Repeat("x", 10000)
	if err := g.SetXattr("sessionbox.meta", long); err != nil {
		t.Fatal(err)
	}
	if got, err := g.Xattr("sessionbox.meta"); got != long || err != nil {
		t.Errorf("Xattr = %d bytes, %v", len(got), err)
	}
}

func TestOpenRefusesOtherDirectories(t *testing.T) {
	if _, err := cgroup.Open(t.TempDir()); !errors.Is(err, cgroup.ErrNotCgroup2) {
		t.Errorf("a temporary directory: %v, want ErrNotCgroup2", err)
	}
	g := testcgroup.Root(t)
	for _, name := range []string{"", ".", "..", "a/b", "../x", "a\nb"} {
		if _, err := g.Make(name); err == nil {
			t.Errorf("Make(%q) succeeded", name)
		}
		if _, err := g.Child(name); err == nil {
			t.Errorf("Child(%q) succeeded", name)
		}
	}
}

// A member may make a threaded subtree; listing and killing work all the same.
func TestThreadedSubtree(t *testing.T) {
	g := testcgroup.Root(t)
	leaf := make1(t, g, "leaf")
	threads := make1(t, leaf, "threads")
	if err := os.WriteFile(filepath.Join(threads.Path(), "cgroup.type"), []byte("threaded"), 0); err != nil {
		t.Fatal(err)
	}
	cmd := start(t, leaf, "sleep", "600")
	if err := os.WriteFile(filepath.Join(threads.Path(), "cgroup.threads"), fmt.Append(nil, cmd.Process.Pid), 0); err != nil {
		t.Fatal(err)
	}
	m, err := g.Members()
	if err != nil || len(m) != 1 || m[0].PID != cmd.Process.Pid {
		t.Errorf("Members = %v, %v; want the one", m, err)
	}
	if err := leaf.Kill(deadline(t)); err != nil {
		t.Error(err)
	}
}

func TestUsage(t *testing.T) {
	g := testcgroup.Root(t)
	leaf := make1(t, g, "leaf")
	start(t, leaf, "sleep", "600")
	u, err := g.Usage()
	if err != nil || u.MemoryBytes == nil || *u.MemoryBytes == 0 || u.Pids == nil || *u.Pids != 1 {
		t.Errorf("Usage = %+v, %v", u, err)
	}
	if u.Tier == "" {
		t.Error("it is not said how memory was measured")
	}
	if g.Has("memory.pressure") && (u.Pressure == nil || *u.Pressure < 0 || *u.Pressure > 100) {
		t.Errorf("Pressure = %v", u.Pressure)
	}
}

// Whatever else limits g, the machine's memory does.
func TestBound(t *testing.T) {
	g := testcgroup.Root(t)
	b := g.Bound()
	if b == nil || b.Of == "" || b.Limit == 0 || b.Limit > cgroup.HostMemory().Memory {
		t.Fatalf("Bound = %+v", b)
	}
	if !g.Has("memory.max") {
		if b.Of != memlimit.BoundHost || b.Used == 0 || b.Used >= b.Limit {
			t.Errorf("Bound = %+v; want the host", b)
		}
		return
	}
	if _, err := g.SetLimits(&specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: new(int64(64 << 20))}}); err != nil {
		t.Fatal(err)
	}
	if b := g.Bound(); b.Of != memlimit.BoundOwn || b.Limit != 64<<20 {
		t.Errorf("Bound = %+v; want its own 64M", b)
	}
}

func await(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("did not happen")
		}
	}
}
