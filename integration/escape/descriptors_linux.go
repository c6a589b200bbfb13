package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// descriptors are those that hold on to something: a pipe that somebody waits on, a
// lock, a port, a directory.
func descriptors() []technique {
	return []technique{
		{ID: "E21", Description: "holds stdout and stderr, silent", Payloads: 1, SeenBy: "EC",
			RootExits: true, Expect: dies, run: func(p params) error { return leave(p, how{attr: syscall.SysProcAttr{Setsid: true}}) }},
		{ID: "E21b", Description: "holds stderr only", Payloads: 1, SeenBy: "EC",
			RootExits: true, Expect: dies, run: stderrOnly},
		{ID: "E21c", Description: "holds stderr and goes on writing to it", Payloads: 1, SeenBy: "GSEC",
			RootExits: true, Expect: dies, run: func(p params) error { p.noisy = true; return leave(p, how{}) }},
		{ID: "E23", Description: "inherited flock: the next run cannot lock", Payloads: 1, SeenBy: "EC",
			RootExits: true, Expect: dies, run: holdLock},
		{ID: "E23b", Description: "inherited listening socket: the port is taken", Payloads: 1, SeenBy: "EC",
			RootExits: true, Expect: dies, run: holdPort},
		{ID: "E23c", Description: "working directory is a deleted one", Payloads: 1, SeenBy: "EC",
			RootExits: true, Expect: dies, run: deletedDirectory},
	}
}

// stderrOnly reopens descriptors 0 and 1 in the payload by handing it a null device
// there, and this process's stderr.
func stderrOnly(p params) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	for fd := range 2 {
		if err := unix.Dup3(int(null.Fd()), fd, 0); err != nil {
			return fmt.Errorf("dup3 to %d: %w", fd, err)
		}
	}
	return leave(p, how{attr: syscall.SysProcAttr{Setsid: true}})
}

// holdLock takes DIR/lock and passes the open file on.
func holdLock(p params) error {
	f, err := lock(p)
	if err != nil {
		return err
	}
	h := session()
	h.files = []*os.File{f}
	return leave(p, h)
}

// lock takes DIR/lock without waiting.
func lock(p params) (*os.File, error) {
	f, err := os.OpenFile(p.path("lock"), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return f, nil
}

// runTakeLock is the next run: it fails while somebody holds the lock.
func runTakeLock(p params) error {
	f, err := lock(p)
	if err != nil {
		return err
	}
	return f.Close()
}

// holdPort listens on a free port of the loopback address, writes its address to
// DIR/addr and passes the socket on.
func holdPort(p params) error {
	f, err := listen(p)
	if err != nil {
		return err
	}
	h := session()
	h.files = []*os.File{f}
	return leave(p, h)
}

// listen opens the socket and names it in DIR/addr.
func listen(p params) (*os.File, error) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	f, err := l.File()
	if err != nil {
		return nil, err
	}
	return f, os.WriteFile(p.path("addr"), []byte(l.Addr().String()), 0o644)
}

// deletedDirectory is the worktree that was removed under a running test.
func deletedDirectory(p params) error {
	wt := p.path("worktree-" + strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(wt, 0o755); err != nil {
		return err
	}
	h := session()
	h.cwd = wt
	err := leave(p, h)
	return errors.Join(err, os.Remove(wt))
}
