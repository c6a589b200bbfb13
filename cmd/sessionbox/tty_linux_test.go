package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// screen is what a program in front of a terminal has written.
type screen struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.ReplaceAll(s.buf.String(), "\r", "")
}

// console is the program in front of a terminal.
type console struct {
	t    *testing.T
	tty  *os.File
	proc *os.Process
	screen
	done chan int
}

func (b *box) console(cols uint16, args ...string) *console {
	b.t.Helper()
	cmd := b.command(args...)
	cmd.Env = append(cmd.Env, "NO_COLOR=1")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: cols})
	if err != nil {
		b.t.Fatal(err)
	}
	c := &console{t: b.t, tty: tty, proc: cmd.Process, done: make(chan int, 1)}
	go io.Copy(&c.screen, tty) // ends with EIO when the terminal is closed
	go func() {
		cmd.Wait()
		ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if ws.Signaled() {
			c.done <- -int(ws.Signal())
			return
		}
		c.done <- ws.ExitStatus()
	}()
	b.t.Cleanup(func() { tty.Close() })
	return c
}

const patience = 30 * time.Second

// see waits until a text is on the screen n times.
func (c *console) see(text string, n int) {
	c.t.Helper()
	for end := time.Now().Add(patience); strings.Count(c.String(), text) < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("no %q (%d times) on the screen:\n%s", text, n, c)
		}
	}
}

func (c *console) typ(keys string) {
	c.t.Helper()
	if _, err := io.WriteString(c.tty, keys); err != nil {
		c.t.Fatal(err)
	}
}

func (c *console) exits(code int) {
	c.t.Helper()
	select {
	case got := <-c.done:
		if got != code {
			c.t.Errorf("exit code %d, want %d:\n%s", got, code, c)
		}
	case <-time.After(patience):
		c.proc.Kill()
		c.t.Fatalf("it does not end:\n%s", c)
	}
}

const ctrlC, ctrlZ = "\x03", "\x1a"

// Ctrl-C reaches the command once, not twice: by the terminal and from us.
func TestCtrlCOnce(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.run(0, "open", "--name", "work")
	c := b.console(80, "exec", "work", "--", "sh", "-c",
		`trap 'n=$((n+1)); echo int' INT; trap 'echo n=$n; exit 5' USR1; echo pid $$.; while :; do sleep 0.05; done`)
	c.see("pid ", 1)
	c.typ(ctrlC)
	c.see("int", 1)
	time.Sleep(200 * time.Millisecond) // a second one would come by now
	c.proc.Signal(syscall.SIGUSR1)     // that comes to us alone is handed on
	c.see("n=1", 1)
	c.exits(5)

	// A command that does not catch it ends, and so do we, with its status.
	c = b.console(80, "exec", "work", "--", "sh", "-c", "echo ready; exec sleep 60")
	c.see("ready", 1)
	c.typ(ctrlC)
	c.exits(130)
	b.run(0, "close", "work")
}

// Two Ctrl-C close a run at once.
func TestCtrlCTwice(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	c := b.console(80, "run", "--name", "job", "--", "sh", "-c", `trap 'echo int' INT; echo ready; while :; do sleep 0.05; done`)
	c.see("ready", 1)
	c.typ(ctrlC)
	c.see("int", 1)
	// The kernel makes one of two signals that come before the first was taken:
	// on a busy machine it may need a third.
	for end := time.Now().Add(patience); len(c.done) == 0 && time.Now().Before(end); {
		c.tty.WriteString(ctrlC)
		time.Sleep(500 * time.Millisecond)
	}
	c.exits(130)
	c.see("sessionbox: closed job: ", 1)
}

// Ctrl-Z stops the command and us; SIGCONT to the group, as a shell's fg sends
// it, lets both run on.
func TestCtrlZ(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	// The shell in the middle is the parent that makes stopping possible: a
	// group without one in its session is not stopped.
	script := b.g.env[0] + ` sessionbox exec work -- sh -c 'echo ready; read x; echo got $x'; echo code $?`
	b.run(0, "open", "--name", "work")
	cmd := b.command()
	cmd.Path, cmd.Args = "/bin/bash", []string{"bash", "--norc", "-ic", script + "; fg; echo code $?"}
	tty, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	c := &console{t: t, tty: tty, proc: cmd.Process}
	go io.Copy(&c.screen, tty)
	c.see("ready", 1)
	c.typ(ctrlZ)
	c.see("Stopped", 1)
	c.see("code 148", 1)
	c.typ("word\n")
	c.see("got word", 1)
	c.see("code 0", 1)
	cmd.Wait()
	tty.Close()
	b.run(0, "close", "work")
}

// Tables are cut to the width of the terminal, and whole for a program.
func TestWidth(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.run(0, "open", "--name", "work")
	b.run(0, "exec", "-d", "work", "--", "sh", "-c", "sleep 60 # "+strings.Repeat("x", 150))
	for _, cols := range []uint16{60, 80, 120} {
		c := b.console(cols, "ls")
		c.exits(0)
		c.see("…", 1)
		for line := range strings.Lines(c.String()) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); n > int(cols) {
				t.Errorf("%d columns on a terminal of %d: %s", n, cols, line)
			}
		}
	}
	out, _ := b.run(0, "ls")
	if !strings.Contains(string(out), strings.Repeat("x", 150)) {
		t.Errorf("cut though it is no terminal:\n%s", out)
	}
	b.run(0, "close", "work", "--now")
}
