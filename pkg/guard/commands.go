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
// hangs costs its own session's warnings, and nobody else's. Where all that may run at
// once do, the next ones wait for those that have had their time.
type commands struct {
	log *slog.Logger
	// limit is how long one may take, short how long while others wait.
	limit, short time.Duration
	all          sync.WaitGroup

	mu      sync.Mutex
	booked  map[string]bool // by session: it runs, or waits
	running int
	waiting []chan struct{} // the first is let on first; closed when it may run
	// waits is closed when there is somebody who waits.
	waits chan struct{}
}

const (
	// onWarnTime is how long a command may take that is run with a warning, onWarnShort how
	// long while others wait for it to end.
	onWarnTime, onWarnShort = 30 * time.Second, 2 * time.Second
	// onWarnAtOnce is how many run at once, onWarnWait how many wait.
	onWarnAtOnce, onWarnWait = 4, 64
	// onWarnSaid is how much of what one says is kept for the log.
	onWarnSaid = 1 << 10
)

func newCommands(log *slog.Logger) *commands {
	return &commands{log: log, limit: onWarnTime, short: onWarnShort, booked: map[string]bool{}, waits: make(chan struct{})}
}

// book reserves the next run of a session's command; why says why there is none.
func (c *commands) book(session string) (why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.booked[session]:
		return "the one before still runs"
	case c.running >= onWarnAtOnce && len(c.waiting) >= onWarnWait:
		return "too many wait"
	}
	c.booked[session] = true
	return ""
}

// run runs a command line for a session that was booked, in dir, with env beside our own.
func (c *commands) run(ctx context.Context, session, line, dir string, env []string) {
	turn := c.enter()
	c.all.Go(func() {
		defer c.leave(session)
		<-turn // each that runs ends in time
		if ctx.Err() != nil {
			return
		}
		if err := c.one(ctx, line, dir, env); err != nil {
			c.log.Warn("a warning's command failed", "session", session, "command", line, "err", err)
		}
	})
}

// enter gives what is closed when one more may run.
func (c *commands) enter() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	turn := make(chan struct{})
	if c.running < onWarnAtOnce {
		c.running++
		close(turn)
		return turn
	}
	if len(c.waiting) == 0 {
		close(c.waits)
	}
	c.waiting = append(c.waiting, turn)
	return turn
}

// leave lets the next one run.
func (c *commands) leave(session string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.booked, session)
	if len(c.waiting) == 0 {
		c.running--
		return
	}
	close(c.waiting[0])
	if c.waiting = c.waiting[1:]; len(c.waiting) == 0 {
		c.waits = make(chan struct{})
	}
}

// hurry ends a context when it has had its time: the short one while others wait.
func (c *commands) hurry(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	began, limit, short := time.Now(), c.limit, c.short
	go func() {
		long := time.NewTimer(limit)
		defer long.Stop()
		for {
			c.mu.Lock()
			waits := c.waits
			c.mu.Unlock()
			select {
			case <-ctx.Done():
				return
			case <-long.C:
				cancel(fmt.Errorf("it was ended after %v", limit))
				return
			case <-waits:
			}
			soon := time.NewTimer(short - time.Since(began))
			select {
			case <-ctx.Done():
				soon.Stop()
				return
			case <-soon.C:
			}
			c.mu.Lock()
			late := len(c.waiting) > 0
			c.mu.Unlock()
			if late {
				cancel(fmt.Errorf("it was ended after %v, as others wait", short))
				return
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// one runs it, and ends it with its process group when its time is over or ctx is
// done. The group's number is the child's, which nobody else can have before the child
// is reaped; that is done last.
func (c *commands) one(ctx context.Context, line, dir string, env []string) error {
	ctx, done := c.hurry(ctx)
	defer done()
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
