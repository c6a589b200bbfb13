package cgroup

import (
	"context"
	"errors"
	"slices"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"golang.org/x/sys/unix"
)

// Signal sends sig to every process of g and below, once, and says to how many
// it was sent. Processes it may not signal are passed over and joined into the
// error; those that ended meanwhile are neither.
func (g *Group) Signal(sig unix.Signal) (int, error) {
	return g.SignalExcept(sig, nil)
}

// SignalExcept is Signal without the directories skip says yes to (and those
// below them); rel is as in [Group.Walk].
func (g *Group) SignalExcept(sig unix.Signal, skip func(rel string) bool) (int, error) {
	total := 0
	var failed error
	err := g.Walk(func(rel string, d *Group) error {
		if skip != nil && skip(rel) {
			return nil
		}
		n, err := d.signalOwn(sig)
		total += n
		failed = errors.Join(failed, err)
		return nil
	})
	return total, errors.Join(err, failed)
}

// batch bounds the descriptors held at once.
const batch = 200

// signalOwn signals the processes directly in g. A listed pid may be dead and
// given to a stranger by the time its pidfd is opened. So the list is read
// again while the pidfds are held: who is in both lists and can be signalled
// lived all the while, hence its pid was its own, hence it is a member.
func (g *Group) signalOwn(sig unix.Signal) (int, error) {
	pids, err := g.Procs()
	if err != nil {
		return 0, err
	}
	sent := 0
	var failed error
	for chunk := range slices.Chunk(pids, batch) {
		n, err := g.signalChunk(chunk, sig)
		sent += n
		failed = errors.Join(failed, err)
	}
	return sent, failed
}

func (g *Group) signalChunk(pids []int, sig unix.Signal) (int, error) {
	handles := make([]*proc.Handle, 0, len(pids))
	defer func() {
		for _, h := range handles {
			h.Close()
		}
	}()
	var failed error
	for _, pid := range pids {
		h, err := proc.OpenPID(pid)
		switch {
		case err == nil:
			handles = append(handles, h)
		case !errors.Is(err, proc.ErrGone):
			failed = errors.Join(failed, err)
		}
	}
	members, err := g.Procs()
	if err != nil {
		return 0, errors.Join(failed, err)
	}
	sent := 0
	for _, h := range handles {
		if _, in := slices.BinarySearch(members, h.PID()); !in {
			continue
		}
		switch err := h.Signal(sig); {
		case err == nil:
			sent++
		case !errors.Is(err, proc.ErrGone):
			failed = errors.Join(failed, err)
		}
	}
	return sent, failed
}

// KillMember ends one process directly in g and waits until it is gone. It is seen to be
// in g while a pidfd keeps its number from being another's.
func (g *Group) KillMember(ctx context.Context, pid int) error {
	h, err := proc.OpenPID(pid)
	if errors.Is(err, proc.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.Close()
	pids, err := g.Procs()
	if err != nil || !slices.Contains(pids, pid) {
		return err
	}
	if err := h.Signal(unix.SIGKILL); err != nil {
		if errors.Is(err, proc.ErrGone) {
			return nil
		}
		return err
	}
	return h.Wait(ctx)
}
