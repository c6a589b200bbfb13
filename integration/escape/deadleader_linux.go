package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
)

// runDeadLeader ends the thread-group leader and ticks on in another thread. ps shows
// one row in Z; /proc/PID/environ gives ESRCH; cgroup.kill signals the leader and so
// reaches nobody (measured on 6.18). A SIGKILL to the pid ends it.
func runDeadLeader(p params) error {
	// The dead thread can take no part in stopping the world.
	debug.SetGCPercent(-1)
	runtime.GOMAXPROCS(max(4, runtime.NumCPU()))

	// A TERM within the grace would reach the live thread and hide what cgroup.kill
	// does not do.
	p.deaf("TERM", "HUP").ignoreSignals()
	t, err := begin(p)
	if err != nil {
		return err
	}
	go func() {
		t.untilDead(p)
		os.Exit(0)
	}()
	// Syscall and not RawSyscall: the scheduler must take the processor back from a
	// thread that will never return.
	_, _, errno := syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
	return errno
}
