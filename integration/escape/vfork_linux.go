package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// runVfork is suspended by a vfork whose child neither execs nor exits: ps shows D.
// Unlike a real D the sleep ends by SIGKILL. Another thread of the parent goes on, to
// record both.
func runVfork(p params) error {
	debug.SetGCPercent(-1) // the suspended thread can take no part in stopping the world
	runtime.GOMAXPROCS(max(4, runtime.NumCPU()))

	t, err := begin(p.called("vfork-parent"))
	if err != nil {
		return err
	}
	var child atomic.Uintptr
	go func() {
		for child.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		_ = recordPID(p, int(child.Load()), p.label)
		t.untilDead(p)
		os.Exit(0)
	}()
	pause := syscall.NsecToTimespec(int64(tick))
	suspend(t.f.Fd(), int(time.Until(p.until)/tick), &pause, &child)
	return nil
}

// suspend clones as vfork does: the child runs on this thread's stack and memory
// while this thread waits. The child makes system calls of one and the same depth
// only, so that the return addresses it leaves on the shared stack are those of its
// last call: if it ends first, the parent wakes up in the loop that exits.
//
//go:nosplit
func suspend(fd uintptr, ticks int, pause *syscall.Timespec, child *atomic.Uintptr) {
	b := byte('v')
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE,
		syscall.CLONE_VM|syscall.CLONE_VFORK|uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return
	}
	self, _, _ := syscall.RawSyscall6(syscall.SYS_GETPID, 0, 0, 0, 0, 0, 0)
	child.Store(self)
	for ; ticks > 0; ticks-- {
		syscall.RawSyscall6(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&b)), 1, 0, 0, 0)
		syscall.RawSyscall6(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(pause)), 0, 0, 0, 0, 0)
	}
	for {
		syscall.RawSyscall6(syscall.SYS_EXIT_GROUP, 0, 0, 0, 0, 0, 0)
	}
}
