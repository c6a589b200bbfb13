package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// disguises are those whose environment, name or owner does not show where they are
// from.
func disguises() []technique {
	return []technique{
		{ID: "E25", Description: "scrubbed environment: env -i setsid", Payloads: 1, SeenBy: "C",
			RootExits: true, Expect: dies, run: func(p params) error { h := session(); h.env = []string{}; return leave(p, h) }},
		{ID: "E25b", Description: "argv[0] of a kernel thread", Payloads: 1, SeenBy: "EC",
			RootExits: true, Expect: dies, run: func(p params) error { h := session(); h.argv0 = "[kworker/9:1]"; return leave(p, h) }},
		{ID: "E25c", Description: "name of a kernel thread by PR_SET_NAME", Payloads: 1, SeenBy: "EC",
			RootExits: true, Expect: dies, run: func(p params) error { _, err := spawn("rename", p, session()); return err }},
		{ID: "E26", Description: "another uid: kill(2) by the first one gives EPERM", Payloads: 1, SeenBy: "C", Needs: []string{"root"},
			RootExits: true, Expect: dies, run: func(p params) error { p.become = nobody; return leave(p, session()) }},
		{ID: "E26b", Description: "ssh-agent: environment unreadable where it is setgid", Payloads: 2, SeenBy: "C", Needs: []string{"agent"},
			RootExits: true, Expect: dies, run: agent},
		{ID: "E26c", Description: "sudo: a member that belongs to root", Payloads: 1, SeenBy: "C", Needs: []string{"sudo"},
			RootExits: true, Expect: dies, run: viaSudo},
	}
}

// nobody is the uid that owns nothing.
const nobody = 65534

// runRename changes the name that ps shows for every thread that it can.
func runRename(p params) error {
	name := append([]byte("kworker/9:1"), 0)
	if err := unix.Prctl(unix.PR_SET_NAME, uintptr(bytesPointer(name)), 0, 0, 0); err != nil {
		return fmt.Errorf("set name: %w", err)
	}
	runtime.KeepAlive(name)
	return runPayload(p)
}

// agent runs a payload below ssh-agent. The agent forks itself away as a daemon, the
// payload stays; the agent ends some seconds after the payload did.
func agent(p params) error {
	// Its own directory would be in /tmp whatever TMPDIR says, as it is setgid, and
	// stay there when it is killed.
	cmd := exec.Command("ssh-agent", append([]string{"-a", filepath.Join(p.dir, "agent.sock"), self(), "payload"}, p.args()...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := waitUntil(10*time.Second, "payload below ssh-agent", func() bool { return recorded(p, p.label) > 0 }); err != nil {
		return err
	}
	pid, err := agentOf(cmd.Process.Pid)
	if err != nil {
		return err
	}
	return recordPID(p, pid, "agent")
}

// agentOf reads the agent's pid from the environment it gave to its command.
func agentOf(pid int) (int, error) {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return 0, err
	}
	return envInt(env, "SSH_AGENT_PID")
}

// viaSudo leaves a payload that runs as root.
func viaSudo(p params) error {
	cmd := exec.Command("sudo", append([]string{"-n", "setsid", self(), "payload"}, p.args()...)...)
	if err := cmd.Start(); err != nil {
		return err
	}
	return waitUntil(10*time.Second, "payload below sudo", func() bool { return recorded(p, p.label) > 0 })
}
