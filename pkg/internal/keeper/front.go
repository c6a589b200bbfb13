package keeper

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"golang.org/x/sys/unix"
)

// Main is front or keeper; args are what follows [Arg]. It gives the exit code.
func Main(args []string, h Hooks) int {
	want := []int{4}
	if len(args) > 0 {
		switch args[0] {
		case roleWatcher, roleStub:
			want = []int{5}
		case roleFront:
			want = []int{4, 5}
		}
	}
	if !slices.Contains(want, len(args)) {
		fmt.Fprintf(os.Stderr, "sessionbox: keeper: want ROLE SESSION LEAF N [STARTER|PLACE], got %q\n", args)
		return 125
	}
	n, err := strconv.Atoi(args[3])
	if err != nil || n < 3 {
		return 125
	}
	switch args[0] {
	case roleFront:
		return front(args, n, h)
	case roleKeeper:
		return keep(n, h)
	case roleWatch:
		return detachWatcher(args)
	case roleWatcher:
		return watcher(args)
	case roleStub:
		return stub(args)
	}
	return 125
}

// passed are the signals that a front hands on: who waits for the command knows the front's
// number only.
var passed = []os.Signal{unix.SIGTERM, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGWINCH, unix.SIGCONT}

// front starts the keeper and ends when the command has ended.
func front(args []string, n int, h Hooks) int {
	// Caught, not ignored: what is ignored would be so in the command, too; what our
	// starter had us ignore stays ignored.
	sigs := make(chan os.Signal, 64)
	signal.Notify(sigs, slices.DeleteFunc(slices.Clone(passed), signal.Ignored)...)
	_, noReaper := darwinjob.BecomeReaper()

	files := inherited(n + fdTie)
	answer, tie := files[n+fdAnswer-3], files[n+fdTie-3]
	fail := func(err error) int {
		say(answer, word{Text: err.Error()})
		return 125
	}
	self, err := os.Executable()
	if err != nil {
		return fail(err)
	}
	fromKeeper, toFront, err := os.Pipe()
	if err != nil {
		return fail(err)
	}
	f := &fronting{h: h, answer: answer, tie: tie}
	argv := []string{Arg, roleKeeper, args[1], args[2], args[3]}
	var terminal *relay
	if inJob := len(args) > 4; inJob {
		if terminal, err = hire(args[4], argv, files, toFront); err != nil {
			return fail(err)
		}
		defer terminal.end()
		noReaper = errors.ErrUnsupported // it is no child of ours
	} else {
		cmd := exec.Command(self, argv...)
		cmd.Args[0] = "sessionbox"
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.ExtraFiles = append(slices.Clone(files), toFront)
		if err := cmd.Start(); err != nil {
			return fail(err)
		}
		f.keeper, f.shared = cmd.Process.Pid, sharesTerminal()
	}
	toFront.Close()
	release(files, answer, tie)

	words := make(chan word)
	go func() {
		defer close(words)
		for in := bufio.NewReader(fromKeeper); ; {
			w, err := hear(in)
			if err != nil {
				return
			}
			words <- w
		}
	}()
	var enough <-chan time.Time
	code, ended := 0, false
	for {
		select {
		case sig := <-sigs:
			if terminal != nil && sig == unix.SIGWINCH {
				terminal.resize()
				continue
			}
			f.pass(sig.(syscall.Signal))
		case <-enough:
			return code
		case w, ok := <-words:
			switch {
			case !ok && ended:
				f.reap() // a zombie would stay of it where pid 1 collects none
				return code
			case !ok:
				// It has ended, and what it had started is ours now.
				return f.succeed(noReaper == nil, sigs)
			case w.Left:
				return code // it stays for what is left
			}
			if c, done := f.told(w); done && !ended {
				code, ended, enough = c, true, time.After(keeperTime)
			}
		}
	}
}

// keeperTime is how long a front waits for its keeper to end, or to say that it stays.
const keeperTime = time.Second

// fronting is a front at work.
type fronting struct {
	h           Hooks
	keeper      int // 0 if it is the stub's child
	answer, tie *os.File
	shared      bool // the terminal signals the command itself
	command     darwinjob.ID
	early       []syscall.Signal // that came before we were told who the command is
	order       *Order
}

// reap collects a keeper that has ended.
func (f *fronting) reap() {
	if f.keeper != 0 {
		_, _ = unix.Wait4(f.keeper, nil, 0, nil)
	}
}

func (f *fronting) told(w word) (code int, done bool) {
	switch {
	case w.Status != nil:
		return codeOf(*w.Status), true
	case w.Errno != 0 || w.Text != "":
		return 125, true
	case w.PID != 0:
		f.command, f.order = darwinjob.ID{PID: w.PID, Start: w.Start}, w.Order
		for _, sig := range f.early {
			f.pass(sig)
		}
		f.early = nil
	case w.Freed && f.order != nil:
		f.order.Tied = false
	}
	return 0, false
}

// pass hands a signal to the command, if it is still who it was.
func (f *fronting) pass(sig syscall.Signal) {
	if f.command.PID == 0 {
		f.early = append(f.early, sig)
		return
	}
	if f.shared && (sig == unix.SIGINT || sig == unix.SIGQUIT || sig == unix.SIGWINCH || sig == unix.SIGCONT) {
		return
	}
	if t, err := darwinjob.System(); err == nil {
		if p, err := t.Lookup(f.command.PID); err == nil && (f.command.Start == 0 || p.Start == f.command.Start) {
			_ = t.Signal(p.ID, sig) // it may have ended
		}
	}
}

// succeed goes on for a keeper that was killed, until the command has ended.
func (f *fronting) succeed(reaper bool, sigs <-chan os.Signal) int {
	f.reap()
	if f.order == nil {
		return 125
	}
	if !reaper {
		return f.outlast()
	}
	go func() {
		for sig := range sigs {
			f.pass(sig.(syscall.Signal))
		}
	}()
	k := &keeping{o: *f.order, h: f.h, answer: f.answer, tie: f.tie, command: f.command.PID, ended: make(chan syscall.WaitStatus, 1)}
	if err := k.resume(); err != nil {
		return 125
	}
	go k.run()
	return codeOf(<-k.ended)
}

// outlast waits for a command that is not our child, where the system tells of its end all
// the same (macOS, by kqueue).
func (f *fronting) outlast() int {
	t, err := darwinjob.System()
	if err != nil {
		return 125
	}
	watcher, ok := t.(interface {
		Exit(ctx context.Context, id darwinjob.ID) (syscall.WaitStatus, bool, error)
	})
	p, err := t.Lookup(f.command.PID)
	if !ok || err != nil || p.Start != f.command.Start {
		return 125
	}
	ws, _, err := watcher.Exit(context.Background(), p.ID)
	if err != nil {
		return 125
	}
	say(f.answer, word{Status: &ws})
	return codeOf(ws)
}

// codeOf is the exit code that stands for an end.
func codeOf(ws syscall.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

// sharesTerminal says whether our process group, which the command is in, is one that a
// terminal signals.
func sharesTerminal() bool {
	fd, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return unix.Getpgrp() != os.Getpid()
}

// inherited are the descriptors from 3 to last, which our starter gave us. None of them is
// to be passed on by mistake.
func inherited(last int) []*os.File {
	var files []*os.File
	for fd := 3; fd <= last; fd++ {
		unix.CloseOnExec(fd)
		files = append(files, os.NewFile(uintptr(fd), "inherited"))
	}
	return files
}

// release lets go of all that was only passed on: a pipe that we held would not end for its
// reader as long as we live, a directory that we were in could not be unmounted.
func release(files []*os.File, keep ...*os.File) {
	for _, f := range files {
		if !slices.Contains(keep, f) {
			f.Close()
		}
	}
	closeRest()
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	for fd := range 3 {
		_ = dup(null, fd)
	}
	unix.Close(null)
	_ = os.Chdir("/")
}

// closeRest closes what our starter's starters had left open for everybody: a lock in a shell's
// descriptor would be held as long as we live. What Go and we have opened closes on exec.
func closeRest() {
	dir := "/dev/fd"
	if runtime.GOOS == "linux" { // where a container may lack the link
		dir = "/proc/self/fd"
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < 3 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
}
