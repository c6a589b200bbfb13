package supervise

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"time"
)

// What comes before the command runs is not lost, and ends what is waited for.
func TestEarlySignals(t *testing.T) {
	s := Begin()
	defer s.End()
	early, cancel := s.UntilSignal(t.Context())
	defer cancel()
	send(t, syscall.SIGUSR1)
	send(t, syscall.SIGTERM)
	select {
	case <-early.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("SIGTERM did not end it")
	}
	if got := s.Caught(); got != syscall.SIGTERM {
		t.Errorf("Caught() = %v; want SIGTERM", got)
	}
	late, cancel := s.UntilSignal(t.Context())
	defer cancel()
	if late.Err() == nil {
		t.Error("a context made after the signal lives")
	}
	got := make(chan syscall.Signal, 10)
	s.Forward(func(sig syscall.Signal) { got <- sig })
	send(t, syscall.SIGUSR2)
	seen := []syscall.Signal{<-got, <-got, <-got}
	slices.Sort(seen)
	if want := []syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTERM}; !slices.Equal(seen, want) {
		t.Errorf("forwarded %v; want %v", seen, want)
	}
}

func send(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(os.Getpid(), sig); err != nil {
		t.Fatal(err)
	}
}

// Signals that a process gets about itself, or that cannot be caught without
// harm, are not taken in either case; those of job control only without a
// terminal.
func TestCaught(t *testing.T) {
	for _, shared := range []bool{true, false} {
		list := caught(shared)
		for _, sig := range []os.Signal{syscall.SIGCHLD, syscall.SIGPIPE, syscall.SIGURG, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGSEGV, syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGPROF} {
			if slices.Contains(list, sig) {
				t.Errorf("shared %v: %v is caught", shared, sig)
			}
		}
		for _, sig := range []os.Signal{syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGWINCH} {
			if slices.Contains(list, sig) == shared {
				t.Errorf("shared %v: %v", shared, sig)
			}
		}
	}
}

func TestFromTerminal(t *testing.T) {
	front, behind := &Supervisor{shared: true}, &Supervisor{}
	if !front.FromTerminal(syscall.SIGINT) || !front.FromTerminal(syscall.SIGQUIT) || front.FromTerminal(syscall.SIGTERM) || behind.FromTerminal(syscall.SIGINT) {
		t.Error("SIGINT and SIGQUIT come from the terminal, in front of one")
	}
	if front.Attr().Setpgid || !behind.Attr().Setpgid {
		t.Error("the command shares our group in front of a terminal, and only there")
	}
}
