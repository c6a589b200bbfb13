package darwinjob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"golang.org/x/sys/unix"
)

// The tests of this file run the real table on real processes, in a pid namespace of
// their own: this binary is its pid 1, starts a canary and a supervisor, and counts what
// is left. Whatever happens, the namespace ends with it.

// spec is one scene.
type spec struct {
	Script string
	Reaper bool // the supervisor is a subreaper
	Crash  bool // it is killed when the script has run; another one closes
	Blind  bool // nobody looks before the end
	Scrub  bool // the command gets no cookie
	UID    int  // whom the supervisor and the command run as
	Hide   bool // /proc is mounted with hidepid=2
	Piled  bool // what has ended stays a zombie of the supervisor's until all is over
	// Await is the name of a program that has to run before the end; "" is nothing.
	Await string
	Dir   string
}

// result of a scene.
type result struct {
	Empty, Frozen bool
	Ended         []string
	Survivors     []string
	Suspects      int
	TookMS        int64
	Err           string
	Left          []string // by pid 1's word
	Canary        bool
}

func TestMain(m *testing.M) {
	roles := map[string]func(spec) int{"init": asInit, "supervisor": asSupervisor, "closer": asCloser, "headless": asHeadless}
	if role := roles[os.Getenv("SBX_ROLE")]; role != nil {
		var s spec
		if err := json.Unmarshal([]byte(os.Getenv("SBX_SPEC")), &s); err != nil {
			panic(err)
		}
		os.Exit(role(s))
	}
	os.Exit(m.Run())
}

func init() {
	if os.Getenv("SBX_ROLE") == "headless" {
		runtime.LockOSThread() // on the leading thread, which is to end
	}
}

// again is this program in another role.
func again(role string, s spec) *exec.Cmd {
	b, _ := json.Marshal(s)
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	if role != "init" && s.UID != 0 {
		exe = filepath.Join(s.Dir, "exe")
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "SBX_ROLE="+role, "SBX_SPEC="+string(b), "SBX_EXE="+exe)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd
}

// scene plays one in a namespace.
func scene(t *testing.T, s spec) result {
	t.Helper()
	s.Dir = t.TempDir()
	if s.UID != 0 {
		// The namespace's own user must reach our binary.
		for d := s.Dir; d != os.TempDir(); d = filepath.Dir(d) {
			if err := os.Chmod(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		b, err := os.ReadFile("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.Dir, "exe"), b, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(s.Dir, s.UID, s.UID); err != nil {
			t.Fatal(err)
		}
	}
	cmd := again("init", s)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // Pdeathsig is the thread's
	defer runtime.UnlockOSThread()
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = nil, &out
	err := cmd.Run()
	if errors.Is(err, os.ErrPermission) {
		if slices.Contains(strings.Split(os.Getenv("SESSIONBOX_TEST_REQUIRE"), ","), "cgroup") {
			t.Fatalf("tier cgroup, which has root, is required: %v", err)
		}
		t.Skip("needs a pid namespace of its own: " + err.Error())
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	var r result
	b, err := os.ReadFile(filepath.Join(s.Dir, "result"))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return r
}

func die(what string, err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, what+":", err)
		os.Exit(3)
	}
}

// asInit is pid 1 of the namespace.
func asInit(s spec) int {
	die("mount", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	opts := ""
	if s.Hide {
		opts = "hidepid=2"
	}
	die("mount /proc", unix.Mount("proc", "/proc", "proc", 0, opts))
	canary := exec.Command("sleep", "600")
	canary.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	die("canary", canary.Start())
	play := func(role string) {
		cmd := again(role, s)
		if s.UID != 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(s.UID), Gid: uint32(s.UID)}}
		}
		die(role, cmd.Start())
		for { // as pid 1 does, reap all until it ends
			var ws unix.WaitStatus
			pid, err := unix.Wait4(-1, &ws, 0, nil)
			if pid == cmd.Process.Pid {
				if ws.Exited() && ws.ExitStatus() != 0 {
					os.Exit(4)
				}
				return
			}
			if err != nil && !errors.Is(err, unix.EINTR) {
				die("wait", err)
			}
		}
	}
	play("supervisor")
	if s.Crash {
		play("closer")
	}
	path := filepath.Join(s.Dir, "result")
	var r result
	b, err := os.ReadFile(path)
	die("result", err)
	die("result", json.Unmarshal(b, &r))
	pids, err := proc.PIDs()
	die("list", err)
	for _, pid := range pids {
		st, err := proc.ReadStat(pid)
		switch {
		case err != nil || pid == 1 || st.State == 'Z' && st.Threads <= 1:
		case pid == canary.Process.Pid:
			r.Canary = true
		default:
			r.Left = append(r.Left, fmt.Sprintf("%d %s %c", pid, st.Comm, st.State))
		}
	}
	b, _ = json.Marshal(r)
	die("result", os.WriteFile(path, b, 0o644))
	return 0
}

// asSupervisor starts the command and ends all of it.
func asSupervisor(s spec) int {
	ctx := context.Background()
	table, err := System()
	die("System", err)
	snap, err := table.List(ctx)
	die("List", err)
	l := NewLedger("s", snap)
	l.Cookie = "0123456789abcdef"
	if s.Reaper {
		self, err := BecomeReaper()
		die("BecomeReaper", err)
		l.Reapers = []Reaper{{ID: self}}
	}
	j := New(table, l, Options{FreezeFor: 3 * time.Second, KillFor: 10 * time.Second})
	cmd := exec.Command("sh", "-c", `read _; exec bash -c "$0"`, s.Script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Dir = s.Dir
	if !s.Scrub {
		cmd.Env = append(os.Environ(), EnvCookie+"="+l.Cookie)
	}
	gate, err := cmd.StdinPipe()
	die("pipe", err)
	die("start", cmd.Start())
	_, err = j.AddRoot(cmd.Process.Pid, "task-1")
	die("AddRoot", err)
	watch, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if !s.Blind {
			j.Watch(watch)
		}
	}()
	gate.Write([]byte("\n"))
	gate.Close()
	if s.Reaper && !s.Piled {
		go func() {
			for watch.Err() == nil {
				CollectOrphans(func(pid int) bool { return pid == cmd.Process.Pid })
				time.Sleep(20 * time.Millisecond)
			}
		}()
	}
	time.Sleep(900 * time.Millisecond)
	// Without a look of the lineage, which would learn from it.
	for late := time.Now().Add(30 * time.Second); s.Await != "" && !runs(s.Await) && time.Now().Before(late); {
		time.Sleep(50 * time.Millisecond)
	}
	stop()
	<-watched
	if s.Crash {
		b, err := j.Encode()
		die("encode", err)
		die("ledger", os.WriteFile(filepath.Join(s.Dir, "ledger"), b, 0o644))
		return 0 // what it started is pid 1's now, and its root is reaped
	}
	end(ctx, s, j)
	if s.Reaper {
		for range 100 {
			CollectOrphans(func(int) bool { return false })
			time.Sleep(time.Millisecond)
		}
	}
	return 0
}

// runs says whether there is a process of that name.
func runs(name string) bool {
	files, _ := filepath.Glob("/proc/[0-9]*/comm")
	return slices.ContainsFunc(files, func(file string) bool {
		b, err := os.ReadFile(file)
		return err == nil && strings.TrimSpace(string(b)) == name
	})
}

// asCloser goes on from the record of a supervisor that is gone.
func asCloser(s spec) int {
	b, err := os.ReadFile(filepath.Join(s.Dir, "ledger"))
	die("ledger", err)
	l, err := DecodeLedger(b)
	die("decode", err)
	table, err := System()
	die("System", err)
	end(context.Background(), s, New(table, l, Options{}))
	return 0
}

func end(ctx context.Context, s spec, j *Lineage) {
	rep, err := j.Kill(ctx, "")
	die("Kill", err)
	r := result{Empty: rep.Empty, Frozen: rep.Frozen, Suspects: len(rep.Suspects), TookMS: rep.Took.Milliseconds()}
	for _, m := range rep.Ended {
		r.Ended = append(r.Ended, m.Comm)
	}
	for _, m := range rep.Survivors {
		r.Survivors = append(r.Survivors, m.Comm+": "+m.Why)
	}
	if err := rep.Err("s"); err != nil {
		r.Err = err.Error()
	}
	b, _ := json.Marshal(r)
	die("result", os.WriteFile(filepath.Join(s.Dir, "result"), b, 0o644))
}

// asHeadless lives on without its leading thread.
func asHeadless(spec) int {
	go func() {
		time.Sleep(time.Minute)
		os.Exit(0)
	}()
	unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
	return 0
}

const daemon = "import os,time\nos.fork() and os._exit(0)\nos.setsid()\nos.fork() and os._exit(0)\nos.chdir('/')\ntime.sleep(600)"

// TestEscapes plays the escapes of facts/escapes.md (a) that need no other service, each
// with the supervisor as a subreaper.
func TestEscapes(t *testing.T) {
	for _, c := range []struct{ name, script, ended string }{
		{"E01 background", "sleep 600 & exit 0", "sleep"},
		{"E02 nohup", "nohup sleep 600 >/dev/null 2>&1 & exit 0", "sleep"},
		{"E03 double subshell", "( ( sleep 600 & ) & ); exit 0", "sleep"},
		{"E04 own group", "set -m; sleep 600 & set +m; exit 0", "sleep"},
		{"E05 own session", "setsid sleep 600 </dev/null >/dev/null 2>&1 & exit 0", "sleep"},
		{"E06 daemon", "python3 - <<'E' >/dev/null 2>&1\n" + daemon + "\nE\n", "python3"},
		{"E09 deaf", `setsid bash -c 'trap "" TERM HUP INT QUIT; while :; do sleep 600; done' & exit 0`, "bash"},
		{"E12 respawner", `setsid bash -c 'while :; do sleep 0.2; done' & exit 0`, "bash"},
		{"E15 bounded fork bomb", "python3 - <<'E'\nimport os,time\nfor i in range(6): os.fork()\ntime.sleep(600)\nE\n", "python3"},
		{"E16 stopped", "setsid sleep 600 & sleep 0.1; kill -STOP $!; exit 0", "sleep"},
		{"E20 no leading thread", "SBX_ROLE=headless setsid $SBX_EXE & exit 0", ""},
		{"E25a scrubbed", "env -i PATH=$PATH setsid sleep 600 & exit 0", "sleep"},
		{"E27 own pid namespace", "setsid unshare -pf --mount-proc bash -c 'sleep 600 & sleep 600' & exit 0", "sleep"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := scene(t, spec{Script: c.script, Reaper: true, Await: c.ended})
			if !r.Empty || len(r.Left) > 0 || len(r.Survivors) > 0 || r.Err != "" {
				t.Errorf("left %q, by the report %+v", r.Left, r)
			}
			if !r.Canary {
				t.Error("the canary is dead")
			}
			if c.ended != "" && !slices.Contains(r.Ended, c.ended) || len(r.Ended) == 0 {
				t.Errorf("ended %q, want %q among them", r.Ended, c.ended)
			}
			if !r.Frozen {
				t.Errorf("no standstill was proven in %d ms", r.TookMS)
			}
		})
	}
}

// A process that forks and ends in a loop is never there when a reading of the table is
// done. Its children become the subreaper's, where they are met, also at the end of a list
// of hundreds that have ended, which takes longer to look through than one of them lives.
func TestHopper(t *testing.T) {
	for _, piled := range []bool{false, true} {
		t.Run(fmt.Sprintf("piled=%v", piled), func(t *testing.T) {
			r := scene(t, spec{Reaper: true, Piled: piled, Script: "exec python3 - <<'E'\nimport os,time\nos.setsid() if os.getpid()!=os.getsid(0) else 0\nwhile 1:\n  time.sleep(0.001)\n  if os.fork(): os._exit(0)\nE\n"})
			if !r.Empty || len(r.Left) > 0 || !r.Canary {
				t.Errorf("left %q, by the report %+v", r.Left, r)
			}
			if !slices.Contains(r.Ended, "python3") {
				t.Errorf("ended %q, want the one that was met", r.Ended)
			}
		})
	}
}

// The supervisor is gone, orphans are pid 1's: what was recorded, what shares a session
// or group with that, and what carries the cookie is found; the rest was recorded by it.
func TestCrashedSupervisor(t *testing.T) {
	for _, c := range []struct {
		name string
		s    spec
	}{
		{"recorded, then scrubbed of everything", spec{Script: "env -i PATH=$PATH setsid sleep 600 & sleep 600"}},
		{"never seen, but for the cookie", spec{Script: "setsid sleep 600 & exit 0", Blind: true}},
		{"never seen, but for its session", spec{Script: "sleep 600 & exit 0", Blind: true, Scrub: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.s.Crash = true
			r := scene(t, c.s)
			if !r.Empty || len(r.Left) > 0 || !r.Canary {
				t.Errorf("left %q, by the report %+v", r.Left, r)
			}
		})
	}
	t.Run("never seen, scrubbed, in its own session", func(t *testing.T) {
		r := scene(t, spec{Script: "(sleep 0.1; env -i PATH=$PATH setsid sleep 600 & ) & exit 0", Blind: true, Scrub: true, Crash: true})
		if len(r.Left) != 1 || !r.Canary {
			t.Errorf("left %q; package comment: such a one cannot be told from a stranger, and must be left", r.Left)
		}
	})
}

// An unprivileged supervisor that sees nobody but its own user's processes.
func TestHidePID(t *testing.T) {
	r := scene(t, spec{Reaper: true, UID: 65534, Hide: true, Script: "env -i PATH=$PATH setsid sleep 600 & sleep 600 & exit 0"})
	if !r.Empty || len(r.Left) > 0 || !r.Canary {
		t.Errorf("left %q, by the report %+v", r.Left, r)
	}
}

// A signal reaches a process by its identity, and nobody else at its pid.
func TestRealIdentity(t *testing.T) {
	table, err := System()
	if err != nil {
		t.Skip(err)
	}
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	p, err := table.Lookup(cmd.Process.Pid)
	if err != nil || p.PPID != os.Getpid() || p.UID != os.Geteuid() || p.State != Running {
		t.Fatalf("Lookup = %+v, %v", p, err)
	}
	other := p.ID
	other.Start--
	if err := table.Signal(other, syscall.SIGKILL); !errors.Is(err, proc.ErrReused) {
		t.Errorf("a signal to who had the pid before: %v, want ErrReused", err)
	}
	if _, err := table.Marks(other, Marks{}); !errors.Is(err, proc.ErrReused) {
		t.Errorf("its marks: %v, want ErrReused", err)
	}
	self, _ := table.Lookup(os.Getpid())
	kids, err := table.Children(self.ID)
	if err != nil || !slices.ContainsFunc(kids, func(k Proc) bool { return k.Same(p.ID) }) {
		t.Errorf("Children = %v, %v; want our sleep among them", kids, err)
	}
	if err := table.Signal(p.ID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if p, _ = table.Lookup(p.PID); p.State == Stopped {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if p.State != Stopped {
		t.Errorf("after SIGSTOP the state is %c", p.State)
	}
	if err := table.Signal(p.ID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	table.Wait(t.Context(), []ID{p.ID}, 20*time.Second)
	if time.Since(began) > 10*time.Second {
		t.Error("Wait did not wake up for an end")
	}
	cmd.Wait()
	began = time.Now()
	table.Wait(t.Context(), []ID{p.ID}, 20*time.Second)
	if time.Since(began) > 10*time.Second {
		t.Error("Wait waited for one who was gone")
	}
	if err := table.Signal(p.ID, syscall.SIGKILL); !errors.Is(err, proc.ErrGone) {
		t.Errorf("a signal after the end: %v, want ErrGone", err)
	}
}

// lazy counts how often it is waited for.
type lazy struct {
	Table
	waits int
}

func (l *lazy) Wait(ctx context.Context, ids []ID, d time.Duration) {
	l.waits++
	l.Table.Wait(ctx, ids, d)
}

// A member that has ended and that nobody collects does not keep the watcher busy.
func TestWatchRests(t *testing.T) {
	real, err := System()
	if err != nil {
		t.Skip(err)
	}
	table := &lazy{Table: real}
	s, err := table.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	j := New(table, NewLedger("s", s), Options{})
	for _, life := range []string{"0.3", "600"} {
		cmd := exec.Command("sleep", life)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { cmd.Process.Kill(); cmd.Wait() }()
		if _, err := j.AddRoot(cmd.Process.Pid, ""); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
	defer stop()
	if err := j.Watch(ctx); err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
	if table.waits > 20 {
		t.Errorf("it woke up %d times in 2 s", table.waits)
	}
}

// BenchmarkList is one full reading of this machine.
func BenchmarkList(b *testing.B) {
	table, err := System()
	if err != nil {
		b.Skip(err)
	}
	n := 0
	for b.Loop() {
		s, err := table.List(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		n = len(s.Procs)
	}
	b.ReportMetric(float64(n), "processes")
}
