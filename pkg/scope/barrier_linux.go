package scope

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// barrierTime bounds waiting for the manager: it is as busy as it is.
const barrierTime = 5 * time.Second

// barrier returns when the manager that started us has done all that it was at when it
// did: it reads what its services tell it after that, and closes the descriptor that
// comes with BARRIER=1 (sd_notify(3), systemd 246). Where nobody wants to be told there
// is nothing to wait for.
func barrier() error {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	defer unix.Close(pipe[0])
	err := tell(socket, "BARRIER=1", pipe[1])
	unix.Close(pipe[1])
	if err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	fds := []unix.PollFd{{Fd: int32(pipe[0])}} // its other end being closed is always told
	end := time.Now().Add(barrierTime)
	for {
		n, err := unix.Poll(fds, int(max(0, time.Until(end)).Milliseconds()))
		switch {
		case n > 0:
			return nil
		case err == nil:
			return fmt.Errorf("barrier: %w", unix.ETIMEDOUT)
		case !errors.Is(err, unix.EINTR):
			return fmt.Errorf("barrier: %w", err)
		}
	}
}

// tell sends a message with a descriptor to the manager.
func tell(socket, text string, fd int) error {
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	return unix.Sendmsg(s, []byte(text), unix.UnixRights(fd), &unix.SockaddrUnix{Name: socket}, 0)
}
