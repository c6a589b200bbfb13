package shim

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// What has to be known of the real command's end runs as our child, not in our place.

// child is the real command with what we were given.
func (s *shim) child(args []string) *exec.Cmd {
	cmd := exec.Command(s.path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd
}

// run runs a command as system(3) does: what the keys of a terminal send is for the command,
// which has it from there; what was sent to us alone is handed on. Until stop is called no
// signal ends us.
func run(cmd *exec.Cmd) (stop func(), err error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP)
	stop = func() { signal.Stop(signals) }
	if err := cmd.Start(); err != nil {
		return stop, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			return stop, err
		case sig := <-signals:
			if sig == syscall.SIGTERM || sig == syscall.SIGHUP {
				_ = cmd.Process.Signal(sig) // it has ended, else
			}
		}
	}
}

// exit is the exit code for how the real command ended.
func (s *shim) exit(ran error) int {
	if exit, ok := errors.AsType[*exec.ExitError](ran); ok {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return 128 + int(ws.Signal())
		}
		return exit.ExitCode()
	}
	if ran != nil {
		return fail(exitCannotRun, fmt.Sprintf("cannot run %s: %v", s.path, ran), "")
	}
	return 0
}
