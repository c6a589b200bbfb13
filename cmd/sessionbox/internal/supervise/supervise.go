package supervise

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Supervisor catches the signals of one supervised command.
type Supervisor struct {
	shared bool
	c      chan os.Signal
	done   chan struct{}

	mu      sync.Mutex
	forward func(syscall.Signal)
	first   syscall.Signal // caught before anybody took them
	waiting []syscall.Signal
	cancel  context.CancelFunc
}

// Begin starts to catch signals: before the command is started, so that none is
// lost between.
func Begin() *Supervisor {
	s := &Supervisor{shared: foreground(), c: make(chan os.Signal, 64), done: make(chan struct{})}
	signal.Notify(s.c, caught(s.shared)...)
	go s.loop()
	return s
}

// Shared says that the command is in our process group, which is in front of a
// terminal.
func (s *Supervisor) Shared() bool { return s.shared }

// Attr is how the command is to be started.
func (s *Supervisor) Attr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: !s.shared}
}

// UntilSignal gives a context that ends with the first signal that asks us to
// stop: for what is done before the command runs.
func (s *Supervisor) UntilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel = cancel
	if s.first != 0 {
		cancel()
	}
	return ctx, cancel
}

// Caught is the first signal that asked us to stop before [Supervisor.Forward],
// 0 if none did.
func (s *Supervisor) Caught() syscall.Signal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first
}

// Forward gives each signal from now on to fn, one at a time, beginning with
// those that came before. Which of them the command has already got,
// [Supervisor.FromTerminal] tells.
func (s *Supervisor) Forward(fn func(syscall.Signal)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forward = fn
	for _, sig := range s.waiting {
		fn(sig)
	}
	s.waiting = nil
}

// FromTerminal says that a signal is one that the terminal has given to the
// command as well: it must not be handed on.
func (s *Supervisor) FromTerminal(sig syscall.Signal) bool {
	return s.shared && (sig == unix.SIGINT || sig == unix.SIGQUIT)
}

// End gives signals back their usual effect. A program that is about to end need
// not: it costs as much as Begin.
func (s *Supervisor) End() {
	signal.Stop(s.c)
	close(s.done)
}

func (s *Supervisor) loop() {
	for {
		select {
		case <-s.done:
			return
		case sig := <-s.c:
			s.take(sig.(syscall.Signal))
		}
	}
}

func (s *Supervisor) take(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forward != nil {
		s.forward(sig)
		return
	}
	s.waiting = append(s.waiting, sig)
	switch sig {
	case unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT:
		if s.first == 0 {
			s.first = sig
		}
		if s.cancel != nil {
			s.cancel()
		}
	}
}

// caught are the signals that we take. What our starter had us ignore (nohup, or
// a shell for a job in the background) stays ignored, by the command too.
func caught(shared bool) []os.Signal {
	return slices.DeleteFunc(wanted(shared), signal.Ignored)
}

func wanted(shared bool) []os.Signal {
	list := []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM}
	if !shared {
		list = append(list, unix.SIGTSTP, unix.SIGCONT, unix.SIGWINCH)
	}
	return list
}

// foreground says whether our process group is the one in front of our
// controlling terminal.
func foreground() bool {
	fd, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	pgrp, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && pgrp == unix.Getpgrp()
}
