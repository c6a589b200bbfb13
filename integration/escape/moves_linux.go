package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// moves are those that change their cgroup.
func moves() []technique {
	return []technique{
		{ID: "E28", Description: "deeper: into a/b/c below its own cgroup", Payloads: 1, SeenBy: "EC", Needs: nil,
			RootExits: true, Expect: dies, run: func(p params) error { _, err := spawn("deeper", p, session()); return err }},
		{ID: "E28b", Description: "outward: into another cgroup that the user may write", Payloads: 1, SeenBy: "E",
			Fixtures: []string{"out-cgroup"}, RootExits: true, Expect: stray,
			run: func(p params) error { _, err := spawn("outward", p, session()); return err }},
		{ID: "E28c", Description: "outward: systemd-run --scope", Payloads: 1, SeenBy: "E", Needs: []string{"systemd"},
			RootExits: true, Expect: stray, run: scoped},
		{ID: "E28d", Description: "outward: StartTransientUnit with its own pid, as a browser does", Payloads: 1, SeenBy: "E",
			Needs: []string{"systemd", "busctl"}, RootExits: true, Expect: stray, run: selfScoped},
	}
}

// runDeeper makes a chain of cgroups below the one it is in.
func runDeeper(p params) error {
	own, err := ownCgroup()
	if err != nil {
		return err
	}
	deep := filepath.Join(own, "a", "b", "c")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		return err
	}
	if err := enter(deep); err != nil {
		return err
	}
	return runPayload(p)
}

// runOutward leaves for a cgroup outside of the box.
func runOutward(p params) error {
	if err := enter(p.outCg); err != nil {
		return err
	}
	return runPayload(p)
}

// enter moves the calling process.
func enter(cgroup string) error {
	if err := os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("enter cgroup: %w", err)
	}
	return nil
}

// ownCgroup is the directory of the calling process's v2 cgroup. The mount is looked
// up: on a hybrid host it is not /sys/fs/cgroup.
func ownCgroup() (string, error) {
	member, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for m := range strings.Lines(string(mounts)) {
		left, right, _ := strings.Cut(m, " - ")
		f := strings.Fields(left)
		if !strings.HasPrefix(right, "cgroup2 ") || len(f) < 5 {
			continue
		}
		for line := range strings.Lines(string(member)) {
			if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
				return filepath.Join(f[4], strings.TrimPrefix(path, strings.TrimSuffix(f[3], "/"))), nil
			}
		}
	}
	return "", fmt.Errorf("no cgroup v2 mount")
}

// managerFlags choose the manager of units that this user may ask: root the system's,
// everybody else his own.
func managerFlags() []string {
	if os.Geteuid() == 0 {
		return []string{"--system"}
	}
	return []string{"--user"}
}

// unitName is a name for a transient unit that no other test uses.
func unitName(kind string) string { return fmt.Sprintf("sbxescape-%d.%s", os.Getpid(), kind) }

// scoped runs a payload through systemd-run --scope, which moves it out of the box
// before it starts.
func scoped(p params) error {
	args := append(managerFlags(), "--scope", "--quiet", "--collect", "--unit", unitName("scope"), self(), "payload")
	cmd := exec.Command("systemd-run", append(args, p.args()...)...)
	if err := cmd.Start(); err != nil {
		return err
	}
	return waitUntil(20*time.Second, "payload in a scope", func() bool { return recorded(p, p.label) > 0 })
}

// selfScoped asks the manager to put a running payload into a scope.
func selfScoped(p params) error {
	proc, err := payload(p, session())
	if err != nil {
		return err
	}
	before, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", proc.Pid))
	if err != nil {
		return err
	}
	err = run("busctl", append(managerFlags(), "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
		"org.freedesktop.systemd1.Manager", "StartTransientUnit", "ssa(sv)a(sa(sv))",
		unitName("scope"), "fail", "1", "PIDs", "au", "1", fmt.Sprint(proc.Pid), "0")...)
	if err != nil {
		return err
	}
	return waitUntil(20*time.Second, "move into a scope", func() bool {
		after, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", proc.Pid))
		return err == nil && string(after) != string(before)
	})
}
