package integration_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/session"
	"golang.org/x/sys/unix"
)

// piped is a command whose stdout and stderr are one pipe, as a harness has it.
type piped struct {
	*running
	out *os.File
}

func (r *rig) piped(args ...string) piped {
	r.t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		r.t.Fatal(err)
	}
	defer in.Close()
	r.t.Cleanup(func() { out.Close() })
	return piped{r.startWith(syscall.SysProcAttr{}, in, bin(), args...), out}
}

// all reads to the end of the pipe, which comes when nobody holds the other one.
func (p piped) all() []byte {
	p.r.t.Helper()
	p.out.SetReadDeadline(time.Now().Add(patience()))
	b, err := io.ReadAll(p.out)
	if err != nil {
		p.r.t.Fatalf("somebody holds the pipe of %q: %v", p.cmd.Args, err)
	}
	return b
}

// logs gives what a task's log has now.
func (r *rig) logs(ref string) output {
	r.t.Helper()
	return r.run("logs", ref).must(r.t, 0, "logs "+ref)
}

// grows waits until a log has more than it had.
func (r *rig) grows(ref string) {
	r.t.Helper()
	before := len(r.logs(ref).stdout)
	eventually(r.t, "growth of the log of "+ref, func() bool { return len(r.logs(ref).stdout) > before })
}

const tick = "while :; do echo tick; sleep 0.05; done"

// TestLogForeground: a child in the background inherits stdout. exec returns when the
// command has ended, whoever reads from it comes to the end of the pipe, and the child
// goes on, to the log.
func TestLogForeground(t *testing.T) {
	r := newRig(t)
	id := r.open("fore")
	p := r.piped("exec", "fore", "--log", "--", "sh", "-c", "echo said; echo loudly >&2; ("+tick+") & exit 3")
	shown := p.all()
	if o := p.wait(); o.code != 3 || o.took > patience()/2 {
		t.Errorf("exec came back with %d after %v", o.code, o.took)
	}
	for _, want := range []string{"said\n", "loudly\n"} {
		if !bytes.Contains(shown, []byte(want)) {
			t.Errorf("shown is %q, without %q", shown, want)
		}
	}
	r.grows("fore/1")
	o := r.logs(id + "/1")
	if !bytes.HasPrefix(o.stdout, []byte("said\ntick\n")) || string(o.stderr) != "loudly\n" {
		t.Errorf("the log has %.60q on stdout, %q on stderr", o.stdout, o.stderr)
	}
	i := r.inspect(id)
	ti := task(t, i, 1)
	if fi, err := os.Stat(ti.Log); err != nil || !fi.IsDir() {
		t.Errorf("its record says that the log is %q: %v", ti.Log, err)
	}
	for _, p := range ti.Processes {
		if p.Task != 1 || slices.Contains(p.Argv, session.LogArg) {
			t.Errorf("listed as its process: %+v", p)
		}
	}
	receipt := r.closed(id, graceFlags()...)
	for _, p := range receipt.Processes {
		if slices.Contains(p.Argv, session.LogArg) {
			t.Errorf("the receipt names our own process: %+v", p)
		}
	}
}

// TestLogClosedReader: who reads goes away, as head -1 does, and the command and what
// it leaves in the background go on.
func TestLogClosedReader(t *testing.T) {
	r := newRig(t)
	id := r.open("head")
	p := r.piped("exec", "head", "--log", "--", "sh", "-c", "echo first; (sleep 0.2; "+tick+") & for i in 1 2 3 4; do sleep 0.1; echo $i; done; exit 4")
	if _, err := p.out.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	p.out.Close()
	p.wait().must(t, 4, "exec whose reader is gone")
	r.grows("head/1")
	if i, _ := r.listed(id); i.Leftovers == 0 {
		t.Error("the child in the background is gone")
	}
	if got := r.logs("head/1").stdout; !bytes.HasPrefix(got, []byte("first\n")) || !bytes.Contains(got, []byte("4\n")) {
		t.Errorf("the log has %.80q", got)
	}
	r.closed(id, "--now")
}

// TestLogBurst: what the command writes right before its end is shown to the last
// byte, in order, also through a pipe that is read slowly.
func TestLogBurst(t *testing.T) {
	r := newRig(t)
	id := r.open("burst")
	var want bytes.Buffer
	for i := 1; want.Len() < 5<<20; i++ {
		fmt.Fprintln(&want, i, "some text to fill the line with")
	}
	want.WriteString("no newline")
	file := filepath.Join(r.home, "burst")
	if err := os.WriteFile(file, want.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"cat": {}, "small log": {"--log-max", "128K"},
	} {
		t.Run(name, func(t *testing.T) {
			p := r.piped(append(append([]string{"exec", id, "--log"}, args...), "--", "cat", file)...)
			got := p.all()
			p.wait().must(t, 0, "exec cat")
			if !bytes.Equal(got, want.Bytes()) {
				t.Errorf("%d bytes are shown, want %d", len(got), want.Len())
			}
		})
	}
	r.closed(id)
}

// TestLogDetached: nothing of the caller's is held, and who follows the log sees all of
// it, across its rotation, until the task is empty.
func TestLogDetached(t *testing.T) {
	r := newRig(t)
	id := r.open("back")
	const n = 60
	script := fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo $i %s; i=$((i+1)); sleep 0.02; done; echo over >&2; (sleep 0.3; echo child) &", n, strings.Repeat("x", 8000))
	p := r.piped("exec", "back", "-d", "--log", "--log-max", "128K", "--", "sh", "-c", script)
	if got := string(p.all()); got != "back/1\n" {
		t.Errorf("exec -d printed %q", got)
	}
	p.wait().must(t, 0, "exec -d --log")
	o := r.run("logs", "-f", "back/1").must(t, 0, "logs -f")
	var lines []string
	for line := range strings.Lines(string(o.stdout)) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		lines = append(lines, word)
	}
	if len(lines) != n+1 || lines[0] != "0" || lines[n-1] != fmt.Sprint(n-1) || lines[n] != "child" || string(o.stderr) != "over\n" {
		t.Errorf("followed: %q, stderr %q", lines, o.stderr)
	}
	// By now it was rotated.
	o = r.logs("back/1")
	if bytes.HasPrefix(o.stdout, []byte("0 ")) || !strings.Contains(string(o.stderr), "bytes are missing here") {
		t.Errorf("the log begins with %.20q, stderr %q", o.stdout, o.stderr)
	}
	if got := r.run("logs", "back/1", "--tail", "1").must(t, 0, "logs --tail"); got.text() != "child" {
		t.Errorf("its tail is %q", got.text())
	}
	if i, _ := r.listed(id); i.Leftovers != 0 || i.Processes != 0 {
		t.Errorf("left: %+v", i)
	}
	r.closed(id)
}

// TestLogJSON: one object on each line.
func TestLogJSON(t *testing.T) {
	r := newRig(t)
	id := r.open("json")
	r.run("exec", id, "--log", "--", "sh", "-c", `printf 'bad \377 byte\n'; sleep 0.1; printf end >&2`).must(t, 0, "exec --log")
	type line struct {
		Schema       int
		Time         time.Time
		Stream, Text string
		Partial      bool
	}
	var got []line
	for text := range bytes.Lines(r.run("logs", "--json", id+"/1").must(t, 0, "logs --json").stdout) {
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if time.Since(l.Time) > time.Hour || l.Schema != session.Schema {
			t.Errorf("%s", text)
		}
		l.Time, l.Schema = time.Time{}, 0
		got = append(got, l)
	}
	want := []line{{Stream: "stdout", Text: "bad \uFFFD byte"}, {Stream: "stderr", Text: "end", Partial: true}}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	stamped := r.run("logs", "-t", id+"/1").must(t, 0, "logs -t")
	if at, _, _ := strings.Cut(string(stamped.stdout), " "); len(at) < 20 {
		t.Errorf("no time in front of %q", stamped.stdout)
	} else if _, err := time.Parse(time.RFC3339Nano, at); err != nil {
		t.Error(err)
	}
	r.closed(id)
}

// TestLogAfterClose: the log outlives its session, with what its tasks said last.
func TestLogAfterClose(t *testing.T) {
	r := newRig(t)
	id := r.open("after")
	r.run("exec", id, "-d", "--log", "--", "sh", "-c", `trap 'echo bye; exit' TERM; echo ready; while :; do sleep 0.05; done`).must(t, 0, "exec -d --log")
	eventually(t, "the task is ready", func() bool { return r.logs("after/1").text() == "ready" })
	follower := r.start(bin(), "logs", "-f", "after/1")
	receipt := r.closed(id, "--grace", "20s")
	if task := receipt.Tasks[0]; task.Log == "" {
		t.Error("the receipt does not say where the log is")
	}
	for _, ref := range []string{"after/1", id + "/1"} {
		if got := r.logs(ref).text(); got != "ready\nbye" {
			t.Errorf("logs %s: %q", ref, got)
		}
	}
	if o := follower.wait(); o.code != 0 || o.text() != "ready\nbye" {
		t.Errorf("who followed it saw %q and came back with %d: %s", o.text(), o.code, o.stderr)
	}
	// The name is another's now; the id still is its own.
	again := r.open("after")
	r.run("logs", "after/1").must(t, 3, "logs of a new session of this name")
	r.logs(id + "/1")
	r.closed(again)
}

// TestLogLastWords: a close waits a moment for the process that keeps the log to take
// what the task wrote last: here that process is late.
func TestLogLastWords(t *testing.T) {
	r := newRig(t)
	id := r.open("words")
	r.run("exec", id, "-d", "--log", "--", "sh", "-c", "trap 'echo last words; exit' TERM; echo ready; while :; do sleep 0.05; done").must(t, 0, "exec -d --log")
	eventually(t, "the task is ready", func() bool { return r.logs(id+"/1").text() == "ready" })
	i := r.inspect(id)
	command := ident{i.Tasks[0].PID, i.Tasks[0].Start}
	pumps := r.pumps(i)
	if len(pumps) != 1 {
		t.Fatalf("%d processes keep the log", len(pumps))
	}
	if err := pumps[0].signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	closer := r.start(bin(), "close", "--grace", "20s", id)
	eventually(t, "the end of the command", func() bool { return !command.alive() })
	time.Sleep(50 * time.Millisecond) // less than a close waits for it
	if err := pumps[0].signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	closer.wait().must(t, 0, "close")
	if got := r.logs(id + "/1").text(); got != "ready\nlast words" {
		t.Errorf("the log has %q", got)
	}
}

// pumps are the processes that keep logs in a session.
func (r *rig) pumps(i session.Info) []ident {
	r.t.Helper()
	var pumps []ident
	for _, pid := range members(i.Box.Path) {
		argv, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if id, err := identify(pid); err == nil && bytes.Contains(argv, []byte(session.LogArg)) {
			pumps = append(pumps, id)
		}
	}
	return pumps
}

// TestLogSupervisorKilled: the task of an exec that was killed ends, and so does the
// process that kept its log; what it wrote is there.
func TestLogSupervisorKilled(t *testing.T) {
	r := newRig(t)
	id := r.open("sup")
	p := r.start(bin(), "exec", id, "--log", "--", "sh", "-c", tick)
	eventually(t, "some output", func() bool { b, _ := os.ReadFile(p.out); return len(b) > 20 })
	if err := p.id.kill(); err != nil {
		t.Fatal(err)
	}
	p.wait()
	r.run("logs", "-f", id+"/1").must(t, 0, "logs -f of a task that was ended")
	if i, _ := r.listed(id); i.Running+i.Leftovers != 0 {
		t.Errorf("%d running, %d left", i.Running, i.Leftovers)
	}
	r.closed(id)
}

// TestLogStuckReader: who does not read holds up the showing, not the command; a signal
// ends that.
func TestLogStuckReader(t *testing.T) {
	r := newRig(t)
	id := r.open("stuck")
	p := r.piped("exec", id, "--log", "--", "sh", "-c", "head -c 1000000 /dev/zero; exit 5")
	eventually(t, "the end of the command", func() bool {
		i := r.inspect(id)
		return len(i.Tasks) == 1 && i.Tasks[0].State == "failed"
	})
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.wait().must(t, 5, "exec whose output nobody reads")
	if n := len(r.logs(id + "/1").stdout); n != 1_000_000 {
		t.Errorf("the log has %d bytes", n)
	}
	r.closed(id)
}

// TestLogPumpKilled: with the process that keeps the log the command loses its output,
// and nothing hangs.
func TestLogPumpKilled(t *testing.T) {
	r := newRig(t)
	id := r.open("pump")
	p := r.start(bin(), "exec", id, "--log", "--", "sh", "-c", tick)
	eventually(t, "some output", func() bool { b, _ := os.ReadFile(p.out); return len(b) > 20 })
	pumps := r.pumps(r.inspect(id))
	if len(pumps) != 1 {
		t.Fatalf("%d processes keep the log", len(pumps))
	}
	if err := pumps[0].kill(); err != nil {
		t.Fatal(err)
	}
	if o := p.wait(); o.code == 0 {
		t.Error("the command ended well")
	}
	r.closed(id)
}

// TestLogFullDisk: the command ends as it would have, and what is lost is said.
func TestLogFullDisk(t *testing.T) {
	r := newRig(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a mount namespace of its own")
	}
	need(t, "unshare")
	id := r.open("full")
	history := filepath.Join(r.home, "state", "history")
	script := fmt.Sprintf(`mount -t tmpfs -o size=256k,mode=0700 none %s && exec %s exec full --log -- sh -c 'seq 100000; (sleep 0.1; echo child >&2; exit 0) & echo done >&2; exit 6'`, history, bin())
	o := r.start("unshare", "-m", "--propagation", "private", "sh", "-c", script).wait()
	if o.code == 1 && strings.Contains(string(o.stderr), "ermission") {
		t.Skipf("root may not mount here: %s", o.stderr)
	}
	o.must(t, 6, "exec --log on a full disk")
	if !bytes.HasPrefix(o.stdout, []byte("1\n2\n3\n")) || !strings.Contains(string(o.stderr), "bytes of its output are lost") ||
		!strings.Contains(string(o.stderr), "no space left") {
		t.Errorf("stdout %.20q, stderr %q", o.stdout, o.stderr)
	}
	r.closed(id)
}

// TestLogBadInput: what cannot be done is refused before anything runs.
func TestLogBadInput(t *testing.T) {
	r := newRig(t)
	id := r.open("bad")
	r.exec(id, "true").must(t, 0, "exec true")
	for _, c := range []struct {
		args []string
		code int
		say  string
	}{
		{[]string{"logs", "bad/1"}, 3, "exec --log"},
		{[]string{"logs", "bad/99"}, 3, "inspect bad"},
		{[]string{"logs", "bad"}, 2, "SESSION/TASK"},
		{[]string{"logs", "bad/0"}, 2, "SESSION/NUMBER"},
		{[]string{"logs", "bad/../../x"}, 2, "SESSION/NUMBER"},
		{[]string{"logs", "nosuch/1"}, 3, "sessionbox ls"},
		{[]string{"logs"}, 2, "of which task"},
		{[]string{"logs", "bad/1", "--tail", "-1"}, 2, "negative"},
		{[]string{"exec", id, "--log", "--replace", "--", "true"}, 125, "--replace"},
		{[]string{"exec", id, "--log-max", "1M", "--", "true"}, 125, "--log"},
		{[]string{"exec", id, "--log", "--log-max", "0", "--", "true"}, 125, "the least is 128K"},
		{[]string{"exec", id, "--log", "--log-max", "1K", "--", "true"}, 125, "the least is 128K"},
		{[]string{"exec", id, "--log", "--log-max", "-1", "--", "true"}, 125, "negative"},
		{[]string{"exec", id, "--log", "--log-max", "max", "--", "true"}, 125, "no amount"},
		{[]string{"exec", id, "--log", "--log-max", "50%", "--", "true"}, 125, "no amount"},
		{[]string{"exec", id, "--log", "--", "no-such-command"}, 127, "check the name"},
	} {
		o := r.run(c.args...).must(t, c.code, strings.Join(c.args, " "))
		if !strings.Contains(string(o.stderr), c.say) || !strings.Contains(string(o.stderr), "hint: ") {
			t.Errorf("%q says %q, want %q and a hint", c.args, o.stderr, c.say)
		}
	}
	// Where no log can be written the command is not started, and runs without one.
	logs := filepath.Join(r.home, "state", "history", "logs")
	if err := os.RemoveAll(logs); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(logs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ran := filepath.Join(r.home, "ran")
	for _, flags := range [][]string{{"--log"}, {"-d", "--log"}} {
		o := r.run(append(append([]string{"exec", id}, flags...), "--", "touch", ran)...).must(t, 125, "exec --log without a place for it")
		if _, err := os.Stat(ran); err == nil || !strings.Contains(string(o.stderr), "run it without a log") {
			t.Errorf("ran: %v; stderr %q", err == nil, o.stderr)
		}
	}
	r.exec(id, "true").must(t, 0, "exec true")
	r.closed(id)
}

// TestLogInterrupted: who follows can be interrupted; the task goes on.
func TestLogInterrupted(t *testing.T) {
	r := newRig(t)
	id := r.open("int")
	r.run("exec", id, "-d", "--log", "--", "sh", "-c", tick).must(t, 0, "exec -d --log")
	p := r.start(bin(), "logs", "-f", id+"/1")
	eventually(t, "it follows", func() bool { b, _ := os.ReadFile(p.out); return len(b) > 20 })
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if o := p.wait().must(t, 130, "logs -f, interrupted"); len(o.stderr) > 0 {
		t.Errorf("it says %q", o.stderr)
	}
	r.grows(id + "/1")
	r.closed(id, "--now")
}
