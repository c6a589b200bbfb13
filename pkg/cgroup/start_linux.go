package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/sessionbox/sessionbox/pkg/internal/park"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"golang.org/x/sys/unix"
)

// ErrCannotEnter says that the kernel does not let us put a process into the group from
// where we run.
var ErrCannotEnter = errors.New("not permitted to enter the cgroup from here")

// ErrNotArrived says that a process is not in the group though nobody refused to move
// it: the kernel leaves one where it is that is about to end.
var ErrNotArrived = errors.New("it is not there")

// Start starts cmd as a member of g: clone3 with CLONE_INTO_CGROUP (Linux 5.7),
// so that there is no moment at which it runs elsewhere. Errors are those of
// [exec.Cmd.Start], where EACCES may mean the command or the group, and
// [ErrStillborn].
func (g *Group) Start(cmd *exec.Cmd) error {
	attr := syscall.SysProcAttr{}
	if cmd.SysProcAttr != nil {
		attr = *cmd.SysProcAttr
	}
	attr.UseCgroupFD, attr.CgroupFD = true, g.fd()
	before := *cmd
	cmd.SysProcAttr = &attr
	err := cmd.Start()
	cmd.SysProcAttr = before.SysProcAttr
	if err == nil && stillborn(cmd.Process.Pid) {
		err = bury(cmd)
	}
	if err != nil && !errors.Is(err, errInputSpent) {
		// Go 1.26 lets a Cmd be started once, even if that failed. Undone, so
		// that another way can be tried; pipes made by StdoutPipe are closed.
		*cmd = before
	}
	return err
}

// StartParked starts cmd where clone3 into the group is refused: a stub waits
// while attach moves it, its membership is read back from the kernel, then it
// execs. attach nil means writing its pid to cgroup.procs. In a frozen group it
// cannot: ctx bounds the wait.
func (g *Group) StartParked(ctx context.Context, cmd *exec.Cmd, helper string, attach func(pid int) error) error {
	if attach == nil {
		attach = g.Add
	}
	return park.Start(ctx, cmd, helper, func(pid int) error {
		if err := attach(pid); err != nil {
			return err
		}
		return g.Verify(pid)
	})
}

// Verify reads back that pid is directly in g. It is meant for a process that
// cannot end meanwhile: a child we have not waited for, ourselves, or one that the
// caller has a pidfd of and looks at afterwards.
func (g *Group) Verify(pid int) error {
	pids, err := g.Procs()
	if err != nil {
		return err
	}
	if slices.Contains(pids, pid) {
		return nil
	}
	// One without its leading thread is not listed among others.
	if threads, err := g.numbers("cgroup.threads"); err == nil && slices.ContainsFunc(threads, func(tid int) bool { return proc.HasThread(pid, tid) }) {
		return nil
	}
	return fmt.Errorf("process %d did not arrive in %s: %w (%w)", pid, g.path, ErrCannotEnter, ErrNotArrived)
}

// Add moves a process, with all its threads, into g.
func (g *Group) Add(pid int) error {
	err := g.write("cgroup.procs", strconv.Itoa(pid))
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: %w", ErrCannotEnter, err)
	}
	return err
}

// Enter moves the calling process into g.
func (g *Group) Enter() error { return g.Add(os.Getpid()) }

// MayEnter says whether the kernel would let us put a process from our own
// cgroup into g: it wants write access to cgroup.procs of g and of the nearest
// directory that contains both.
func (g *Group) MayEnter() bool {
	if !hasClone3() {
		return false
	}
	if os.Geteuid() == 0 {
		return writable(g.path) // root may write the other one, too
	}
	m, err := FindMount()
	if err != nil {
		return false
	}
	own, err := Own(m)
	if err != nil {
		return false
	}
	return writable(g.path) && writable(commonDir(own, g.path))
}

// hasClone3 says whether clone3 gets through to the kernel: older seccomp filters
// answer ENOSYS or EPERM. Arguments of size 0 are EINVAL and make no process.
func hasClone3() bool {
	_, _, errno := unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0)
	return errno == unix.EINVAL
}

func writable(dir string) bool {
	return unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK) == nil
}

func commonDir(a, b string) string {
	as, bs := strings.Split(a, "/"), strings.Split(b, "/")
	n := 0
	for n < len(as) && n < len(bs) && as[n] == bs[n] {
		n++
	}
	return "/" + strings.Trim(strings.Join(as[:n], "/"), "/")
}
