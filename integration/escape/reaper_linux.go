package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// runReaper ends another process when its life is over. A stopped process cannot do
// that itself: its timers do not wake it. The reaper is in the box as well, so a
// close takes both.
func runReaper(p params) error {
	pid, err := strconv.Atoi(p.arg)
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("pidfd of %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if err := record(p); err != nil {
		return err
	}
	for time.Now().Before(p.until) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(min(time.Until(p.until), time.Minute)/time.Millisecond)+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if n > 0 {
			return nil
		}
	}
	return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
}

// watched starts a payload together with its reaper.
func watched(p params, h how) (*os.Process, error) {
	proc, err := payload(p, h)
	if err != nil {
		return nil, err
	}
	_, err = spawn("reaper", p.called("reaper").with(strconv.Itoa(proc.Pid)), session())
	return proc, err
}
