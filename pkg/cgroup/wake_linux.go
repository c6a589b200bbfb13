package cgroup

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// Wake is a file of the kernel's that wakes who waits for it in an epoll, as a reason
// to take a sample now. It never is a verdict. Go's own poller does not report
// EPOLLPRI, so it has to be an epoll of the caller's.
type Wake struct {
	file held
	buf  [512]byte

	trigger bool              // of pressure
	armed   memlimit.Pressure // as it was when the trigger was made
	fired   bool              // with cause
}

// ErrNoPressure says that the kernel counts no pressure, or lets nobody ask to be woken for it.
var ErrNoPressure = errors.New("no pressure triggers here")

// WakeOnEvents wakes when a counter of the group's memory.events changes, also for
// something below it. The kernel tells at most one change per 10 ms.
func (g *Group) WakeOnEvents() (*Wake, error) { return g.wakeOn("memory.events") }

func (g *Group) wakeOn(file string) (*Wake, error) {
	h, err := hold(g.fd(), file, unix.O_RDONLY|unix.O_NOFOLLOW)
	if err == nil && !h.here() {
		err = ErrNoMemory
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", g.path, err)
	}
	w := &Wake{file: h}
	if _, err := w.file.read(w.buf[:]); err != nil { // arms it
		w.Close()
		return nil, g.fail("read", file, err)
	}
	return w, nil
}

// WakeOnHostPressure wakes when processes of the machine have stalled for want of memory,
// for memlimit.TriggerStall within memlimit.TriggerWindow: that is allowed without
// privileges, too. Path is "/proc/pressure/memory". The error is ErrNoPressure where it
// cannot be had.
func WakeOnHostPressure(path string) (*Wake, error) {
	h, err := hold(unix.AT_FDCWD, path, unix.O_RDWR|unix.O_NONBLOCK)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), err == nil && !h.here():
		return nil, fmt.Errorf("%s: %w", path, errors.Join(ErrNoPressure, err))
	case err != nil:
		return nil, err
	}
	w := &Wake{file: h, trigger: true}
	text, err := memlimit.Trigger(memlimit.TriggerStall, memlimit.TriggerWindow)
	if err == nil {
		// The raw call: with its NUL, in one piece, and never parked on EAGAIN.
		for {
			if _, err = unix.Write(h.fd, text); !errors.Is(err, unix.EINTR) {
				break
			}
		}
	}
	if err == nil {
		w.armed, err = w.stalled()
	}
	if err != nil {
		w.Close()
		// EINVAL: another window is wanted; EPERM: before 6.4 without CAP_SYS_RESOURCE;
		// EOPNOTSUPP: psi=0.
		return nil, fmt.Errorf("arm %s: %w", path, errors.Join(ErrNoPressure, &os.PathError{Op: "write", Path: path, Err: err}))
	}
	return w, nil
}

func (w *Wake) stalled() (memlimit.Pressure, error) {
	b, err := w.file.read(w.buf[:])
	if err != nil {
		return memlimit.Pressure{}, err
	}
	return memlimit.ParsePressure(b)
}

// FD is what to add to an epoll, for Mask.
func (w *Wake) FD() int { return w.file.fd }

// Mask is what to wait for.
func (w *Wake) Mask() uint32 { return unix.EPOLLPRI }

// Woke is to be called with what epoll has reported, and rearms. It says whether that
// is a reason to take a sample: a pressure trigger fires once for the first stall of
// any length, which is none. The error is ErrGone when there is nothing to wait for
// any more.
func (w *Wake) Woke(events uint32) (cause bool, err error) {
	if !w.trigger {
		// kernfs signals EPOLLERR with every change, so only reading can tell.
		if _, err := w.file.read(w.buf[:]); err != nil {
			return false, goneOr(err)
		}
		return true, nil
	}
	if events&unix.EPOLLERR != 0 { // the cgroup was removed
		return false, ErrGone
	}
	if !w.fired {
		now, err := w.stalled()
		if err != nil {
			return false, goneOr(err)
		}
		w.fired = now.Fired(w.armed, memlimit.TriggerStall)
	}
	return w.fired, nil
}

func goneOr(err error) error {
	if isGone(err) {
		return ErrGone
	}
	return err
}

// Close releases the file, and with it the trigger. Who has it in an epoll takes it
// out before.
func (w *Wake) Close() error {
	w.file.close()
	return nil
}
