package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// self is the path of this program.
func self() string {
	exe, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return exe
}

// how says in which surroundings a stage is started. The zero value is a plain
// child that inherits the environment, the descriptors 0 to 2 and the group.
type how struct {
	attr  syscall.SysProcAttr
	env   []string // nil inherits; an empty slice scrubs
	null  bool     // descriptors 0 to 2 are /dev/null
	stdio *os.File // descriptors 0 to 2, when set
	files []*os.File
	cwd   string
	argv0 string
}

// session is how a command started by setsid(1) with nothing on its descriptors is.
func session() how { return how{attr: syscall.SysProcAttr{Setsid: true}, null: true} }

// spawn starts a stage of this program and does not wait for it.
func spawn(stage string, p params, h how) (*os.Process, error) {
	cmd := exec.Command(self(), append([]string{stage}, p.args()...)...)
	if h.argv0 != "" {
		cmd.Args[0] = h.argv0
	}
	cmd.Env, cmd.Dir, cmd.ExtraFiles = h.env, h.cwd, h.files
	attr := h.attr
	cmd.SysProcAttr = &attr
	switch {
	case h.stdio != nil:
		cmd.Stdin, cmd.Stdout, cmd.Stderr = h.stdio, h.stdio, h.stdio
	case !h.null:
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", stage, err)
	}
	return cmd.Process, nil
}

// payload starts a ticking process.
func payload(p params, h how) (*os.Process, error) { return spawn("payload", p, h) }

// leave is a technique whose root starts a payload and exits.
func leave(p params, h how) error {
	_, err := payload(p, h)
	return err
}

// run is a foreign command that must succeed, with its output in the error.
func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// waitUntil looks at cond every few milliseconds until it holds or the time is over.
func waitUntil(limit time.Duration, what string, cond func() bool) error {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if cond() {
			return nil
		}
	}
	return fmt.Errorf("%s: not within %v", what, limit)
}
