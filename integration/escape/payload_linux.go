package main

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// tick is the time between two bytes in the counter file.
const tick = 50 * time.Millisecond

// runPayload is the process that must not outlive its session: it says who it is,
// ticks, and ends when its life is over.
func runPayload(p params) error {
	p.ignoreSignals()
	t, err := begin(p)
	if err != nil {
		return err
	}
	if p.become >= 0 {
		// After the files are open: the new user could not reach them. From here on
		// kill(2) by the old user gives EPERM and environ is unreadable to him.
		if err := syscall.Setresuid(p.become, p.become, p.become); err != nil {
			return fmt.Errorf("become uid %d: %w", p.become, err)
		}
	}
	t.untilDead(p)
	return nil
}

// ignoreSignals makes the process deaf as it was told.
func (p params) ignoreSignals() {
	for name := range strings.SplitSeq(p.ignore, ",") {
		if sig, ok := signalNamed(name); ok {
			signal.Ignore(sig)
		}
	}
}

// ticker appends to the counter file.
type ticker struct{ f *os.File }

// begin opens the counter and records the calling process in pids.
func begin(p params) (ticker, error) {
	f, err := os.OpenFile(p.path("counter"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return ticker{}, err
	}
	return ticker{f}, record(p)
}

// untilDead ticks for the rest of the life.
func (t ticker) untilDead(p params) {
	for time.Now().Before(p.until) {
		t.once(p)
		time.Sleep(tick)
	}
}

// once is a single tick. Errors are of no interest: a full disk or a removed
// directory must not end the process that the test wants to see ended by a close.
func (t ticker) once(p params) {
	_, _ = t.f.WriteString(".")
	if p.noisy {
		_, _ = os.Stderr.WriteString("tick\n")
	}
}

// signalNamed knows the signals that the techniques use.
func signalNamed(name string) (syscall.Signal, bool) {
	s, ok := map[string]syscall.Signal{
		"TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT,
	}[name]
	return s, ok
}
