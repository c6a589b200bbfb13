package integration_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/sessionbox/sessionbox/pkg/session"
	"golang.org/x/sys/unix"
)

// knowsExits skips where the kernel does not tell a holder of a pidfd how the process
// ended.
func knowsExits(t *testing.T) {
	t.Helper()
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.PIDFD_GET_INFO, uintptr(unsafe.Pointer(&info)))
	if errno != 0 || info.Mask&unix.PIDFD_INFO_EXIT == 0 {
		t.Skipf("the kernel does not tell the exit status of a pidfd (6.15 does): %v", errno)
	}
}

// waiting starts a wait and returns once it holds the command.
func (r *rig) waiting(args ...string) *running {
	r.t.Helper()
	w := r.start(bin(), append([]string{"wait", "--json"}, args...)...)
	eventually(r.t, "wait holds the command", func() bool {
		if !w.id.alive() {
			r.t.Fatalf("wait has ended: %s", w.show())
		}
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", w.id.pid))
		for _, fd := range fds {
			if to, _ := os.Readlink(fd); strings.Contains(to, "pidfd") {
				return true
			}
		}
		return false
	})
	return w
}

// ended reads what wait --json of a task says.
func (o output) ended(t *testing.T) session.TaskInfo {
	t.Helper()
	o.must(t, 0, "wait")
	var i session.TaskInfo
	if err := json.Unmarshal(o.stdout, &i); err != nil {
		t.Fatalf("%v: %s", err, o.stdout)
	}
	return i
}

// The status of a command is told though its supervisor is gone, or never was.
func TestEndOfOrphan(t *testing.T) {
	knowsExits(t)
	r := newRig(t)
	id := r.open("orphans")
	for n, tt := range []struct {
		replace     bool
		script      string
		state, what string
	}{
		{false, "exit 7", "failed", "exit 7"},
		{false, "exit 0", "exited", "exit 0"},
		{false, "kill -TERM $$", "signaled", "SIGTERM"},
		{true, "exit 7", "failed", "exit 7"},
		{true, "kill -KILL $$", "signaled", "SIGKILL"},
	} {
		t.Run(fmt.Sprintf("%s replace=%v", tt.script, tt.replace), func(t *testing.T) {
			gate := filepath.Join(r.home, fmt.Sprint("gate", n))
			argv := []string{"sh", "-c", "until [ -e $0 ]; do sleep 0.02; done; " + tt.script, gate}
			number := n + 1
			if tt.replace {
				p := r.start(bin(), append([]string{"exec", "--replace", id, "--"}, argv...)...)
				reaped := make(chan output, 1)
				go func() { reaped <- p.wait() }()
				defer func() { <-reaped }()
				eventually(t, "the command", func() bool { return len(r.inspect(id).Tasks) == number && r.inspect(id).Running == 1 })
			} else {
				r.detach(id, argv...)
				super := supervisorOf(t, r, id, number)
				if err := super.kill(); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the end of the supervisor", func() bool { return !super.alive() })
				if got := task(t, r.inspect(id), number).State; got != "orphaned" {
					t.Errorf("state = %s; want orphaned", got)
				}
			}
			w := r.waiting(fmt.Sprintf("%s/%d", id, number))
			if err := os.WriteFile(gate, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			check := func(who string, i session.TaskInfo) {
				t.Helper()
				what := i.Signal
				if i.Exit != nil {
					what = fmt.Sprint("exit ", *i.Exit)
				}
				if i.State != tt.state || what != tt.what || i.Ended == nil {
					t.Errorf("%s: %s, %s, ended %v; want %s, %s", who, i.State, what, i.Ended, tt.state, tt.what)
				}
			}
			check("wait", w.wait().ended(t))
			check("inspect", task(t, r.inspect(id), number))
		})
	}
	r.closed(id)
}

// Two commands whose supervisors died are both told, whichever ends first.
func TestEndOfOrphans(t *testing.T) {
	knowsExits(t)
	r := newRig(t)
	id := r.open("orphans")
	for n, script := range []string{"sleep 0.8; exit 1", "sleep 0.4; exit 2", "sleep 0.6; exit 3"} {
		r.detach(id, "sh", "-c", script)
		if err := supervisorOf(t, r, id, n+1).kill(); err != nil {
			t.Fatal(err)
		}
	}
	r.run("wait", id).must(t, 0, "wait")
	for n := range 3 {
		if i := task(t, r.inspect(id), n+1); i.Exit == nil || *i.Exit != n+1 {
			t.Errorf("task %d: %s, exit %v; want exit %d", n+1, i.State, i.Exit, n+1)
		}
	}
	r.closed(id)
}

// A wait tells how a task of a session ended that was closed meanwhile, or before.
func TestWaitClosed(t *testing.T) {
	r := newRig(t)
	id := r.open("ends")
	r.exec(id, "sh", "-c", "exit 4")
	r.detach(id, "sleep", "600")
	r.run("exec", "--timeout", "0.1", id, "--", "sleep", "600").must(t, 124, "exec --timeout")
	meanwhile := map[string]*running{}
	for _, f := range []string{"exit", "empty"} {
		meanwhile[f] = r.waiting("ends/2", "--for", f)
	}
	whole := r.waiting("ends")
	r.closed(id, "--now")
	for f, w := range meanwhile {
		if i := w.wait().ended(t); i.State != "killed" || i.N != 2 {
			t.Errorf("wait --for %s while it was closed: task %d %s; want killed", f, i.N, i.State)
		}
	}
	whole.wait().must(t, 0, "wait for the session that is closed")
	for _, ref := range []string{"ends", id} {
		for n, state := range map[int]string{1: "failed", 2: "killed", 3: "timed_out"} {
			arg := fmt.Sprintf("%s/%d", ref, n)
			if i := r.run("wait", "--json", arg).ended(t); i.State != state {
				t.Errorf("wait %s after the close: %s; want %s", arg, i.State, state)
			}
			if got := r.run("wait", arg, "--for", "empty").must(t, 0, "wait "+arg).text(); !strings.HasPrefix(got, arg+" ") {
				t.Errorf("wait %s after the close prints %q", arg, got)
			}
		}
		var i session.Info
		if err := json.Unmarshal(r.run("wait", "--json", ref).must(t, 0, "wait "+ref).stdout, &i); err != nil || i.State != "closed" || i.ID != id {
			t.Errorf("wait %s --json: %+v, %v; want the closed session", ref, i, err)
		}
		r.run("wait", ref+"/9").must(t, 3, "wait for a task that never was")
	}
	r.run("wait", "never/1").must(t, 3, "wait in a session that never was")
	// The name is another's now.
	again := r.open("ends")
	r.run("wait", "ends/1").must(t, 3, "wait for a task of the earlier one by name")
	r.run("wait", id+"/1").must(t, 0, "wait for a task of the earlier one by id")
	r.closed(again)
}
