package cgroup

import (
	"bytes"
	"errors"
	"os/exec"
	"strconv"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/kfile"
	"github.com/sessionbox/sessionbox/pkg/internal/park"
	"golang.org/x/sys/unix"
)

// ErrStillborn says that the kernel killed a process that was started in the group before
// it could exec. It may be started and moved in instead.
//
// Measured on 6.18: cgroup.kill is counted, and a process that clone3 starts in
// a group with another count than that of its parent's group is taken for one
// that was forking while the group was killed. So a group that was killed once,
// or a caller that lives in such a group, can use clone3 no more. The count
// cannot be read; to move in by cgroup.procs is not affected.
var ErrStillborn = errors.New("the kernel killed the process at birth")

// deathTime bounds the wait for the end of a child that has begun to end.
const deathTime = time.Second

// stillborn says whether a child of ours, which os/exec says it started, was
// killed before it came to exec: os/exec cannot tell these apart, it waits until
// a descriptor closes. Yes is certain, and the child a zombie then; no is also
// what cannot be told, as what has run must not run again.
func stillborn(pid int) bool {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(pidfd)
	// The kernel clears the flag before it closes the descriptor. So who has it
	// now did not exec and never will; it has let go of its files, and its death
	// is a few steps ahead (or behind).
	if !forkNoExec(pidfd) {
		return false
	}
	for end := time.Now().Add(deathTime); ; {
		dead, killed := died(pid)
		if dead || time.Now().After(end) {
			return killed
		}
		// Readable at the end of the process.
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 10)
	}
}

// died says whether a child has ended, and if so by a signal, without reaping it.
func died(pid int) (dead, killed bool) {
	const cldKilled = 2 // CLD_KILLED
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		// Somebody else has reaped it: it cannot be told.
		dead = err != nil || info.Signo == int32(unix.SIGCHLD)
		return dead, err == nil && dead && info.Code == cldKilled
	}
}

// forkNoExec says whether PF_FORKNOEXEC is set for the process of a pidfd. Its
// pid means another process to a /proc of another pid namespace (unshare --pid
// without mounting a new one: there low numbers are kernel threads, which have
// the flag). The pidfd's own file tells which one it is in that /proc.
func forkNoExec(pidfd int) bool {
	const flag = 0x40
	info, err := kfile.ReadAt(unix.AT_FDCWD, "/proc/self/fdinfo/"+strconv.Itoa(pidfd))
	if err != nil {
		return false
	}
	pid := 0
	for line := range bytes.Lines(info) {
		if v, ok := bytes.CutPrefix(line, []byte("Pid:")); ok {
			pid, _ = strconv.Atoi(string(bytes.TrimSpace(v)))
		}
	}
	if pid <= 0 {
		return false
	}
	b, err := kfile.ReadAt(unix.AT_FDCWD, "/proc/"+strconv.Itoa(pid)+"/stat")
	if err != nil {
		return false
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(string(f[6]), 10, 64) // field 9
	return err == nil && flags&flag != 0
}

// bury reaps a child that the kernel killed at birth, a zombie, with everything
// that os/exec set going for it, so that the command can be started another way.
// It cannot if its input is no file: some of that may have been read already.
func bury(cmd *exec.Cmd) error {
	if !park.FileInput(cmd) {
		_, _ = cmd.Process.Wait()
		return errInputSpent
	}
	_ = cmd.Wait() // signal: killed
	return ErrStillborn
}

var errInputSpent = errors.New("the kernel killed the process at birth, and its input is spent")
