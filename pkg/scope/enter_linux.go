package scope

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"golang.org/x/sys/unix"
)

// Prepare makes a leaf, when missing, and gives its inode.
func (b *Box) Prepare(ctx context.Context, leaf string) (ino uint64, err error) {
	err = b.in(ctx, leaf, func(g *cgroup.Group, _ string) error {
		ino = g.Inode()
		return nil
	})
	return ino, err
}

// Start starts cmd in a leaf, made when missing; none of its instructions runs
// outside. The anchor unit is made again when it was collected. From where the
// kernel lets nobody but root put a process into the box (a login session) the
// manager is asked to, while a stub holds the place of the command.
//
// Errors are those of [exec.Cmd.Start] where the command is to blame, ErrAttach
// where the manager did not move it.
func (b *Box) Start(ctx context.Context, leaf string, cmd *exec.Cmd) error {
	return b.in(ctx, leaf, func(g *cgroup.Group, anchor string) error {
		if g.MayEnter() {
			if err := g.Start(cmd); !cgroup.Refused(err) {
				return err
			}
			// Refused, or the command itself is: the stub's exec tells which.
		}
		return g.StartParked(ctx, cmd, b.Helper, func(pid int) error {
			return b.move(ctx, g, anchor, b.LeafName(leaf), pid)
		})
	})
}

// Enter moves the calling process into a leaf, made when missing.
func (b *Box) Enter(ctx context.Context, leaf string) error {
	return b.in(ctx, leaf, func(g *cgroup.Group, anchor string) error {
		if err := b.move(ctx, g, anchor, b.LeafName(leaf), os.Getpid()); err != nil {
			return err
		}
		return g.Verify(os.Getpid())
	})
}

// Move moves a process into a leaf, made when missing, as [cgroup.Box.Move] does; the
// manager is asked where the kernel does not let us.
func (b *Box) Move(ctx context.Context, leaf string, pid int) error {
	return b.in(ctx, leaf, func(g *cgroup.Group, anchor string) error {
		if err := b.move(ctx, g, anchor, b.LeafName(leaf), pid); err != nil {
			return err
		}
		return g.Verify(pid)
	})
}

// in runs fn on a leaf and the name of the anchor unit it is in. The unit may be
// collected between any two steps, as its last process may end at any time:
// then it is made again, and fn called once more.
func (b *Box) in(ctx context.Context, leaf string, fn func(g *cgroup.Group, anchor string) error) error {
	if leaf == "" {
		return errors.New("the box itself takes no process, a leaf of it does")
	}
	for again := false; ; again = true {
		if err := b.EnsureAnchor(ctx); err != nil {
			return err
		}
		work := b.WorkDir()
		err := b.inLeaf(work, leaf, func(g *cgroup.Group) error { return fn(g, filepath.Base(work.Path())) })
		if err == nil || again || !collected(work, err) {
			return err
		}
	}
}

func (b *Box) inLeaf(work *cgroup.Group, leaf string, fn func(*cgroup.Group) error) error {
	g, err := b.EnsureLeaf(work, leaf)
	if err != nil {
		return fmt.Errorf("make leaf %s: %w", leaf, err)
	}
	defer g.Close()
	return fn(g)
}

// collected says whether an error comes from the anchor unit having gone. ENOENT
// may as well be the command's, so the directory is looked at; ENODEV is what
// clone3 says of a removed cgroup.
func collected(work *cgroup.Group, err error) bool {
	if errors.As(err, new(*unitGoneError)) {
		return true
	}
	return work.Gone() && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV))
}

func isRefused(err error) bool { return errors.Is(err, cgroup.ErrCannotEnter) }

// move puts a process into a leaf: by ourselves where the kernel lets us, else
// by the manager, which asks the system's. The caller reads back where it is.
func (b *Box) move(ctx context.Context, g *cgroup.Group, anchor, leaf string, pid int) error {
	err := g.Add(pid)
	if !isRefused(err) {
		return err
	}
	b.mu.Lock()
	m, merr := b.manager(ctx)
	b.mu.Unlock()
	if merr != nil {
		return errors.Join(err, merr)
	}
	return m.attach(ctx, anchor, leaf, pid)
}
