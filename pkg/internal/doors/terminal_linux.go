package doors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A process may type into its controlling terminal (TIOCSTI, TIOCLINUX), and what reads there
// next, mostly the caller's shell, runs it. Linux 6.2 can be told to refuse that
// (dev.tty.legacy_tiocsti=0) and mostly is not.

// abi is a way to call the kernel: its name in a filter, and the number of ioctl.
type abi struct{ arch, ioctl uint32 }

// x32 marks calls of programs with short pointers, whose ioctl is 514.
const x32 = 0x40000000

// abis are those that this machine's programs have: its own, and the 32 bits of before.
func abis() []abi {
	switch runtime.GOARCH {
	case "amd64":
		return []abi{{unix.AUDIT_ARCH_X86_64, unix.SYS_IOCTL}, {unix.AUDIT_ARCH_X86_64, x32 + unix.SYS_IOCTL}, {unix.AUDIT_ARCH_X86_64, x32 + 514}, {unix.AUDIT_ARCH_I386, 54}}
	case "arm64":
		return []abi{{unix.AUDIT_ARCH_AARCH64, unix.SYS_IOCTL}, {unix.AUDIT_ARCH_ARM, 54}}
	}
	return nil
}

// untyped keeps this thread and what it becomes from typing into a terminal, for good. It
// takes no_new_privs.
func untyped() error {
	const load, equal, give = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	// struct seccomp_data: nr, arch, instruction_pointer, args. Of the request, the second
	// argument, the kernel reads the low half.
	const nr, arch, request = 0, 4, 16 + 8
	low := uint32(request)
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		low += 4
	}
	var f []unix.SockFilter
	for _, a := range abis() {
		f = append(f,
			unix.SockFilter{Code: load, K: arch},
			unix.SockFilter{Code: equal, K: a.arch, Jf: 6},
			unix.SockFilter{Code: load, K: nr},
			unix.SockFilter{Code: equal, K: a.ioctl, Jf: 4},
			unix.SockFilter{Code: load, K: low},
			unix.SockFilter{Code: equal, K: unix.TIOCSTI, Jt: 1},
			unix.SockFilter{Code: equal, K: unix.TIOCLINUX, Jf: 1},
			unix.SockFilter{Code: give, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		)
	}
	f = append(f, unix.SockFilter{Code: give, K: unix.SECCOMP_RET_ALLOW})
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
	runtime.KeepAlive(f)
	return err
}

// tryTyping asks for it on no terminal at all: the kernel's answer is then another one.
func tryTyping() string {
	for name, request := range map[string]uint{"TIOCSTI": unix.TIOCSTI, "TIOCLINUX": unix.TIOCLINUX} {
		if err := unix.IoctlSetInt(-1, request, 0); !errors.Is(err, unix.EPERM) {
			return fmt.Sprintf("%s is not refused: %v", name, err)
		}
	}
	return ""
}
