package darwinjob

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/launchd"
	"golang.org/x/sys/unix"
)

// TestChecklist is facts/darwin.md §8: what was read in Apple's source and never seen on a
// Mac. It prints T1 to T14. What the box depends on fails the test; the rest is told.
func TestChecklist(t *testing.T) {
	table, err := System()
	if err != nil {
		t.Fatal(err)
	}
	x := table.(*xnu)
	for _, c := range []struct {
		name string
		do   func(*testing.T, *xnu)
	}{
		{"T1", checkZombie}, {"T2", checkOrphanExec}, {"T3", checkOrigVersion}, {"T4", checkExactSignal}, {"T5", checkCoalitions},
		{"T6", checkZombieGroup}, {"T7", checkLaunchd}, {"T8", checkExitStatus}, {"T9", checkFreeze}, {"T10", checkOrphanGroup},
		{"T11", checkSentinel}, {"T12", checkConsent}, {"T13", checkMemoryEvents}, {"T14", checkRelease},
	} {
		t.Run(c.name, func(t *testing.T) { c.do(t, x) })
	}
}

// child starts a shell in a session of its own, which ends with the test.
func child(t *testing.T, script string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // not reaped yet, so the group is its own
		_ = cmd.Wait()
	})
	return cmd, bufio.NewReader(out)
}

// number reads a pid that a script printed.
func number(t *testing.T, r *bufio.Reader) int {
	t.Helper()
	line, err := r.ReadString('\n')
	n, aerr := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || aerr != nil {
		t.Fatalf("%q: %v, %v", line, err, aerr)
	}
	return n
}

func soon(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 10 s", what)
		}
	}
}

func stateOfPID(pid int) State {
	ps, err := readKinfo("kern.proc.pid", pid)
	if err != nil || len(ps) != 1 {
		return 0
	}
	return ps[0].State
}

func checkZombie(t *testing.T, _ *xnu) {
	cmd, _ := child(t, "exit 0")
	pid := cmd.Process.Pid
	soon(t, "a zombie", func() bool { return stateOfPID(pid) == Zombie })
	u, err := readUniq(pid)
	t.Logf("T1 flavor 17 with arg 1 on a zombie: unique id %d, %v", u.unique, err)
	if err != nil || u.unique == 0 {
		t.Error("a zombie cannot be identified")
	}
}

func checkOrphanExec(t *testing.T, _ *xnu) {
	_, out := child(t, "/bin/sh -c 'sleep 1; exec /bin/sleep 20' & echo $!; exit 0")
	pid := number(t, out)
	before, err := readUniq(pid)
	if err != nil {
		t.Fatal(err)
	}
	soon(t, "an exec", func() bool { u, err := readUniq(pid); return err == nil && u.version != before.version })
	after, err := readUniq(pid)
	t.Logf("T2 p_puniqueid of an orphan: %d before exec, %d after (1 expected from macOS 13 on), %v", before.parent, after.parent, err)
	if after.unique != before.unique {
		t.Error("the unique id changed at exec")
	}
}

func checkOrigVersion(t *testing.T, x *xnu) {
	_, out := child(t, "/bin/sh -c 'sleep 1; exec /bin/sleep 20' & echo $!; sleep 20")
	pid := number(t, out)
	before, err := readUniq(pid)
	if err != nil {
		t.Fatal(err)
	}
	soon(t, "an exec", func() bool { u, err := readUniq(pid); return err == nil && u.version != before.version })
	after, _ := readUniq(pid)
	t.Logf("T3 p_orig_ppidversion: %d, after exec %d; this kernel is taken to have it: %v", before.orig, after.orig, x.caps.ParentVersion)
	if x.caps.ParentVersion && before.orig != after.orig {
		t.Error("it changed at exec")
	}
}

func checkExactSignal(t *testing.T, x *xnu) {
	cmd, _ := child(t, "exec /bin/sleep 20")
	pid := cmd.Process.Pid
	u, err := readUniq(pid)
	if err != nil {
		t.Fatal(err)
	}
	stale := x.signalVersion(pid, u.version+1000, unix.SIGTERM)
	exact := exactly(x, ID{PID: pid, Unique: u.unique}, unix.SIGTERM)
	t.Logf("T4 signal by version: stale %v (ESRCH expected), right %v; this kernel is taken to have it: %v", stale, exact, x.exact)
	if exact != nil {
		t.Error("the process could not be signalled")
	}
	if x.exact && !errors.Is(stale, unix.ESRCH) {
		t.Error("a stale version is not refused with ESRCH")
	}
}

func checkCoalitions(t *testing.T, _ *xnu) {
	own, err := readCoalition(os.Getpid())
	launchd, err1 := readCoalition(1)
	cmd, _ := child(t, "exec /bin/sleep 20")
	other, err2 := readCoalition(cmd.Process.Pid)
	t.Logf("T5 coalitions: ours %d (%v), of pid 1 %d (%v), of a child with a session of its own %d (%v)", own, err, launchd, err1, other, err2)
	if err != nil || err2 != nil || own == 0 || own != other {
		t.Error("a child is not in our coalition")
	}
}

func checkZombieGroup(t *testing.T, _ *xnu) {
	cmd, _ := child(t, "exit 0")
	pid := cmd.Process.Pid
	soon(t, "a zombie", func() bool { return stateOfPID(pid) == Zombie })
	t.Logf("T6 kill(-pgid) of a group that is one zombie: %v (EPERM expected)", unix.Kill(-pid, 0))
}

func checkLaunchd(t *testing.T, x *xnu) {
	ctl := launchd.New(os.Geteuid())
	name, err := ctl.Manager(t.Context())
	domains, derr := ctl.Domains(t.Context())
	t.Logf("T7 launchctl managername: %s, %v; domains that answer: %q, %v", name, err, domains, derr)
	if derr != nil {
		return
	}
	dir := t.TempDir()
	file := func(n string) string { return filepath.Join(dir, n) }
	script := "echo $$ >" + file("leader") + `; perl -MPOSIX -e 'fork and exit; POSIX::setsid(); fork and exit; open F, ">", shift; print F $$; close F; sleep 60' ` + file("orphan") + "; sleep 60"
	job := launchd.Job{Label: "dev.sessionbox.checklist." + strconv.Itoa(os.Getpid()), Program: []string{"/bin/sh", "-c", script}, Log: file("log")}
	b, err := job.Plist()
	if err == nil {
		err = os.WriteFile(file("job.plist"), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	domain, err := ctl.Start(t.Context(), file("job.plist"))
	t.Logf("T7 a job is taken by %q: %v", domain, err)
	if err != nil {
		return
	}
	t.Cleanup(func() { _ = ctl.End(context.Background(), job.Label) })
	pid := func(n string) (pid int) {
		soon(t, n, func() bool {
			b, _ := os.ReadFile(file(n))
			pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
			return pid != 0
		})
		return pid
	}
	leader, lerr := x.Lookup(pid("leader"))
	orphan, oerr := x.Lookup(pid("orphan"))
	own, _ := readCoalition(os.Getpid())
	counts, cerr := readCoalitions()
	t.Logf("T7 the job's process: parent %d, group %d, session %d, coalition %d (ours %d), of %d tasks, %v %v; its orphan's: %d, %v",
		leader.PPID, leader.PGID, leader.SID, leader.Coalition, own, counts[leader.Coalition], lerr, cerr, orphan.Coalition, oerr)
	if lerr != nil || oerr != nil || leader.Coalition == own || leader.Coalition != orphan.Coalition {
		t.Error("a job has no coalition of its own, or an orphan leaves it")
	}
	err = ctl.End(t.Context(), job.Label)
	t.Logf("T7 the job is ended: %v; its orphan lives on: %v (true expected)", err, x.still(orphan.ID) == nil)
	if err := x.Signal(orphan.ID, unix.SIGKILL); err != nil && !gone(err) {
		t.Error(err)
	}
	soon(t, "an empty coalition", func() bool { counts, err := readCoalitions(); return err == nil && counts[leader.Coalition] == 0 })
}

func checkExitStatus(t *testing.T, x *xnu) {
	_, out := child(t, "(sleep 1; exit 7) & echo $!; sleep 20")
	p, err := x.Lookup(number(t, out))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ws, _, err := x.Exit(ctx, p.ID)
	t.Logf("T8 NOTE_EXITSTATUS of a process that is not our child: exit %d, %v (7 expected)", ws.ExitStatus(), err)
}

func checkFreeze(t *testing.T, x *xnu) {
	cmd, _ := child(t, "i=0; while [ $i -lt 60 ]; do (while :; do /usr/bin/true; done) & i=$((i+1)); done; wait")
	s, err := x.List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	j := New(x, NewLedger("checklist", s), Options{})
	if _, err := j.AddRoot(cmd.Process.Pid, "task-1"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	began := time.Now()
	ferr := j.Freeze(context.Background(), "")
	took := time.Since(began)
	r, err := j.Kill(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("T9 60 that fork all the time: freeze %v in %v; kill: %v, proven %v, %d readings", ferr, took, r, r.Frozen, r.Readings)
	if !r.Empty {
		t.Errorf("not all of them ended: %v", r)
	}
}

func checkOrphanGroup(t *testing.T, _ *xnu) {
	// A leader with a stopped child and a witness, in one group. The stopped one goes first.
	cmd, out := child(t, `(trap 'echo hup; exit' HUP; while :; do sleep 1; done) & sleep 30 & echo $!; wait`)
	stopped := number(t, out)
	_ = unix.Kill(stopped, unix.SIGSTOP)
	soon(t, "a stop", func() bool { return stateOfPID(stopped) == Stopped })
	_ = unix.Kill(stopped, unix.SIGKILL)
	soon(t, "an end", func() bool { s := stateOfPID(stopped); return s == 0 || s == Zombie })
	_ = unix.Kill(cmd.Process.Pid, unix.SIGKILL)
	heard := make(chan string, 1)
	go func() { line, _ := out.ReadString('\n'); heard <- line }()
	select {
	case line := <-heard:
		t.Logf("T10 children first: the witness heard %q", line)
	case <-time.After(3 * time.Second):
		t.Log("T10 children first: the witness heard no SIGHUP")
	}
}

func checkSentinel(t *testing.T, _ *xnu) {
	for _, sh := range []string{"/bin/sh", "/bin/bash", "/bin/zsh", "/bin/dash"} {
		cmd := exec.Command(sh, "-c", "/bin/sh -c 'test -e /dev/fd/3 && echo kept || echo closed'")
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.ExtraFiles = []*os.File{w}
		out, err := cmd.Output()
		r.Close()
		w.Close()
		t.Logf("T11 a descriptor through %s: %s, %v", sh, strings.TrimSpace(string(out)), err)
	}
}

func checkConsent(t *testing.T, _ *xnu) {
	t.Log("T12 prompts for consent (TCC) of a launchd job: to be looked at by a person")
}

// evfiltMemoryStatus is EVFILT_MEMORYSTATUS of bsd/sys/event_private.h, with its notes WARN and
// CRITICAL.
const (
	evfiltMemoryStatus = -14
	memoryNotes        = 2 | 4
)

func checkMemoryEvents(t *testing.T, x *xnu) {
	var e unix.Kevent_t
	unix.SetKevent(&e, 0, evfiltMemoryStatus, unix.EV_ADD)
	e.Fflags = memoryNotes
	_, err := unix.Kevent(x.kq, []unix.Kevent_t{e}, nil, nil)
	p, perr := HostPressure()
	t.Logf("T13 EVFILT_MEMORYSTATUS without privilege: %v; pressure now %+v, %v", err, p, perr)
}

func checkRelease(t *testing.T, x *xnu) {
	release, _ := unix.Sysctl("kern.osrelease")
	version, _ := unix.Sysctl("kern.osproductversion")
	t.Logf("T14 macOS %s, Darwin %s: %+v, signal by version %v", version, release, x.caps, x.exact)
}
