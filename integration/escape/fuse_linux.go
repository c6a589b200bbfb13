package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// The two requests of the FUSE protocol that the holder has to know, and the sizes of
// its headers.
const (
	fuseInit      = 26
	fuseInHeader  = 40
	fuseOutHeader = 16
	fuseInitReply = 64
)

// runFuse is a file system that says hello and then never answers. Whoever asks it
// for a file sleeps in D, and from the moment the request was read no signal ends
// that sleep: only the end of this process does, which aborts the connection.
//
// The mount is in a mount namespace of its own, so nothing stays mounted when this
// process is gone, however it went. The path to use from outside is written to
// DIR/fuse-path.
func runFuse(p params) error {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("new mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/fuse: %w", err)
	}
	at := p.path("fuse")
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	opts := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)
	if err := unix.Mount("sbx", at, "fuse", unix.MS_NOSUID|unix.MS_NODEV, opts); err != nil {
		return fmt.Errorf("mount fuse on %s: %w", at, err)
	}
	go func() {
		time.Sleep(time.Until(p.until))
		os.Exit(0)
	}()
	// The thread's own root: /proc/PID/root is the view of the leader, which main is
	// locked to.
	path := "/proc/" + strconv.Itoa(os.Getpid()) + "/root" + at + "/stuck"
	if err := greet(fd); err != nil {
		return err
	}
	if err := os.WriteFile(p.path("fuse-path"), []byte(path), 0o644); err != nil {
		return err
	}
	if err := record(p); err != nil {
		return err
	}
	buf := make([]byte, 1<<17)
	for {
		if _, err := unix.Read(fd, buf); err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("read fuse request: %w", err)
		}
	}
}

// greet answers the INIT request, without which nobody's request is sent.
func greet(fd int) error {
	buf := make([]byte, 1<<17)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return fmt.Errorf("read fuse init: %w", err)
	}
	le := binary.NativeEndian
	if n < fuseInHeader || le.Uint32(buf[4:]) != fuseInit {
		return fmt.Errorf("first fuse request has %d bytes, opcode %d", n, le.Uint32(buf[4:]))
	}
	out := make([]byte, fuseOutHeader+fuseInitReply)
	le.PutUint32(out[0:], uint32(len(out)))
	copy(out[8:16], buf[8:16]) // unique
	le.PutUint32(out[16:], 7)  // protocol 7.31
	le.PutUint32(out[20:], 31)
	le.PutUint32(out[36:], 1<<16) // max_write
	_, err = unix.Write(fd, out)
	return err
}

// runStuck asks the silent file system for a file in one thread and ticks in others.
// The thread sleeps in S until a signal comes, and in D from then on: it looks
// harmless before somebody tries to end it.
func runStuck(p params) error {
	answered := make(chan error, 1)
	go func() {
		_, err := os.Stat(p.arg)
		answered <- err
	}()
	// The request must have been read before the process counts as there: one that is
	// still queued is withdrawn by a SIGKILL.
	select {
	case err := <-answered:
		return fmt.Errorf("%s was answered: %w", p.arg, err)
	case <-time.After(time.Second):
	}
	return runPayload(p)
}
