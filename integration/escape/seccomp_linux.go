package main

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// runSeccomp becomes a shell that runs --arg where clone3 is refused with the error that
// --label names: with ENOSYS as by Docker's default profile since 20.10.10, with EPERM as by
// that before.
func runSeccomp(p params) error {
	errno, ok := map[string]unix.Errno{"ENOSYS": unix.ENOSYS, "EPERM": unix.EPERM}[p.label]
	if !ok {
		return fmt.Errorf("seccomp: --label %q is not ENOSYS or EPERM", p.label)
	}
	const load = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	const ret = unix.BPF_RET | unix.BPF_K
	filter := []unix.SockFilter{
		{Code: load, K: 0}, // the number of the call, first in struct seccomp_data
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE3, Jf: 1},
		{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: ret, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("PR_SET_NO_NEW_PRIVS: %w", err)
	}
	// For all threads: any of them may be the one that forks.
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if e != 0 {
		return fmt.Errorf("seccomp: %w", e)
	}
	if _, _, e := unix.Syscall(unix.SYS_CLONE3, 0, 0, 0); e != errno {
		return fmt.Errorf("seccomp: clone3 says %w, want %w", e, errno)
	}
	return unix.Exec("/bin/sh", []string{"sh", "-ec", p.arg}, os.Environ())
}
