package main

import (
	"os"
	"syscall"
	"time"
)

// states are processes in a condition that tools misread: stopped, asleep for good,
// dead but not reaped, dead but not over.
func states() []technique {
	return []technique{
		{ID: "E16", Description: "stopped: TERM stays pending", Payloads: 2, Still: true, SeenBy: "EC",
			RootExits: true, Expect: dies, run: stopped},
		{ID: "E18", Description: "vfork parent in D until its child ends", Payloads: 2, SeenBy: "EC",
			RootExits: true, Expect: dies, run: func(p params) error { _, err := spawn("vfork", p, session()); return err }},
		{ID: "E18b", Description: "real D: waits for a file system that never answers", Payloads: 1, SeenBy: "EC",
			Needs: []string{"root", "fuse"}, Fixtures: []string{"fuse"},
			RootExits: true, Expect: unkillable, run: func(p params) error { _, err := spawn("stuck", p, session()); return err }},
		{ID: "E19", Description: "50 zombies that nobody waits for", Payloads: 1, SeenBy: "C",
			RootExits: true, Expect: dies, run: func(p params) error { _, err := spawn("zombies", p, session()); return err }},
		{ID: "E19b", Description: "50 zombies below pid 1 of a pid namespace", Payloads: 1, SeenBy: "C", Needs: []string{"pidns"},
			RootExits: true, Expect: dies, run: func(p params) error {
				_, err := spawn("zombies", p, how{attr: pidNamespace(), null: true})
				return err
			}},
		{ID: "E20", Description: "dead leader, live thread: survives cgroup.kill", Payloads: 1, SeenBy: "C",
			RootExits: true, Expect: dies, run: func(p params) error { _, err := spawn("deadleader", p, session()); return err }},
		{ID: "E20b", Description: "the command itself is a dead leader with a live thread", Payloads: 1, SeenBy: "C",
			RootExits: false, Expect: dies, run: runDeadLeader},
	}
}

// stopped leaves a payload that was stopped after its first tick.
func stopped(p params) error {
	proc, err := watched(p, session())
	if err != nil {
		return err
	}
	if err := waitUntil(10*time.Second, "payload", func() bool { return recorded(p, p.label) > 0 }); err != nil {
		return err
	}
	return proc.Signal(syscall.SIGSTOP)
}

// runZombies has 50 dead children and goes on ticking.
func runZombies(p params) error {
	for range 50 {
		if err := bear(); err != nil {
			return err
		}
	}
	return runPayload(p)
}

// bear forks a child that exits at once.
func bear() error {
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return os.NewSyscallError("clone", errno)
	}
	for pid == 0 {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	}
	return nil
}
