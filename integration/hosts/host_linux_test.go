package hosts_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/integration/hosts"
)

func contains(s, part string) bool { return strings.Contains(s, part) }

// TestSystemdHost checks the namespaced host itself, on all three systemds.
func TestSystemdHost(t *testing.T) {
	ctx := need(t, "systemd", hosts.CheckSystemd)
	for _, gen := range hosts.Generations() {
		t.Run(string(gen), func(t *testing.T) {
			root := openRoot(ctx, t, gen)
			brought := t.TempDir() + "/brought"
			if err := os.WriteFile(brought, []byte("#!/bin/sh\nexit 42\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			h := boot(ctx, t, root, hosts.Options{Linger: true, Files: []hosts.File{{Src: brought, Dst: "/opt/deep/brought"}}})
			for _, c := range []struct {
				route        hosts.Route
				user, cgroup string
			}{
				{hosts.Enter, "root", "0::/init.scope"},
				{hosts.AsRoot, "root", "0::/system.slice/run-"},
				{hosts.SSH, "agent", "0::/user.slice/user-1000.slice/session-"},
				{hosts.Manager, "agent", "0::/user.slice/user-1000.slice/user@1000.service/"},
			} {
				out, err := h.Output(ctx, c.route, "sh", "-c", "id -un; cat /proc/self/cgroup; echo 'a  $HOME %n'")
				if err != nil || !strings.HasPrefix(out, c.user+"\n") || !contains(out, c.cgroup) || !contains(out, "a  $HOME %n") {
					t.Errorf("route %s: %v, %q; want user %s in %s", c.route, err, out, c.user, c.cgroup)
				}
				_, err = h.Output(ctx, c.route, "/opt/deep/brought")
				if code, ran := hosts.ExitCode(err); !ran || code != 42 {
					t.Errorf("route %s: %v, want exit code 42", c.route, err)
				}
			}
			if out, err := h.Output(ctx, hosts.SSH, "ssh", hosts.AgentLogin, "cat", "/proc/self/loginuid"); err != nil || out != "1000" {
				t.Errorf("a login from a login: %q, %v", out, err)
			}
			if !strings.Contains(h.Console(), "Multi-User System") {
				t.Errorf("the console does not tell of the boot: %q", h.Console())
			}
			if out, err := h.Output(ctx, hosts.Enter, "loginctl", "show-user", "agent", "-p", "Linger"); err != nil || out != "Linger=yes" {
				t.Errorf("linger: %q, %v", out, err)
			}
			if _, err := h.Output(ctx, hosts.AsRoot, "sh", "-c", "echo x >/etc/written; echo 1 >/proc/sys/vm/drop_caches"); err == nil {
				t.Error("root in the host may turn the machine's sysctls")
			}
			if exists(filepath.Join(root.Dir, "etc/written")) {
				t.Error("a host wrote to the cached root file system")
			}
		})
	}
}

// TestSystemdHostEnds checks that a host ends with whatever made it.
func TestSystemdHostEnds(t *testing.T) {
	ctx := need(t, "systemd", hosts.CheckSystemd)
	root := openRoot(ctx, t, hosts.Bookworm)
	nshost := filepath.Join(t.TempDir(), "nshost")
	if out, err := exec.Command("go", "build", "-o", nshost, "./cmd/nshost").CombinedOutput(); err != nil {
		t.Fatalf("build nshost: %v\n%s", err, out)
	}

	t.Run("context", func(t *testing.T) {
		hostCtx, cancel := context.WithCancel(ctx)
		defer cancel()
		h := boot(hostCtx, t, root, hosts.Options{})
		began := time.Now()
		time.AfterFunc(100*time.Millisecond, cancel)
		if err := h.Run(hostCtx, hosts.Command{Route: hosts.SSH, Args: []string{"sleep", "600"}}); err == nil {
			t.Error("a command outlived the host's context")
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("that took %s", took)
		}
	})

	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			cmd := exec.CommandContext(ctx, nshost, "-route", "ssh", "--", "sh", "-c", "setsid sleep 600 & echo up; exec sleep 600")
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "up\n" {
				t.Errorf("nshost said %q, %v", line, err)
			}
			group := groupOf(t, cmd.Process.Pid)
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // how it ended is what the signal says
			if sig == syscall.SIGKILL {
				// The kernel ends the host; its empty cgroup waits for the next start.
				if !hosts.IsStale(filepath.Base(group)) {
					t.Errorf("%s is not taken for a dead run's", group)
				}
				if err := hosts.Sweep(); err != nil {
					t.Error(err)
				}
			}
			if exists(group) {
				t.Errorf("%s is left after %s", group, sig)
			}
		})
	}
}

// groupOf finds the cgroup that process pid made.
func groupOf(t *testing.T, pid int) string {
	t.Helper()
	mount, err := hosts.CgroupMount()
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(mount, fmt.Sprintf("sbxtest-*-%d-*", pid)))
	if err != nil || len(found) != 1 {
		t.Fatalf("cgroups of process %d: %q, %v; want one", pid, found, err)
	}
	return found[0]
}
