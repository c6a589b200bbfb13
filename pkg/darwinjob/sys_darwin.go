package darwinjob

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"golang.org/x/sys/unix"
)

// sysProcInfo is SYS_proc_info of bsd/kern/syscalls.master. Its number is no promise, which is
// why [System] asks about ourselves first; libproc, which is one, gives no errno without cgo.
const sysProcInfo = 336

// Calls and flavors of proc_info(2), bsd/sys/proc_info.h and proc_info_private.h.
const (
	callListPIDs    = 1
	callPIDInfo     = 2
	callPIDFDInfo   = 3
	callPIDRusage   = 9
	callCoalitions  = 0xb
	callSignalToken = 0x11

	listByParent     = 6 // PROC_PPID_ONLY
	flavorFDs        = 1
	flavorVnodePath  = 9
	flavorPath       = 11
	flavorUniq       = 17
	flavorBSDUniq    = 18
	flavorCoalition  = 20
	flavorPipe       = 6 // of callPIDFDInfo
	flavorRusageV4   = 4
	coalitionsOfType = 2 // LISTCOALITIONS_SINGLE_TYPE
	alsoZombies      = 1 // arg of flavor 17
)

// procInfo calls proc_info(2) by its number, so that no cgo is needed and the errno is
// the kernel's. size is what the kernel is told of buf, which some calls want to be 0.
func procInfo(call, pid, flavor, arg int, buf []byte, size int) (int, error) {
	n, _, errno := unix.Syscall6(sysProcInfo, uintptr(call), uintptr(pid), uintptr(flavor), uintptr(arg),
		uintptr(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(size))
	switch {
	case errno == unix.ESRCH:
		return 0, fmt.Errorf("pid %d: %w", pid, proc.ErrGone)
	case errno != 0:
		return 0, errno
	case n > uintptr(max(size, len(buf))):
		return 0, fmt.Errorf("proc_info answers %d bytes into %d: %w", n, len(buf), unix.EIO)
	}
	return int(n), nil
}

// pidInfo asks one flavor of one process. The buffer has room for a longer answer of a
// later kernel, which refuses shorter ones.
func pidInfo(pid, flavor, arg, size int) ([]byte, error) {
	buf := make([]byte, size+64)
	n, err := procInfo(callPIDInfo, pid, flavor, arg, buf, len(buf))
	return buf[:n], err
}

func readUniq(pid int) (uniq, error) {
	b, err := pidInfo(pid, flavorUniq, alsoZombies, uniqSize)
	if err != nil {
		return uniq{}, err
	}
	return parseUniq(b)
}

// readBSDUniq is refused for other users' processes.
func readBSDUniq(pid int) (start uint64, u uniq, err error) {
	b, err := pidInfo(pid, flavorBSDUniq, alsoZombies, bsdUniqSize)
	if err != nil {
		return 0, uniq{}, err
	}
	return parseBSDUniq(b)
}

func readCoalition(pid int) (uint64, error) {
	b, err := pidInfo(pid, flavorCoalition, 0, coalSize)
	if err != nil {
		return 0, err
	}
	return parseCoalition(b)
}

// readKinfo lists processes by sysctl: kern.proc.all, or kern.proc.pid with a number.
func readKinfo(name string, args ...int) ([]Proc, error) {
	for try := 0; ; try++ {
		b, err := unix.SysctlRaw(name, args...)
		if errors.Is(err, unix.ENOMEM) && try < 8 {
			continue // it grew between the two calls
		}
		if err != nil {
			return nil, fmt.Errorf("sysctl %s: %w", name, err)
		}
		return parseKinfo(b)
	}
}

// readCoalitions counts the tasks of all resource coalitions.
func readCoalitions() (map[uint64]int, error) {
	for size := 64 << 10; ; size *= 2 {
		buf := make([]byte, size)
		n, err := procInfo(callCoalitions, coalitionsOfType, 0, 0, buf, len(buf))
		if err != nil {
			return nil, fmt.Errorf("list coalitions: %w", err)
		}
		if n < size || size > 8<<20 {
			return parseCoalitions(buf[:n-n%coalInfo])
		}
	}
}

// readChildren are the pids that have the parent now, zombies included.
func readChildren(parent int) ([]int, error) {
	buf := make([]byte, 4*4096)
	n, err := procInfo(callListPIDs, listByParent, parent, 0, buf, len(buf))
	if err != nil {
		return nil, fmt.Errorf("list children: %w", err)
	}
	pids := make([]int, 0, n/4)
	for at := 0; at+4 <= n; at += 4 {
		if pid := i32(buf, at); pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func (*xnu) identify(pid int) (uint64, int32, bool, error) {
	u, err := readUniq(pid)
	if err != nil {
		return 0, 0, false, err
	}
	ps, err := readKinfo("kern.proc.pid", pid)
	return u.unique, u.version, err == nil && len(ps) == 1 && ps[0].State == Stopped, nil
}

// signalVersion is proc_signal_with_audittoken of libproc, macOS 14.2.
func (t *xnu) signalVersion(pid int, version int32, sig syscall.Signal) error {
	if !t.exact {
		return errNoExact
	}
	b := token(pid, version)
	_, _, errno := unix.Syscall6(sysProcInfo, callSignalToken, 0, uintptr(sig), 0, uintptr(unsafe.Pointer(unsafe.SliceData(b))), tokenSize)
	switch errno {
	case 0:
		return nil
	case unix.EINVAL, unix.ENOSYS:
		return errNoExact
	}
	return errno
}

func (*xnu) kill(pid int, sig syscall.Signal) error { return unix.Kill(pid, sig) }
