package integration_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// need skips a test where a program is not installed.
func need(t *testing.T, name ...string) string {
	t.Helper()
	for _, n := range name {
		if path, err := exec.LookPath(n); err == nil {
			return path
		}
	}
	t.Skipf("none of %q is installed", name)
	return ""
}

// TestShellThatExits are the cases that the project began with: a shell's command
// ends at once with status 0 and leaves something running. The task is exited, the
// list shows what was left, and the close ends and names it.
func TestShellThatExits(t *testing.T) {
	newRig(t)
	need(t, "bash")
	for name, c := range map[string]struct {
		script string
		left   []string // names of what stays, sorted
	}{
		"background": {"sleep 300 & exit 0", []string{"sleep"}},
		"nohup":      {"nohup sleep 300 >/dev/null 2>&1 & exit 0", []string{"sleep"}},
		"setsid":     {"setsid sleep 300 </dev/null >/dev/null 2>&1 & exit 0", []string{"sleep"}},
		"disown":     {"sleep 300 & disown; exit 0", []string{"sleep"}},
		"subshell":   {"( ( sleep 300 & ) & ); exit 0", []string{"sleep"}},
		"trap": {`setsid bash -c 'trap "" TERM HUP INT; while :; do sleep 300; done' </dev/null >/dev/null 2>&1 & exit 0`,
			[]string{"bash", "sleep"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			bird := r.canary()
			id := r.open("seed-" + name)
			o := r.exec(id, "bash", "-c", c.script).must(t, 0, "exec bash")
			if o.took > patience()/2 {
				t.Errorf("exec took %v: it waited for what holds its output", o.took)
			}
			left := leftBehind(t, r, id, c.left...)
			receipt := r.closed(id, graceFlags()...)
			for _, l := range left {
				if l.alive() {
					t.Errorf("%v is alive after the close", l)
				}
				if box, _ := names(receipt, l); !box {
					t.Errorf("the receipt does not name %v: %+v", l, receipt.Processes)
				}
			}
			bird.lives()
		})
	}
}

// leftBehind asserts what list and inspect say of a session whose only command has
// ended, once what it left has the given names: shells and forks that are on their
// way there come and go. It gives what was left.
func leftBehind(t *testing.T, r *rig, id string, comms ...string) []ident {
	t.Helper()
	var i session.Info
	var ti session.TaskInfo
	for end := time.Now().Add(patience()); ; time.Sleep(50 * time.Millisecond) {
		i, _ = r.listed(id)
		ti = task(t, r.inspect(id), 1)
		var now []string
		for _, p := range ti.Processes {
			now = append(now, p.Comm)
		}
		slices.Sort(now)
		if slices.Equal(now, comms) && i.Leftovers == len(now) {
			break
		}
		if i.Leftovers == 0 || time.Now().After(end) {
			t.Fatalf("ls says %d leftovers, inspect lists %q, want %q; members of the box: %v",
				i.Leftovers, now, comms, describe(members(i.Box.Path)))
		}
	}
	if i.Running != 0 || ti.Leftovers != i.Leftovers {
		t.Errorf("running %d, want none; leftovers of the task %d, of the session %d", i.Running, ti.Leftovers, i.Leftovers)
	}
	if ti.State != "exited" || ti.Exit == nil || *ti.Exit != 0 {
		t.Errorf("the task is %s with status %v, want exited with 0", ti.State, ti.Exit)
	}
	var left []ident
	for _, p := range ti.Processes {
		l := ident{p.PID, p.Start}
		if !l.alive() {
			t.Errorf("inspect lists %v, which is not alive", l)
		}
		left = append(left, l)
	}
	return left
}

// TestOneLeftover is the first case by its letter: one sleep, one leftover.
func TestOneLeftover(t *testing.T) {
	r := newRig(t)
	need(t, "bash")
	id := r.open("one")
	r.exec(id, "bash", "-c", "sleep 300 & exit 0").must(t, 0, "exec bash")
	leftBehind(t, r, "one", "sleep")
	if i, _ := r.listed("one"); i.Leftovers != 1 || i.Processes != 1 {
		t.Errorf("ls says %d leftovers of %d processes, want 1 of 1", i.Leftovers, i.Processes)
	}
	receipt := r.closed("one")
	if len(receipt.Processes) != 1 || receipt.Processes[0].Comm != "sleep" || receipt.Processes[0].Fate != session.FateEnded {
		t.Errorf("the receipt says %+v, want one sleep that ended when asked", receipt.Processes)
	}
	if receipt.ID != id {
		t.Errorf("the receipt is of %s, want %s", receipt.ID, id)
	}
}

// TestPipeDoesNotHang: the caller reads the command's output through a pipe, as
// harnesses do. The end of the command must come although a child holds the pipe.
func TestPipeDoesNotHang(t *testing.T) {
	r := newRig(t)
	need(t, "bash")
	id := r.open("pipe")
	for name, script := range map[string]string{
		"stdout and stderr": "echo said; sleep 300 & exit 0",
		"stderr only":       "echo said; sleep 300 </dev/null >/dev/null & exit 0",
		"noisy":             "echo said; (while :; do echo noise >&2; sleep 1; done) & exit 0",
	} {
		t.Run(name, func(t *testing.T) {
			out, in, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			run := r.startWith(syscall.SysProcAttr{}, in, bin(), "exec", id, "--", "bash", "-c", script)
			in.Close()
			if o := run.wait(); o.code != 0 || o.took > patience()/2 {
				t.Errorf("exec came back with %d after %v", o.code, o.took)
			}
			said := make([]byte, 100)
			n, err := out.Read(said)
			if err != nil || !strings.Contains(string(said[:n]), "said") {
				t.Errorf("the pipe holds %q, error %v", said[:n], err)
			}
		})
	}
	r.closed(id, graceFlags()...)
}

// TestNodeDetached: what Node calls a detached child, unref'ed, lives on when node
// exits: the usual way in which an MCP server is left.
func TestNodeDetached(t *testing.T) {
	r := newRig(t)
	node := need(t, "node", "nodejs")
	p := r.payloads("payload")
	argv, err := json.Marshal(p.argv("payload"))
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`const a = %s;
require("child_process").spawn(a[0], a.slice(1), {detached: true, stdio: "ignore"}).unref();`, argv)
	id := r.open("node")
	r.exec(id, node, "-e", script).must(t, 0, "exec node")
	p.await(1)
	p.ticking()
	leftBehind(t, r, id, filepath.Base(escape()))
	receipt := r.closed(id, graceFlags()...)
	p.stopped()
	for l := range recordedIn(p.dir) {
		if box, _ := names(receipt, l); !box {
			t.Errorf("the receipt does not name %v", l)
		}
	}
}

// TestHeadlessBrowser: a script starts a headless Chromium and exits without closing
// it. A browser is a dozen processes, some in namespaces of their own.
func TestHeadlessBrowser(t *testing.T) {
	r := newRig(t)
	need(t, "bash")
	browser := need(t, "chromium", "chromium-browser", "google-chrome", "chrome", "headless_shell")
	profile := filepath.Join(r.home, "profile")
	if err := os.Mkdir(profile, 0o700); err != nil {
		t.Fatal(err)
	}
	r.env = append(r.env, "TMPDIR="+profile) // it leaves files there when it is killed
	flags := "--headless --no-first-run --disable-gpu --remote-debugging-port=0 --disable-background-networking --disable-component-update --disable-sync --disable-quic --user-data-dir='" + profile + "'"
	if os.Geteuid() == 0 {
		flags += " --no-sandbox"
	}
	id := r.open("browser")
	r.exec(id, "bash", "-c", "'"+browser+"' "+flags+" about:blank </dev/null >/dev/null 2>&1 & exit 0").must(t, 0, "start a browser")
	// Some of the first ones end by themselves.
	eventually(t, "several processes of the browser", func() bool { i, _ := r.listed(id); return i.Processes >= 5 })
	before := r.inspect(id)
	if s := task(t, before, 1); s.State != "exited" {
		t.Errorf("the task is %s, want exited", s.State)
	}
	receipt := r.closed(id)
	for _, p := range before.Tasks[0].Processes {
		if (ident{p.PID, p.Start}).alive() {
			t.Errorf("%s %d is alive after the close", p.Comm, p.PID)
		}
	}
	if len(receipt.Processes) < 3 {
		t.Errorf("the receipt names %d processes", len(receipt.Processes))
	}
}

// TestKillTask: one task ends with everything it started, the session and its other
// tasks go on.
func TestKillTask(t *testing.T) {
	r := newRig(t)
	one, two := r.payloads("one"), r.payloads("two")
	id := r.open("kill")
	r.exec(id, one.argv("E09")...).must(t, 0, "exec")
	r.exec(id, two.argv("E05")...).must(t, 0, "exec")
	one.await(1)
	two.await(1)
	r.run("kill", id+"/1").must(t, 0, "kill a task")
	one.stopped()
	two.ticking()
	r.run("kill", id+"/99").must(t, 3, "kill of a task that is not there")
	r.closed(id, graceFlags()...)
	two.stopped()
}

// TestManyProcesses: a close of some hundreds is one kill, not one per process.
func TestManyProcesses(t *testing.T) {
	r := newRig(t)
	need(t, "bash")
	id := r.open("many")
	r.exec(id, "bash", "-c", "for i in $(seq 300); do setsid sleep 300 </dev/null >/dev/null 2>&1 & done; exit 0").must(t, 0, "exec bash")
	eventually(t, "300 processes", func() bool { i, _ := r.listed(id); return i.Processes >= 300 })
	receipt := r.closed(id, "--now")
	if n := len(receipt.Processes); n < 300 {
		t.Errorf("the receipt names %d processes of 300", n)
	}
	for _, p := range receipt.Processes {
		if (ident{p.PID, p.Start}).alive() {
			t.Errorf("%d is alive", p.PID)
		}
	}
}

// TestLeftoversStay: what a command leaves behind stays until the session is closed,
// each time. A supervisor that renewed its tie to the anchor while it ended, and then
// exited, once had one in a hundred killed.
func TestLeftoversStay(t *testing.T) {
	r := newRig(t)
	id := r.open("stay")
	n := crowd()
	for range n {
		r.exec(id, "/bin/sh", "-c", "setsid sleep 300 </dev/null >/dev/null 2>&1 & exit 0").must(t, 0, "exec")
	}
	if i := r.inspect(id); i.Leftovers != n {
		t.Errorf("%d leftovers, want %d", i.Leftovers, n)
	}
	r.closed(id, "--now")
}
