package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"golang.org/x/sys/unix"
)

// Names of the tree, the same as those systemd makes from unit names.
const (
	// Base is the directory that holds all boxes of one user.
	Base = "sessionbox.slice"
	// AnchorLeaf is the leaf of our own helpers; it is not a task.
	AnchorLeaf = "anchor"
	// MetaXattr (user.sessionbox.meta) on the top directory says which session
	// it is, so that it can be found with all records gone.
	MetaXattr = "sessionbox.meta"
)

// SliceName is the directory name of a session's box. Parents are the ids of
// the sessions around it, outermost first: systemd nests a-b.slice in a.slice.
func SliceName(parents []string, id string) string {
	return "sessionbox-" + strings.Join(append(append([]string{}, parents...), id), "-") + ".slice"
}

// SliceIDs is the inverse of SliceName: the ids, outermost first.
func SliceIDs(name string) ([]string, bool) {
	s, ok := strings.CutPrefix(name, "sessionbox-")
	if !ok {
		return nil, false
	}
	s, ok = strings.CutSuffix(s, ".slice")
	ids := strings.Split(s, "-")
	for _, id := range ids {
		if len(id) != 10 || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			return nil, false
		}
	}
	return ids, ok
}

// Box is the tree of one session: Top is killed, frozen and measured as a
// whole; below Work each task has a leaf. In a tree made by mkdir they are the
// same directory, under systemd Work is the delegated unit inside the slice.
type Box struct {
	Top    *Group
	Work   *Group // may be nil: a systemd unit that was collected
	Helper string // a sessionbox program, for starting where clone3 is refused
	// WorkNames are what Work may be called below Top, where others may take it
	// away and make it again: one that is gone is looked for before it is believed
	// that there are no leaves.
	WorkNames []string
	// Inner is the directory in Work that holds the leaves of tasks, "" if Work itself
	// does: the cgroup of a container, which its runtime makes. Our own leaf stays in
	// Work.
	Inner string

	mu   sync.RWMutex // guards Work once the box is in use
	past []*Group     // former Works: a call may still be using one
}

// SetWork replaces Work, which the box owns from then on: a systemd unit that
// was collected is made again as another directory.
func (b *Box) SetWork(g *Group) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.Work != nil && b.Work != b.Top {
		b.past = append(b.past, b.Work)
	}
	b.Work = g
}

// WorkDir is Work, read safely beside SetWork.
func (b *Box) WorkDir() *Group {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.Work
}

// FindWork is Work, found again if it is gone (see WorkNames); nil if there is
// none.
func (b *Box) FindWork() (*Group, error) {
	old := b.WorkDir()
	if len(b.WorkNames) == 0 {
		return old, nil
	}
	if old != nil {
		if _, err := old.read("cgroup.events"); !isGone(err) {
			return old, err
		}
	}
	for _, name := range b.WorkNames {
		g, err := b.Top.Child(name)
		if isGone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return b.replaceWork(old, g), nil
	}
	return nil, nil
}

// replaceWork is SetWork, unless somebody else was faster to replace old.
func (b *Box) replaceWork(old, g *Group) *Group {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.Work != old {
		g.Close()
		return b.Work
	}
	if old != nil {
		b.past = append(b.past, old)
	}
	b.Work = g
	return g
}

// workNames are the names that Work may have below Top, none if it is Top.
func (b *Box) workNames() []string {
	if len(b.WorkNames) > 0 {
		return b.WorkNames
	}
	if work := b.WorkDir(); work != nil && work != b.Top {
		return []string{filepath.Base(work.Path())}
	}
	return nil
}

// Create makes the box of a session below base (see [EnsureBase]) or, when
// parents are given, inside the innermost parent's box, which base then is.
func Create(base *Group, parents []string, id string) (*Group, error) {
	return base.Make(SliceName(parents, id))
}

// EnsureBase opens sessionbox.slice below root, made when missing.
func EnsureBase(root *Group) (*Group, error) { return root.Ensure(Base) }

// DefaultRoot is the highest directory, from our own cgroup upwards, in which
// we may make groups and move processes: for root the mount point, in a
// container its own root, for a user the top of what was delegated to it.
func DefaultRoot(m Mount) (string, error) {
	dir, err := Own(m)
	if err != nil {
		return "", err
	}
	if !strings.HasPrefix(dir+"/", strings.TrimSuffix(m.Point, "/")+"/") {
		dir = m.Point
	}
	best := ""
	for {
		if unix.Access(dir, unix.W_OK) == nil && writable(dir) {
			best = dir
		} else if best != "" {
			break
		}
		if dir == m.Point || dir == "/" {
			break
		}
		dir = filepath.Dir(dir)
	}
	if best == "" {
		return "", fmt.Errorf("no directory of %s above our own cgroup may be written: %w", m.Point, fs.ErrPermission)
	}
	return best, nil
}

// group is the whole box ("") or a leaf of it.
func (b *Box) group(leaf string) (*Group, func(), error) {
	if leaf == "" {
		return b.Top, func() {}, nil
	}
	for work := b.WorkDir(); ; {
		if work != nil {
			g, err := b.Leaf(work, leaf)
			if err == nil {
				return g, func() { g.Close() }, nil
			}
			if !isGone(err) {
				return nil, nil, err
			}
		}
		// Either it is not there, or what it would be in is not: then another
		// program may have made that again, and a leaf of the same name in it.
		again, err := b.FindWork()
		if err != nil {
			return nil, nil, err
		}
		if again == nil || again == work {
			return nil, nil, fs.ErrNotExist
		}
		work = again
	}
}

// isInner says whether a leaf is in Inner.
func (b *Box) isInner(leaf string) bool { return b.Inner != "" && leaf != AnchorLeaf }

// Leaf opens a leaf below work, which is what Work is or was.
func (b *Box) Leaf(work *Group, leaf string) (*Group, error) {
	return b.leafIn(work, leaf, (*Group).Child)
}

// EnsureLeaf is Leaf that makes the leaf if it is not there, but not what holds it.
func (b *Box) EnsureLeaf(work *Group, leaf string) (*Group, error) {
	return b.leafIn(work, leaf, (*Group).Ensure)
}

func (b *Box) leafIn(work *Group, leaf string, open func(*Group, string) (*Group, error)) (*Group, error) {
	if !b.isInner(leaf) {
		return open(work, leaf)
	}
	inner, err := work.Child(b.Inner)
	if err != nil {
		return nil, err
	}
	defer inner.Close()
	return open(inner, leaf)
}

// LeafName is a leaf's name below Work.
func (b *Box) LeafName(leaf string) string {
	if b.isInner(leaf) {
		return b.Inner + "/" + leaf
	}
	return leaf
}

// on runs fn on the whole box or a leaf; a leaf that is gone is the empty one.
func (b *Box) on(leaf string, fn func(*Group) error) error {
	g, done, err := b.group(leaf)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer done()
	return fn(g)
}

// Path of the top directory.
func (b *Box) Path() string { return b.Top.Path() }

// Inode of the top directory.
func (b *Box) Inode() uint64 { return b.Top.Inode() }

// LeafPath is where a task's leaf is.
func (b *Box) LeafPath(leaf string) string {
	work := b.WorkDir()
	if work == nil {
		return ""
	}
	return filepath.Join(work.Path(), b.LeafName(leaf))
}

// Prepare makes a leaf, when missing, and gives its inode.
func (b *Box) Prepare(ctx context.Context, leaf string) (uint64, error) {
	g, err := b.EnsureLeaf(b.WorkDir(), leaf)
	if err != nil {
		return 0, fmt.Errorf("make leaf %s: %w", leaf, err)
	}
	defer g.Close()
	return g.Inode(), nil
}

// Start starts cmd in a leaf, made when missing.
func (b *Box) Start(ctx context.Context, leaf string, cmd *exec.Cmd) error {
	g, err := b.EnsureLeaf(b.WorkDir(), leaf)
	if err != nil {
		return fmt.Errorf("make leaf %s: %w", leaf, err)
	}
	defer g.Close()
	if g.MayEnter() {
		err := g.Start(cmd)
		if !Refused(err) {
			return err
		}
	}
	// Refused, or the command itself is: the stub's exec tells which.
	return g.StartParked(ctx, cmd, b.Helper, nil)
}

// Refused says whether a start failed in a way that may come from clone3: the
// migration rule, a seccomp filter, a kernel without it or with a fault in it.
func Refused(err error) bool {
	for _, e := range []error{unix.EACCES, unix.EPERM, unix.ENOSYS, unix.EOPNOTSUPP, unix.EINVAL, ErrStillborn} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Enter moves the calling process into a leaf, made when missing.
func (b *Box) Enter(ctx context.Context, leaf string) error {
	g, err := b.EnsureLeaf(b.WorkDir(), leaf)
	if err != nil {
		return err
	}
	defer g.Close()
	if err := g.Enter(); err != nil {
		return err
	}
	return g.Verify(syscall.Getpid())
}

// Move moves a process, with all its threads, into a leaf that is there, and reads back
// that it has arrived. The caller has to know whose pid it is: the kernel takes a number.
func (b *Box) Move(ctx context.Context, leaf string, pid int) error {
	g, done, err := b.group(leaf)
	if err != nil {
		return err
	}
	defer done()
	if err := g.Add(pid); err != nil {
		return err
	}
	return g.Verify(pid)
}

// FreezeLeaf makes a leaf one in which everything stands still, and what comes into it
// does at once (Linux 5.2). No parent is told, no signal is sent, and what was stopped
// before stays so after ThawLeaf.
func (b *Box) FreezeLeaf(leaf string) error {
	g, done, err := b.group(leaf)
	if err != nil {
		return err
	}
	defer done()
	return g.write("cgroup.freeze", "1")
}

// ThawLeaf undoes FreezeLeaf.
func (b *Box) ThawLeaf(leaf string) error { return b.on(leaf, (*Group).Thaw) }

// LeafFrozen says whether the leaf itself was frozen, and not the box around it.
func (b *Box) LeafFrozen(leaf string) (frozen bool, err error) {
	err = b.on(leaf, func(g *Group) error {
		text, err := g.read("cgroup.freeze")
		frozen = strings.TrimSpace(string(text)) == "1"
		return err
	})
	return frozen, err
}

// Leaves names the leaves of tasks, without our own.
func (b *Box) Leaves() ([]string, error) {
	names, err := b.workChildren()
	var leaves []string
	for _, n := range names {
		if _, nested := SliceIDs(n); n != AnchorLeaf && !nested {
			leaves = append(leaves, n)
		}
	}
	return leaves, err
}

// workChildren names the directories below Work; as in group, it is found again
// before it is believed that there are none.
func (b *Box) workChildren() ([]string, error) {
	for work := b.WorkDir(); ; {
		if work != nil {
			names, err := b.children(work)
			if len(names) > 0 || err != nil && !isGone(err) {
				return names, err
			}
		}
		again, err := b.FindWork()
		if err != nil || again == nil || again == work {
			return nil, err
		}
		work = again
	}
}

// children names the leaves below work.
func (b *Box) children(work *Group) ([]string, error) {
	if b.Inner == "" {
		return work.Children()
	}
	inner, err := work.Child(b.Inner)
	if err != nil {
		return nil, err
	}
	defer inner.Close()
	return inner.Children()
}

// Members lists the processes of the box or a leaf. Leaf is relative to Work
// ("task-1", or "task-1/deeper"), the whole path for one in a nested box.
func (b *Box) Members(leaf string) (members []proc.Member, err error) {
	err = b.on(leaf, func(g *Group) error {
		members, err = g.Members()
		return err
	})
	names := b.workNames()
	for i := range members {
		m := &members[i]
		if leaf != "" {
			m.Leaf = filepath.Join(leaf, m.Leaf)
			continue
		}
		for _, name := range names {
			if rel, ok := strings.CutPrefix(m.Leaf, name+"/"); ok {
				m.Leaf = rel
				break
			}
		}
		if rel, ok := strings.CutPrefix(m.Leaf, b.Inner+"/"); ok && b.Inner != "" {
			m.Leaf = rel
		}
	}
	return members, err
}

// Populated says whether the box or a leaf holds a live process.
func (b *Box) Populated(leaf string) (p bool, err error) {
	err = b.on(leaf, func(g *Group) error {
		p, err = g.Populated()
		return err
	})
	return p, err
}

// WaitEmpty waits until the kernel says that the box or a leaf is empty.
func (b *Box) WaitEmpty(ctx context.Context, leaf string) error {
	return b.on(leaf, func(g *Group) error { return g.WaitEmpty(ctx) })
}

// Signal sends sig to each process of the box or a leaf, not to our helpers.
func (b *Box) Signal(ctx context.Context, leaf string, sig syscall.Signal) (n int, err error) {
	anchors := []string{AnchorLeaf}
	if names := b.workNames(); len(names) > 0 {
		anchors = anchors[:0]
		for _, name := range names {
			anchors = append(anchors, filepath.Join(name, AnchorLeaf))
		}
	}
	err = b.on(leaf, func(g *Group) error {
		n, err = g.SignalExcept(sig, func(rel string) bool {
			return leaf == "" && slices.ContainsFunc(anchors, func(a string) bool {
				return rel == a || strings.HasPrefix(rel, a+"/")
			})
		})
		return err
	})
	return n, err
}

// Kill ends everything in the box or a leaf; see [Group.Kill].
func (b *Box) Kill(ctx context.Context, leaf string) error {
	return b.on(leaf, func(g *Group) error { return g.Kill(ctx) })
}

// Freeze stops the whole box.
func (b *Box) Freeze(ctx context.Context) error { return b.Top.Freeze(ctx) }

// Thaw lets it run on, and what is in Inner, which a command there may have frozen.
func (b *Box) Thaw(ctx context.Context) error {
	inner := b.inner(func(g *Group) error {
		if frozen, err := g.Frozen(); err != nil || !frozen {
			return err
		}
		return g.Thaw()
	})
	return errors.Join(b.Top.Thaw(), inner)
}

// Frozen says whether it is stopped, or what is in Inner.
func (b *Box) Frozen() (frozen bool, err error) {
	if frozen, err = b.Top.Frozen(); frozen || err != nil {
		return frozen, err
	}
	err = b.inner(func(g *Group) error {
		frozen, err = g.Frozen()
		return err
	})
	return frozen, err
}

// inner runs fn on Inner, if there is one.
func (b *Box) inner(fn func(*Group) error) error {
	if b.Inner == "" {
		return nil
	}
	work, err := b.FindWork()
	if work == nil || err != nil {
		return err
	}
	g, err := work.Child(b.Inner)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer g.Close()
	return fn(g)
}

// Usage reads the figures of the box or a leaf.
func (b *Box) Usage(leaf string) (u memlimit.Usage, err error) {
	err = b.on(leaf, func(g *Group) error {
		u, err = g.Usage()
		return err
	})
	return u, err
}

// SetLimits writes ceilings on the top directory and says which hold.
func (b *Box) SetLimits(ctx context.Context, r *specs.LinuxResources) ([]memlimit.Ceiling, error) {
	return b.Top.SetLimits(r)
}

// Limits reads the ceilings of the top directory and compares them.
func (b *Box) Limits(want memlimit.Limits) ([]memlimit.Ceiling, error) {
	return b.Top.Ceilings(want)
}

// NestedBox is a directory with the name of a box inside another box.
type NestedBox struct {
	ID, Path string
	Inode    uint64
}

// Nested lists the directories in the box that are named as boxes directly inside
// it would be. A member can make such a directory, too: the name proves nothing.
func (b *Box) Nested() ([]NestedBox, error) {
	names, err := b.Top.Children()
	if isGone(err) {
		return nil, nil
	}
	own, _ := SliceIDs(filepath.Base(b.Top.Path()))
	var boxes []NestedBox
	for _, n := range names {
		ids, ok := SliceIDs(n)
		if !ok || len(ids) != len(own)+1 || !slices.Equal(ids[:len(own)], own) {
			continue
		}
		if c, err := b.Top.Child(n); err == nil {
			boxes = append(boxes, NestedBox{ID: ids[len(ids)-1], Path: c.Path(), Inode: c.Inode()})
			c.Close()
		}
	}
	return boxes, err
}

// RemoveLeaf removes a leaf that is empty; one that is not stays, without error.
func (b *Box) RemoveLeaf(leaf string) error {
	err := b.on(leaf, func(g *Group) error {
		done, cancel := context.WithCancel(context.Background())
		cancel()
		return g.Remove(done)
	})
	if errors.Is(err, unix.EBUSY) {
		return nil
	}
	return err
}

// Remove removes the directories of an empty box.
func (b *Box) Remove(ctx context.Context) error { return b.Top.Remove(ctx) }

// SetMeta stores who the box belongs to on the directory itself.
func (b *Box) SetMeta(meta string) error { return b.Top.SetXattr(MetaXattr, meta) }

// Meta is what SetMeta stored.
func (b *Box) Meta() (string, error) { return b.Top.Xattr(MetaXattr) }

// Close releases the descriptors.
func (b *Box) Close() error {
	b.SetWork(nil)
	var errs []error
	for _, g := range append(b.past, b.Top) {
		errs = append(errs, g.Close())
	}
	b.past = nil
	return errors.Join(errs...)
}
