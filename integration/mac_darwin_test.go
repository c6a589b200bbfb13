package integration_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/session"
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

// TestMacSession: the verbs of a session on the lineage box, with what escapes a process group.
func TestMacSession(t *testing.T) {
	state := t.TempDir()
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
	state := t.TempDir()
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
