package proc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Handle is a process that cannot be mistaken: a pidfd.
type Handle struct {
	fd int
	id ID
}

// Open returns a handle on exactly the process id names. ErrGone: it has ended
// or ran in another boot. ErrReused: its pid belongs to somebody else now.
func Open(id ID) (*Handle, error) {
	if err := CheckPID(id.PID); err != nil {
		return nil, err
	}
	if err := OwnNamespace(); err != nil {
		return nil, err
	}
	boot, err := BootID()
	if err != nil {
		return nil, err
	}
	if id.Boot != "" && id.Boot != boot {
		return nil, fmt.Errorf("pid %d of another boot: %w", id.PID, ErrGone)
	}
	if err := sameNamespace(id); err != nil {
		return nil, err
	}
	h, err := OpenPID(id.PID)
	if err != nil {
		return nil, err
	}
	// The pidfd is held before the start time is read: if both agree, the
	// pidfd is of that process, as its pid cannot be free while it lives.
	s, err := ReadStat(id.PID)
	switch {
	case err != nil:
		h.Close()
		return nil, err
	case s.Start != id.Start:
		h.Close()
		return nil, fmt.Errorf("pid %d started at tick %d, not %d: %w", id.PID, s.Start, id.Start, ErrReused)
	}
	h.id = ID{PID: id.PID, Start: id.Start, Boot: boot, NS: id.NS}
	return h, nil
}

// OpenPID returns a handle on whoever has the pid now. The caller must prove
// afterwards that it is the one meant, before it signals.
func OpenPID(pid int) (*Handle, error) {
	if err := CheckPID(pid); err != nil {
		return nil, err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil, fmt.Errorf("pid %d: %w", pid, ErrGone)
	}
	if err != nil {
		return nil, fmt.Errorf("pidfd_open %d: %w", pid, err)
	}
	return &Handle{fd: fd, id: ID{PID: pid}}, nil
}

// PID is the process's number.
func (h *Handle) PID() int { return h.id.PID }

// FD is the pidfd; it becomes readable when the process ends.
func (h *Handle) FD() int { return h.fd }

// Signal sends sig; ErrGone when the process has ended.
func (h *Handle) Signal(sig unix.Signal) error {
	err := unix.PidfdSendSignal(h.fd, sig, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("pid %d: %w", h.id.PID, ErrGone)
	}
	if err != nil {
		return fmt.Errorf("signal %s to pid %d: %w", unix.SignalName(sig), h.id.PID, err)
	}
	return nil
}

// Wait returns when the process has ended (it may still be a zombie that its
// parent has not reaped) or ctx is done.
func (h *Handle) Wait(ctx context.Context) error {
	for {
		fds := []unix.PollFd{{Fd: int32(h.fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, pollSlice(ctx))
		if n > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("poll pidfd of %d: %w", h.id.PID, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// Ended says whether the process has ended; a zombie has.
func (h *Handle) Ended() bool {
	ended, err := ended(h.fd)
	return err == nil && ended
}

// ended looks whether a pidfd is readable. A signal to us, as Go's runtime sends them
// to itself, ends even a poll that does not wait with EINTR.
func ended(fd int) (bool, error) {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		if !errors.Is(err, unix.EINTR) {
			return n > 0, err
		}
	}
}

// pollSlice bounds one poll so that a cancelled context is noticed; the event
// itself ends the poll at once.
func pollSlice(ctx context.Context) int {
	const slice = 100 * time.Millisecond
	if d, ok := ctx.Deadline(); ok {
		return int(max(0, min(slice, time.Until(d)+time.Millisecond)) / time.Millisecond)
	}
	return int(slice / time.Millisecond)
}

// Close releases the handle; nil is none.
func (h *Handle) Close() error {
	if h == nil || h.fd < 0 {
		return nil
	}
	fd := h.fd
	h.fd = -1
	return unix.Close(fd)
}

// running says whether the process id names still runs; a zombie does not.
func running(id ID) (bool, error) {
	h, err := Open(id)
	if err != nil {
		return false, err
	}
	defer h.Close()
	over, err := ended(h.fd)
	return !over, err
}
