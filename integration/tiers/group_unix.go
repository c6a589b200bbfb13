//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

func inOwnGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// interruptGroup interrupts the group of a command that was not waited for yet, so
// that its id is still ours.
func interruptGroup(cmd *exec.Cmd) error {
	return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
}
