package main

import (
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

// storms are those that are elsewhere when a list of pids has been read. Both are
// bounded in number, and slow enough for a machine that others use as well.
func storms() []technique {
	return []technique{
		{ID: "E14", Description: "pid hopper: a new pid every 2 ms, at most 4000 of them", Payloads: 1, SeenBy: "C",
			RootExits: true, Expect: dies, run: func(p params) error { _, err := spawn("hopper", p, session()); return err }},
		{ID: "E15", Description: "bounded fork bomb: a tree of 31 processes, all alive", Payloads: bombSize, SeenBy: "EC",
			RootExits: true, Expect: dies, run: func(p params) error { _, err := spawn("bomb", p.with(strconv.Itoa(bombDepth)), session()); return err }},
	}
}

// A binary tree of this depth has bombSize nodes.
const (
	bombDepth = 4
	bombSize  = 1<<(bombDepth+1) - 1
)

// runBomb is one node: it starts its two children and ticks on.
func runBomb(p params) error {
	depth, err := strconv.Atoi(p.arg)
	if err != nil {
		return err
	}
	for range 2 {
		if depth > 0 {
			if _, err := spawn("bomb", p.with(strconv.Itoa(depth-1)), how{}); err != nil {
				return err
			}
			time.Sleep(tick)
		}
	}
	return runPayload(p)
}

// hops bounds the hopper: with the pause it lives for some ten seconds and leaves at
// most this many zombies where pid 1 reaps slowly.
const (
	hops     = 4000
	hopPause = 2 * time.Millisecond
)

// runHopper forks, lets the parent exit, and goes on in the child. It is a true fork
// and not a new start of this program: an exec takes so long that one pass over a
// list of pids would always win.
func runHopper(p params) error {
	f, err := os.OpenFile(p.path("counter"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	if err := record(p); err != nil {
		return err
	}
	pause := syscall.NsecToTimespec(int64(hopPause))
	hop(f.Fd(), hops, &pause)
	return nil
}

// hop runs on in a forked child, where of the Go runtime only this thread exists: no
// allocation, no growth of the stack, nothing but raw system calls.
//
//go:nosplit
func hop(fd uintptr, n int, pause *syscall.Timespec) {
	b := byte('h')
	for range n {
		syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&b)), 1)
		syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(pause)), 0, 0)
		child, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
		if errno == 0 && child != 0 {
			break
		}
	}
	for {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	}
}

// A storm comes to stormSize processes where nothing stops it.
const (
	stormDepth   = 3
	stormBreadth = 6
	stormSize    = 1 + stormBreadth + stormBreadth*stormBreadth + stormBreadth*stormBreadth*stormBreadth
	stormPause   = 20 * time.Millisecond
)

// runStorm starts a fork storm that is deaf to SIGTERM, for a session with a ceiling
// of processes: what the ceiling refuses is tried again at every turn, so at a close
// somebody is always about to fork.
func runStorm(p params) error {
	p.deaf("TERM", "HUP", "INT").ignoreSignals()
	t, err := begin(p)
	if err != nil {
		return err
	}
	pause := syscall.NsecToTimespec(int64(stormPause))
	storm(t.f.Fd(), int(time.Until(p.until)/stormPause), &pause)
	return nil
}

// storm is the life of each of them, with true forks as in hop. A child goes on with
// the turns that its parent has left, so no chain of children prolongs it.
//
//go:nosplit
func storm(fd uintptr, turns int, pause *syscall.Timespec) {
	b := byte('s')
	depth, children := stormDepth, 0
	for range turns {
		syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&b)), 1)
		syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(pause)), 0, 0)
		if depth == 0 || children == stormBreadth {
			continue
		}
		child, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
		switch {
		case errno != 0: // the ceiling
		case child != 0:
			children++
		default:
			depth, children = depth-1, 0
		}
	}
	for {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	}
}
