package proc

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ExitStatus is how the process ended, for whoever holds a handle that was opened before
// it was reaped: it need not be a child of ours. That of a process whose main thread ended
// before the others is the whole process's. False: it is not known, as the process lives,
// or the kernel cannot tell.
//
// A zombie's is in procfs, on every kernel, for who may trace it: in a container whose
// first process reaps nobody it stays there. After that a pidfd tells it
// (PIDFD_INFO_EXIT, kernel 6.15).
func (h *Handle) ExitStatus() (syscall.WaitStatus, bool) {
	if ws, ok := h.pidfdStatus(); ok {
		return ws, true
	}
	if ws, ok := h.zombieStatus(); ok {
		return ws, true
	}
	return h.pidfdStatus() // it may have been reaped in between
}

// pidfdStatus asks the pidfd. The kernel (include/uapi/linux/pidfd.h, fs/pidfs.c) takes
// in mask what is asked for and gives back in it what it knows, and takes any size of
// the structure from 64 bytes on, so that one from newer headers works on older kernels;
// before 6.13 the call is unknown (ENOTTY).
func (h *Handle) pidfdStatus() (syscall.WaitStatus, bool) {
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(h.fd), unix.PIDFD_GET_INFO, uintptr(unsafe.Pointer(&info)))
		if errors.Is(errno, unix.EINTR) {
			continue
		}
		if errno != 0 || info.Mask&unix.PIDFD_INFO_EXIT == 0 {
			return 0, false
		}
		return syscall.WaitStatus(info.Exit_code), true
	}
}

// zombieStatus reads /proc/PID/stat, whose exit code is 0 also for who may not see it.
// The link of a namespace, which a zombie has no more, asks the same permission first
// (PTRACE_MODE_READ_FSCREDS) and says no with EACCES.
func (h *Handle) zombieStatus() (syscall.WaitStatus, bool) {
	fds := []unix.PollFd{{Fd: int32(h.fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, 0); err != nil || n == 0 || h.id.Start == 0 {
		return 0, false // a main thread that ended looks like a zombie, too
	}
	var link [64]byte
	if _, err := unix.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", h.id.PID), link[:]); !errors.Is(err, unix.ENOENT) {
		return 0, false
	}
	st, err := ReadStat(h.id.PID)
	if err != nil || st.State != 'Z' || st.Start != h.id.Start {
		return 0, false
	}
	return syscall.WaitStatus(st.ExitCode), true
}
