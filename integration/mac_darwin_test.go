package integration_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/sessionbox/sessionbox/pkg/session"
	"golang.org/x/sys/unix"
)

// mac runs the command under test with records of its own, and gives its exit code.
func mac(t *testing.T, state string, args ...string) (stdout string, code int) {
	t.Helper()
	bin := os.Getenv("SESSIONBOX_BIN")
	if bin == "" {
		t.Skip("SESSIONBOX_BIN names no command to test")
	}
	cmd := exec.Command(bin, args...)
	cmd.Env = append(os.Environ(), "SESSIONBOX_STATE_DIR="+state)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(out), exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(out), 0
}

// shortDir is a directory for records: that of a test is too deep for the socket of a job.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "sbm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestMacSession: the verbs of a session on the lineage box, with what escapes a process group.
func TestMacSession(t *testing.T) {
	state := shortDir(t)
	if out, code := mac(t, state, "open", "--name", "work"); code != 0 {
		t.Fatalf("open: %d %s", code, out)
	}
	t.Cleanup(func() { mac(t, state, "close", "--now", "work") })
	if _, code := mac(t, state, "exec", "work", "--", "sh", "-c", "exit 5"); code != 5 {
		t.Errorf("exit code %d, want 5", code)
	}
	for _, script := range []string{
		"sleep 600 >/dev/null 2>&1 &",
		"nohup sleep 600 >/dev/null 2>&1 &",
		"perl -MPOSIX -e 'fork and exit; POSIX::setsid(); fork and exit; sleep 600' >/dev/null 2>&1; sleep 1",
	} {
		mac(t, state, "exec", "work", "--", "sh", "-c", script)
	}
	out, _ := mac(t, state, "inspect", "--json", "work")
	var info session.Info
	if err := json.Unmarshal([]byte(out), &info); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if info.Box.Kind != "lineage" || info.Box.Containment == "kernel" || info.Processes < 2 {
		t.Errorf("before the close: %+v", info)
	}
	t.Logf("of 3 that were left %d are known", info.Processes)
	out, code := mac(t, state, "close", "--grace", "1s", "work")
	if code != 0 || !strings.Contains(out, "closed work") {
		t.Errorf("close: %d %s", code, out)
	}
}

// TestMacSupervisorKilled: the command of an exec that is killed does not go on.
func TestMacSupervisorKilled(t *testing.T) {
	state := shortDir(t)
	mac(t, state, "open", "--name", "tied")
	t.Cleanup(func() { mac(t, state, "close", "--now", "tied") })
	cmd := exec.Command(os.Getenv("SESSIONBOX_BIN"), "exec", "tied", "--", "sleep", "600")
	cmd.Env = append(os.Environ(), "SESSIONBOX_STATE_DIR="+state)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	running := func() int {
		out, _ := mac(t, state, "inspect", "--json", "tied")
		var info session.Info
		_ = json.Unmarshal([]byte(out), &info)
		return info.Processes
	}
	wait := func(want int) {
		for end := time.Now().Add(20 * time.Second); running() != want; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d processes, want %d", running(), want)
			}
		}
	}
	wait(1)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	wait(0)
}

// openJob opens a session that is a launchd job. Where launchd takes none the test is skipped, or
// fails if SESSIONBOX_TEST_REQUIRE names jobs.
func openJob(t *testing.T, state, name string) {
	t.Helper()
	if _, code := mac(t, state, "open", "--name", name, "--lineage-mode", "job"); code != 0 {
		mac(t, state, "doctor")
		if slices.Contains(strings.Split(os.Getenv("SESSIONBOX_TEST_REQUIRE"), ","), "job") {
			t.Fatalf("no launchd job can be had here: open ended with %d", code)
		}
		t.Skipf("no launchd job can be had here: open ended with %d", code)
	}
	t.Cleanup(func() { mac(t, state, "close", "--now", name) })
}

// daemons are ways out of everything but a coalition: each writes its pid to a file.
func daemons(dir string) map[string]string {
	file := func(n string) string { return filepath.Join(dir, n) }
	return map[string]string{
		file("background"): "sleep 600 >/dev/null 2>&1 & echo $! >" + file("background"),
		file("setsid"): "perl -MPOSIX -e 'fork and exit; POSIX::setsid(); fork and exit; open F, \">\", shift; print F $$; close F; sleep 600' " +
			file("setsid") + " </dev/null >/dev/null 2>&1",
		file("hidden"): "env -i /usr/bin/perl -MPOSIX -e 'fork and exit; POSIX::setsid(); fork and exit; POSIX::close($_) for 0..63; open F, \">\", shift; print F $$; close F; exec \"/bin/sleep\", 600' " +
			file("hidden") + " &",
	}
}

// TestMacJob: what leaves its parents, its session and its environment behind ends with its job, and
// nothing of it is left in launchd.
func TestMacJob(t *testing.T) {
	state := shortDir(t)
	openJob(t, state, "job")
	out, _ := mac(t, state, "inspect", "--json", "job")
	var info session.Info
	if err := json.Unmarshal([]byte(out), &info); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if info.Box.Containment != "coalition" || info.Box.Unit == "" {
		t.Errorf("%+v", info.Box)
	}
	if out, code := mac(t, state, "exec", "job", "--", "sh", "-c", "pwd -P; ulimit -n; exit 7"); code != 7 || !strings.Contains(out, "/") {
		t.Errorf("exit code %d, want 7: %s", code, out)
	}
	var pids []int
	for file, script := range daemons(t.TempDir()) {
		mac(t, state, "exec", "job", "--", "sh", "-c", script)
		var pid int
		for end := time.Now().Add(20 * time.Second); pid == 0; time.Sleep(20 * time.Millisecond) {
			b, _ := os.ReadFile(file)
			pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
			if time.Now().After(end) {
				t.Fatalf("%s: no daemon", file)
			}
		}
		pids = append(pids, pid)
	}
	began := time.Now()
	if out, code := mac(t, state, "close", "--grace", "1s", "job"); code != 0 {
		t.Errorf("close: %d %s", code, out)
	}
	t.Logf("closed in %v", time.Since(began))
	for _, pid := range pids {
		if err := unix.Kill(pid, 0); err == nil {
			t.Errorf("daemon %d lives", pid)
		}
	}
	if err := exec.Command("/bin/launchctl", "print", "gui/"+strconv.Itoa(os.Getuid())+"/"+info.Box.Unit).Run(); err == nil {
		t.Error("launchd knows the job still")
	}
}

// TestMacJobTerminal: before a terminal a command of a job has one as well.
func TestMacJobTerminal(t *testing.T) {
	state := shortDir(t)
	openJob(t, state, "tty")
	cmd := exec.Command(os.Getenv("SESSIONBOX_BIN"), "exec", "tty", "--", "sh", "-c", "stty size; tty; echo ready; read x; echo read $x; exit 3")
	cmd.Env = append(os.Environ(), "SESSIONBOX_STATE_DIR="+state)
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 31, Cols: 97})
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	screen := make(chan string, 1)
	go func() {
		var all []byte
		b, asked := make([]byte, 4096), false
		for {
			n, err := tty.Read(b)
			all = append(all, b[:n]...)
			if !asked && strings.Contains(string(all), "ready") {
				asked = true
				_, _ = tty.WriteString("hello\r")
			}
			if err != nil {
				screen <- string(all)
				return
			}
		}
	}()
	_ = cmd.Wait()
	select {
	case all := <-screen:
		if code := cmd.ProcessState.ExitCode(); code != 3 || !strings.Contains(all, "31 97") || !strings.Contains(all, "read hello") {
			t.Errorf("exit code %d, want 3; the screen:\n%s", code, all)
		}
	case <-time.After(20 * time.Second):
		t.Error("the terminal does not end")
	}
}

// TestMacMemory: who goes beyond a ceiling is warned of, though nobody enforces it.
func TestMacMemory(t *testing.T) {
	state := shortDir(t)
	mac(t, state, "open", "--name", "mem", "--memory-max", "200M", "--memory-warn", "on")
	t.Cleanup(func() { mac(t, state, "close", "--now", "mem") })
	mac(t, state, "exec", "-d", "mem", "--", "perl", "-e", `$x = "x" x 400_000_000; sleep 600`)
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		out, _ := mac(t, state, "events", "--json")
		if strings.Contains(out, "memory_warning") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no warning within a minute; the events:\n%s", out)
		}
	}
}
