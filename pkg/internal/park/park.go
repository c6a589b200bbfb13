// Package park starts a command that waits, before its first instruction, until
// somebody has put it where it belongs.
//
// It serves where the kernel refuses to start a process in a cgroup directly
// (clone3 with CLONE_INTO_CGROUP): a login session is below another, root-owned
// ancestor than the user's own units, and old seccomp filters refuse clone3. A
// stub, our own program again, is started instead; it waits on a pipe, its pid
// is moved, and then it execs. If the starter dies the pipe ends and the stub
// exits: nothing runs in the wrong place.
package park

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Arg is the first argument of the stub.
const Arg = "__park"

// endTime is how long a stub that was killed is waited for.
const endTime = time.Second

// Start starts cmd by way of the stub helper (a sessionbox program), calls place
// with the pid of the waiting stub, and lets it go when place returned nil. The
// error is the one that exec gave in the stub, as if cmd.Start had returned it.
//
// A stub that was put into a frozen cgroup does not get to exec: at the end of
// ctx it is killed, and the error is that of ctx. After an error cmd can be
// started again, unless [FileInput] says no or the stub does not end.
func Start(ctx context.Context, cmd *exec.Cmd, helper string, place func(pid int) error) error {
	if cmd.Err != nil {
		return cmd.Err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	goR, goW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer goW.Close()
	errR, errW, err := os.Pipe()
	if err != nil {
		goR.Close()
		return err
	}
	defer errR.Close()

	before := *cmd
	path, args, extra := cmd.Path, cmd.Args, cmd.ExtraFiles
	n := 3 + len(extra)
	cmd.Path = helper
	cmd.Args = append([]string{"sessionbox", Arg, strconv.Itoa(n), path}, args...)
	cmd.ExtraFiles = append(append([]*os.File{}, extra...), goR, errW)
	err = cmd.Start()
	cmd.Path, cmd.Args, cmd.ExtraFiles = path, args, extra
	goR.Close()
	errW.Close()
	if err != nil {
		*cmd = before
		return fmt.Errorf("start the waiting stub: %w", err)
	}

	err = place(cmd.Process.Pid)
	if err == nil {
		err = release(ctx, goW, errR)
	}
	if err == nil {
		return nil
	}
	if End(cmd) && FileInput(&before) {
		*cmd = before // it has read nothing
	}
	if errno, ok := errors.AsType[execError](err); ok {
		return &os.PathError{Op: "fork/exec", Path: path, Err: syscall.Errno(errno)}
	}
	return err
}

// release lets the stub go and waits until it has become the command.
func release(ctx context.Context, goW, errR *os.File) error {
	if err := ctx.Err(); err != nil { // place took its time
		return err
	}
	if _, err := goW.Write([]byte{1}); err != nil {
		return fmt.Errorf("release the waiting stub: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { errR.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	// Ends empty when exec succeeded: the pipe closes on exec.
	msg, err := io.ReadAll(errR)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("wait for the released stub to exec: %w", ctx.Err())
	}
	if errno, err := strconv.Atoi(string(msg)); err == nil {
		return execError(errno)
	}
	return nil
}

// execError is what exec said in the stub.
type execError syscall.Errno

func (e execError) Error() string { return syscall.Errno(e).Error() }

// End kills a stub and reaps it. It is a child that nobody has waited for, so its
// pid is its own. False: it does not end for now (it is in D state or frozen by
// cgroup v1), or its input does not, and somebody waits for that in the
// background.
func End(cmd *exec.Cmd) bool {
	_ = cmd.Process.Kill()
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	timeout := time.NewTimer(endTime)
	defer timeout.Stop()
	select {
	case <-ended:
		return true
	case <-timeout.C:
		return false
	}
}

// FileInput says that os/exec reads nothing of the command's input itself: what
// did not run has not used any of it up.
func FileInput(cmd *exec.Cmd) bool {
	_, file := cmd.Stdin.(*os.File)
	return file || cmd.Stdin == nil
}

// Main is the stub: args are what follows [Arg]. It returns only when the
// command does not run.
func Main(args []string) int {
	if len(args) < 3 {
		return 125
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return 125
	}
	unix.CloseOnExec(n)
	unix.CloseOnExec(n + 1)
	var b [1]byte
	for {
		k, err := unix.Read(n, b[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if k != 1 {
			return 125 // nobody released us
		}
		break
	}
	err = unix.Exec(args[1], args[2:], os.Environ())
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		errno = syscall.ENOEXEC
	}
	unix.Write(n+1, []byte(strconv.Itoa(int(errno))))
	return 126
}
