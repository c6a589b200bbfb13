package cgroup

import (
	"bytes"
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// Populated says whether g or anything below it holds a live process. Zombies
// do not count. A group that was removed is empty.
func (g *Group) Populated() (bool, error) {
	b, err := g.read("cgroup.events")
	if isGone(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	v, _ := flatKey(b, "populated")
	return v != 0, nil
}

// WaitEmpty returns nil when the kernel says that nothing is left in g, or the
// error of ctx.
func (g *Group) WaitEmpty(ctx context.Context) error {
	return g.await(ctx, "populated", 0)
}

// await sleeps until the key of cgroup.events has the value. The kernel signals
// changes as POLLPRI, at most one per 10 ms and file, so a poll is cut off after
// a while and the file read again.
func (g *Group) await(ctx context.Context, key string, want uint64) error {
	fd, err := g.openFile("cgroup.events", unix.O_RDONLY)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	buf := make([]byte, 256)
	for {
		n, err := unix.Pread(fd, buf, 0)
		if isGone(err) {
			return nil // removed, hence empty and thawed
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return g.fail("read", "cgroup.events", err)
		}
		if v, ok := flatKey(buf[:max(n, 0)], key); ok && v == want {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		slice := 100 * time.Millisecond
		if d, ok := ctx.Deadline(); ok {
			slice = max(time.Millisecond, min(slice, time.Until(d)))
		}
		_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}}, int(slice/time.Millisecond))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return g.fail("poll", "cgroup.events", err)
		}
	}
}

// Freeze stops every process of g and returns when the kernel says so. What is
// started in a frozen group is born frozen.
func (g *Group) Freeze(ctx context.Context) error {
	if err := g.write("cgroup.freeze", "1"); err != nil {
		return err
	}
	return g.await(ctx, "frozen", 1)
}

// Thaw lets them run again. It does not wait: an ancestor may be frozen still.
func (g *Group) Thaw() error { return g.write("cgroup.freeze", "0") }

// Frozen says whether g was frozen, by us or through an ancestor. It counts as frozen
// also while a process in a vfork or in D state keeps it from standing still: what is
// started in it would not run.
func (g *Group) Frozen() (bool, error) {
	b, err := g.read("cgroup.events")
	if isGone(err) {
		return false, nil
	}
	if v, _ := flatKey(b, "frozen"); v != 0 || err != nil {
		return v != 0, err
	}
	if b, err = g.read("cgroup.freeze"); isGone(err) {
		return false, nil
	}
	return string(bytes.TrimSpace(b)) == "1", err
}
