package cgroup

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Remove removes g with everything below it, deepest first. Only rmdir is used:
// a directory that holds a process stays, and the error is EBUSY. The kernel
// also says EBUSY for a short while after the last process went, so that is
// tried again until ctx is done. A group that is gone is success.
func (g *Group) Remove(ctx context.Context) error {
	parent, err := g.parent()
	if err != nil {
		if isGone(err) {
			return nil
		}
		return err
	}
	defer unix.Close(parent)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		err := g.removeOnce(parent)
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		if p, perr := g.Populated(); perr == nil && p {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

// RemoveEmpty removes g if nothing is in it, not even an empty directory.
func (g *Group) RemoveEmpty() error {
	parent, err := g.parent()
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	return g.rmdir(parent)
}

func (g *Group) removeOnce(parent int) error {
	names, err := g.Children()
	if err != nil && !isGone(err) {
		return err
	}
	for _, name := range names {
		c, err := g.Child(name)
		if isGone(err) {
			continue
		}
		if err != nil {
			return err
		}
		err = c.removeOnce(g.fd())
		c.Close()
		if err != nil {
			return err
		}
	}
	return g.rmdir(parent)
}

func (g *Group) rmdir(parent int) error {
	// The name may have been given to another group meanwhile.
	name := filepath.Base(g.path)
	var st unix.Stat_t
	err := unix.Fstatat(parent, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if isGone(err) || err == nil && st.Ino != g.ino {
		return nil
	}
	if err == nil {
		err = unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
	}
	if err != nil && !isGone(err) {
		return fmt.Errorf("rmdir %s: %w", g.path, err)
	}
	return nil
}

// parent opens the directory above, whatever it is called now.
func (g *Group) parent() (int, error) {
	fd, err := unix.Openat(g.fd(), "..", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open the directory above %s: %w", g.path, err)
	}
	return fd, nil
}
