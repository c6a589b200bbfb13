package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/supervise"
	"golang.org/x/sys/unix"
)

// Init is sessionbox as pid 1 of a container: the same command line runs as its child, and
// it collects whoever is given to it, hands signals on and ends with that child's status.
// The kernel gives pid 1 no signal that it does not catch, and all orphans; a program that is
// not made for that leaves zombies.
func Init(args []string) int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sessionbox:", err)
		return exitOwnFailure
	}
	chld := make(chan os.Signal, 1)
	signal.Notify(chld, unix.SIGCHLD)
	sup := supervise.Begin()
	child := &exec.Cmd{Path: self, Args: args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, SysProcAttr: sup.Attr()}
	if err := child.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "sessionbox:", err)
		return exitOwnFailure
	}
	sup.Forward(func(sig syscall.Signal) {
		if !sup.FromTerminal(sig) {
			_ = child.Process.Signal(sig) // it may just have ended
		}
	})
	for {
		if ws, ended := reap(child.Process.Pid); ended {
			if ws.Signaled() {
				return exitSignal + int(ws.Signal())
			}
			return ws.ExitStatus()
		}
		<-chld
	}
}

// reap collects all who have ended, and says how one of them did.
func reap(child int) (status syscall.WaitStatus, ended bool) {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || pid == 0:
			return status, ended
		case pid == child:
			status, ended = ws, true
		}
	}
}
