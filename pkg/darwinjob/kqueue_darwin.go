package darwinjob

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Wait wakes up when one of the processes forks, execs or ends. A fork is told before
// the child can run (bsd/kern/kern_fork.c), not who the child is: the caller looks.
func (t *xnu) Wait(ctx context.Context, ids []ID, d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watch(ids)
	const slice = 100 * time.Millisecond // a cancelled context is noticed after this
	events := make([]unix.Kevent_t, 64)
	for end := time.Now().Add(d); ctx.Err() == nil; {
		left := time.Until(end)
		if left <= 0 {
			return
		}
		ts := unix.NsecToTimespec(int64(min(left, slice)))
		n, err := unix.Kevent(t.kq, nil, events, &ts)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		for _, e := range events[:max(n, 0)] {
			if e.Fflags&unix.NOTE_EXIT != 0 {
				delete(t.watched, int(e.Ident)) // the kernel has dropped the filter
			}
		}
		if n > 0 {
			return
		}
	}
}

// watch puts filters on processes that have none, and takes them off those that are not
// asked for. A filter is on a number; one that came to somebody else's only wakes us up.
func (t *xnu) watch(ids []ID) {
	want := map[int]uint64{}
	for _, id := range ids {
		want[id.PID] = id.Unique
		if have, ok := t.watched[id.PID]; ok && have == id.Unique {
			continue
		}
		if t.filter(id.PID, unix.EV_ADD|unix.EV_CLEAR, unix.NOTE_FORK|unix.NOTE_EXEC|unix.NOTE_EXIT) == nil {
			t.watched[id.PID] = id.Unique
		}
	}
	for pid := range t.watched {
		if _, ok := want[pid]; !ok {
			t.filter(pid, unix.EV_DELETE, 0) //nolint:errcheck // it is gone with its process
			delete(t.watched, pid)
		}
	}
}

func (t *xnu) filter(pid int, flags uint16, notes uint32) error {
	var e unix.Kevent_t
	unix.SetKevent(&e, pid, unix.EVFILT_PROC, int(flags))
	e.Fflags = notes
	_, err := unix.Kevent(t.kq, []unix.Kevent_t{e}, nil, nil)
	return err
}

// Exit waits for the end of a process, our child or not, without reaping it, and gives
// its status, and whether the kernel killed it for memory (NOTE_EXIT_MEMORY).
func (t *xnu) Exit(ctx context.Context, id ID) (ws syscall.WaitStatus, memory bool, err error) {
	kq, err := unix.Kqueue()
	if err != nil {
		return 0, false, os.NewSyscallError("kqueue", err)
	}
	defer unix.Close(kq)
	var e unix.Kevent_t
	unix.SetKevent(&e, id.PID, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	e.Fflags = unix.NOTE_EXIT | unix.NOTE_EXITSTATUS | unix.NOTE_EXIT_DETAIL
	if _, err := unix.Kevent(kq, []unix.Kevent_t{e}, nil, nil); err != nil {
		return 0, false, fmt.Errorf("watch %s: %w", id, err)
	}
	if err := t.still(id); err != nil { // with the filter on, so that its end cannot be missed
		return 0, false, err
	}
	events := make([]unix.Kevent_t, 1)
	for ctx.Err() == nil {
		ts := unix.NsecToTimespec(int64(100 * time.Millisecond))
		n, err := unix.Kevent(kq, nil, events, &ts)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return 0, false, os.NewSyscallError("kevent", err)
		}
		if n > 0 {
			return syscall.WaitStatus(events[0].Data), events[0].Fflags&unix.NOTE_EXIT_MEMORY != 0, nil
		}
	}
	return 0, false, fmt.Errorf("wait for %s: %w", id, ctx.Err())
}
