package main

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// missing are the needs that this machine or user does not meet. An unknown need is
// missing everywhere, so that a typing error shows as a skip that names it.
func missing(needs []string) []string {
	out := []string{}
	for _, n := range needs {
		if probe, ok := probes()[n]; !ok || !probe() {
			out = append(out, n)
		}
	}
	return out
}

// probes find out by trying, not by version.
func probes() map[string]func() bool {
	return map[string]func() bool{
		"root":    func() bool { return os.Geteuid() == 0 },
		"sh":      has("sh"),
		"tmux":    has("tmux"),
		"ssh":     has("ssh"),
		"agent":   has("ssh-agent"),
		"sudo":    func() bool { return has("sudo")() && exec.Command("sudo", "-n", "true").Run() == nil },
		"at":      func() bool { return has("at")() && exec.Command("atq").Run() == nil && running("atd") },
		"systemd": func() bool { return has("systemd-run")() && managed() },
		"busctl":  has("busctl"),
		"pidns":   func() bool { return tryClone(pidNamespace()) },
		"fuse":    func() bool { return unix.Access("/dev/fuse", unix.R_OK|unix.W_OK) == nil },
	}
}

// has tells whether a program is installed.
func has(name string) func() bool {
	return func() bool { _, err := exec.LookPath(name); return err == nil }
}

// managed tells whether this user has a systemd that starts units for him: root the
// system's, everybody else his own.
func managed() bool {
	return exec.Command("systemctl", append(managerFlags(), "list-units", "--no-legend", "-n0")...).Run() == nil
}

// running tells whether some process has that name: only to skip, never to signal.
func running(name string) bool {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}
	for _, e := range entries {
		if b, err := os.ReadFile("/proc/" + e.Name() + "/comm"); err == nil && string(b) == name+"\n" {
			return true
		}
	}
	return false
}

// tryClone starts this program once, to do nothing, in the given surroundings.
func tryClone(attr syscall.SysProcAttr) bool {
	cmd := exec.Command(self(), "nothing", "--dir", "/")
	cmd.SysProcAttr = &attr
	return cmd.Run() == nil
}
