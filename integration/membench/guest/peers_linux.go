package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/integration/membench/plan"
	"github.com/sessionbox/sessionbox/integration/membench/score"
	"golang.org/x/sys/unix"
)

// shell runs a line as root.
func shell(ctx context.Context, line string) error {
	out, err := exec.CommandContext(ctx, "sh", "-c", line).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", line, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// warnFile is where nohang's warnings go: it runs a command with each.
const warnFile = "/run/membench.warned"

// startPeer starts the guard that is not ours. Each runs as Debian has it, but that
// nohang is let warn, and that systemd-oomd is told to watch the slice of all sessions
// as Fedora has it watch users.
func startPeer(ctx context.Context, guard string, t *tape) (stop func(), err error) {
	none := func() {}
	unit := guard + ".service"
	switch guard {
	case "off", "sessionbox":
		return none, nil
	case "earlyoom":
	case "nohang":
		const edit = `conf=$(ls /etc/nohang/nohang.conf) && sed -i -e 's/^low_memory_warnings_enabled *=.*/low_memory_warnings_enabled = True/' ` +
			`-e 's,^warning_exe *=.*,warning_exe = sh -c "echo warn >>` + warnFile + `",' $conf && grep -q '^low_memory_warnings_enabled = True' $conf`
		if err := shell(ctx, edit); err != nil {
			return none, err
		}
	case "systemd-oomd":
		const set = "systemctl set-property --runtime sessionbox.slice ManagedOOMMemoryPressure=kill ManagedOOMSwap=kill"
		if err := shell(ctx, set); err != nil {
			return none, err
		}
	default:
		return none, fmt.Errorf("no guard %q", guard)
	}
	if err := os.WriteFile(warnFile, nil, 0o666); err != nil {
		return none, err
	}
	if err := shell(ctx, "systemctl start "+unit+" && systemctl is-active "+unit); err != nil {
		return none, err
	}
	cmd := exec.CommandContext(ctx, "tail", "-n", "0", "-F", warnFile)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return none, err
	}
	if err := cmd.Start(); err != nil {
		return none, err
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			t.say(score.Record{What: score.Warned, Name: plan.HostName, Level: "warn", Change: "raised", Text: guard + " warns"})
		}
		cmd.Wait()
	}()
	return func() {
		out, _ := exec.Command("journalctl", "-q", "-o", "short-monotonic", "-n", "40", "-u", unit).CombinedOutput()
		fmt.Printf("%s", out) // what it has to say of it
		shell(context.Background(), "systemctl stop "+unit+"; systemctl revert sessionbox.slice 2>/dev/null")
	}, nil
}

// endGuard ends ours, which stays for a while after the last session: the next run may
// be one without.
func endGuard() {
	for end := clock() + time.Minute; clock() < end; time.Sleep(100 * time.Millisecond) {
		pid := find("sessionbox")
		if pid == 0 {
			return
		}
		if p, err := os.FindProcess(pid); err == nil {
			p.Signal(unix.SIGTERM)
			p.Release()
		}
	}
	fmt.Println("the guard does not end")
}
