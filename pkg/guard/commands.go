package guard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
)

// commands runs what people want to have run with a warning. None of them is waited
// for by who asks, none lasts for ever, and a session has one at a time: one that
// hangs costs its own session's warnings, and nobody else's.
type commands struct {
	log *slog.Logger
	// limit is how long one may take.
	limit time.Duration
	slots chan struct{}
	all   sync.WaitGroup

	mu      sync.Mutex
	running map[string]bool // by session
}

const (
	// onWarnTime is how long a command may take that is run with a warning.
	onWarnTime = 30 * time.Second
	// onWarnAtOnce is how many run at once.
	onWarnAtOnce = 4
	// onWarnSaid is how much of what one says is kept for the log.
	onWarnSaid = 1 << 10
)

func newCommands(log *slog.Logger) *commands {
	return &commands{log: log, limit: onWarnTime, slots: make(chan struct{}, onWarnAtOnce), running: map[string]bool{}}
}

// run runs a command line for a session, in dir, with env beside our own.
func (c *commands) run(ctx context.Context, session, line, dir string, env []string) {
	c.mu.Lock()
	busy := c.running[session]
	c.running[session] = true
	c.mu.Unlock()
	if busy {
		c.log.Warn("a warning's command is not run: the one before still runs", "session", session)
		return
	}
	done := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.running, session)
	}
	select {
	case c.slots <- struct{}{}:
	default:
		done()
		c.log.Warn("a warning's command is not run: too many run", "session", session)
		return
	}
	c.all.Go(func() {
		defer func() { <-c.slots; done() }()
		if err := c.one(ctx, line, dir, env); err != nil {
			c.log.Warn("a warning's command failed", "session", session, "command", line, "err", err)
		}
	})
}

// one runs it, and ends it with its process group when its time is over or ctx is
// done. The group's number is the child's, which nobody else can have before the child
// is reaped; that is done last.
func (c *commands) one(ctx context.Context, line, dir string, env []string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.limit, fmt.Errorf("it was ended after %v", c.limit))
	defer cancel()
	argv := undefended(line)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(ourEnv(), env...)
	cmd.Dir = "/"
	if fi, err := os.Stat(dir); err == nil && fi.IsDir() {
		cmd.Dir = dir
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second // what it left behind may hold its output
	said := &tail{most: onWarnSaid}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		return err
	}
	h, held := proc.OpenPID(cmd.Process.Pid)
	if held == nil {
		h.Wait(ctx)
		h.Close()
	}
	if held != nil || ctx.Err() != nil { // what cannot be waited for cannot be ended in time, either
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	err := cmd.Wait()
	switch {
	case held != nil:
		err = held
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, exec.ErrWaitDelay):
		err = nil
	}
	if err != nil && len(said.b) > 0 {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(said.b))
	}
	return err
}

// wait waits for those that run.
func (c *commands) wait() { c.all.Wait() }

// ourEnv is our environment without what is meant for us alone: a service manager's
// words, and the marks of a session, by which the command would count as a part of it.
func ourEnv() []string {
	ours := []string{"SESSIONBOX_ID=", "SESSIONBOX_SESSION=", "SESSIONBOX_COOKIE=", "SESSIONBOX_KEEP=", "NOTIFY_SOCKET=", "WATCHDOG_", "LISTEN_", "INVOCATION_ID="}
	return slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return slices.ContainsFunc(ours, func(p string) bool { return strings.HasPrefix(kv, p) })
	})
}

// tail keeps the end of what is written.
type tail struct {
	b    []byte
	most int
}

func (t *tail) Write(b []byte) (int, error) {
	t.b = append(t.b, b...)
	if over := len(t.b) - t.most; over > 0 {
		t.b = t.b[over:]
	}
	return len(b), nil
}
