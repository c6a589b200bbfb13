package scope

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
)

// EnsureAnchor makes sure that the anchor process runs in the box, and so that
// its unit stays. As long as it does, nobody is asked: that is read from its
// leaf.
//
// Without that process the unit may be on its way out, unnoticed: it is stopped
// when its last process ends, and what is started in it at that moment gets the
// SIGTERM that is meant for the rest (measured on 252).
func (b *Box) EnsureAnchor(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.WorkDir()
	if b.anchored(w) {
		return nil
	}
	// Another program may have made it again.
	if again, err := b.FindWork(); err == nil && again != w && b.anchored(again) {
		return nil
	}
	return b.anchorUp(ctx)
}

// anchored says whether the anchor process is in its leaf. Supervisors and writers of
// logs are there, too: they hold the unit, and serve nobody.
func (b *Box) anchored(work *cgroup.Group) bool {
	if work == nil {
		return false
	}
	leaf, err := work.Child(cgroup.AnchorLeaf)
	if err != nil {
		return false
	}
	defer leaf.Close()
	pids, err := leaf.Procs()
	return err == nil && slices.ContainsFunc(pids, b.isAnchor)
}

// isAnchor says whether a process was started as the anchor of this box: the program
// may have been another version.
func (b *Box) isAnchor(pid int) bool {
	want := b.spec.Anchor
	if len(want) == 0 {
		return true
	}
	const telling = 4 // the program, what it is to be, the session, its directory
	n := min(len(want), telling)
	argv := proc.Args(pid)
	return len(argv) >= n && slices.Equal(argv[1:n], want[1:n])
}

// anchorUp makes what is missing of the anchor. b.mu is held.
func (b *Box) anchorUp(ctx context.Context) error {
	if len(b.spec.Anchor) == 0 {
		return fmt.Errorf("%s: no anchor program is known", b.Unit)
	}
	// The directory may be gone while the unit is not, or the other way round:
	// systemd would make a slice of that name by itself, without limits.
	if b.Top.Gone() {
		return fmt.Errorf("%s: %w", b.Path(), fs.ErrNotExist)
	}
	m, err := b.manager(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, jobTime)
	defer cancel()
	err = b.unitUp(ctx, m, b.spec.serviceUnit(), func() error {
		return m.start(ctx, b.spec.serviceUnit(), b.spec.serviceProps())
	})
	if unknownProperty(err) {
		// Below systemd 250. Asked each time and not remembered: a manager may
		// be upgraded under us.
		err = b.unitUp(ctx, m, b.spec.scopeUnit(), func() error { return m.startScope(ctx, b.spec) })
	}
	return err
}

// unitUp brings one kind of anchor unit up from whatever state it is in: another
// program may be starting it, or the manager taking it down.
func (b *Box) unitUp(ctx context.Context, m *Manager, unit string, start func() error) error {
	state, err := "", error(nil)
	if b.WorkDir() != nil { // a new box has none, that needs no asking
		if state, err = m.activeState(ctx, unit); err != nil {
			return fmt.Errorf("%w (%s%s)", err, unit, b.whoIsIn(unit))
		}
	}
	began := time.Now()
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		switch state {
		case "active":
			up, err := b.useUnit(ctx, m, unit)
			if up || err != nil {
				return err
			}
			if time.Since(began) > staleTime {
				if err := b.stopStale(ctx, m, unit); err != nil {
					return err
				}
			}
		case "", "inactive", "failed":
			err := start()
			if err == nil {
				return b.adopt(unit)
			}
			if !errors.Is(err, ErrExists) {
				return err
			}
			if err := b.clearDown(ctx, m, unit); err != nil {
				return err
			}
		}
		if state, err = m.activeState(ctx, unit); err != nil {
			return fmt.Errorf("%w (%s%s)", err, unit, b.whoIsIn(unit))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not get beyond %q%s: %w", unit, state, b.whoIsIn(unit), ctx.Err())
		case <-time.After(wait):
		}
	}
}

// whoIsIn names who is in a unit, for people.
func (b *Box) whoIsIn(unit string) string {
	work, err := b.Top.Child(unit)
	if err != nil {
		return ", and has no directory"
	}
	defer work.Close()
	members, err := work.Members()
	if err != nil || len(members) == 0 {
		return ", with nobody in it"
	}
	who := make([]string, 0, 5)
	for _, m := range members[:min(len(members), cap(who))] {
		state := "?"
		if st, err := proc.ReadStat(m.PID); err == nil {
			state = string(st.State)
		}
		who = append(who, fmt.Sprintf("process %d in %q (state %s, %.80q)", m.PID, m.Leaf, state, proc.Args(m.PID)))
	}
	return ", with " + strings.Join(who, ", ")
}

// staleTime is how long a manager may take to see that a unit has become empty.
const staleTime = 2 * time.Second

// stopStale makes the manager look again at a unit that it takes for active while
// there is no directory of it, and so nothing that a stop could end.
func (b *Box) stopStale(ctx context.Context, m *Manager, unit string) error {
	work, err := b.Top.Child(unit)
	if err == nil {
		work.Close()
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return m.stop(ctx, unit)
}

// clearDown ends an anchor process in a unit that is down: the manager keeps a
// unit as long as there are processes in it, and its name with it. The directory
// is opened before the state is asked for, so that what is ended is not the
// anchor of a program that starts the unit at this moment.
func (b *Box) clearDown(ctx context.Context, m *Manager, unit string) error {
	work, err := b.Top.Child(unit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer work.Close()
	state, err := m.activeState(ctx, unit)
	if err != nil || state != "inactive" && state != "failed" {
		return err
	}
	if pending, err := m.pending(ctx, unit); err != nil || pending {
		return err
	}
	if err := killAnchor(ctx, work); err != nil {
		return err
	}
	if p, err := work.Populated(); err != nil || !p {
		return err
	}
	return fmt.Errorf("%s is down with processes left in it: %w", unit, ErrBusy)
}

func killAnchor(ctx context.Context, work *cgroup.Group) error {
	leaf, err := work.Child(cgroup.AnchorLeaf)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer leaf.Close()
	ctx, cancel := context.WithTimeout(ctx, jobTime) // it may be in D state
	defer cancel()
	return leaf.Kill(ctx)
}

// endAnchors ends the anchor processes and leaves the others in their leaf alone.
func (b *Box) endAnchors(ctx context.Context, work *cgroup.Group) error {
	leaf, err := work.Child(cgroup.AnchorLeaf)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer leaf.Close()
	pids, err := leaf.Procs()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, jobTime) // it may be in D state
	defer cancel()
	for _, pid := range pids {
		if b.isAnchor(pid) {
			err = errors.Join(err, leaf.KillMember(ctx, pid))
		}
	}
	return err
}

// RenewAnchor ends the anchor that runs, so that the next one to need it starts another:
// it serves in a directory that was removed.
func (b *Box) RenewAnchor(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if work := b.WorkDir(); work != nil {
		return b.endAnchors(ctx, work)
	}
	return nil
}

// useUnit takes a unit that is up, with a new anchor process if it has none any
// more. False: it turned out to be on its way down.
func (b *Box) useUnit(ctx context.Context, m *Manager, unit string) (bool, error) {
	if err := b.adopt(unit); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	work := b.WorkDir()
	if b.anchored(work) {
		return true, nil
	}
	// The anchor of a scope that another program has just made is still on its
	// way to its leaf (a service is not active before it has arrived).
	if pids, err := work.Procs(); err != nil || len(pids) > 0 {
		return false, err
	}
	if b.anchored(work) {
		return true, nil
	}
	err := b.revive(ctx, m, work, unit)
	if err == nil {
		// It is in; if the manager has not decided to stop the unit by now it
		// will not, as it looks into the cgroup itself when it decides.
		state, serr := m.activeState(ctx, unit)
		if state == "active" {
			return true, nil
		}
		err = serr
	}
	kerr := b.endAnchors(context.WithoutCancel(ctx), work)
	switch {
	case err == nil, work.Gone(), errors.As(err, new(*unitGoneError)):
		return false, kerr
	}
	return false, fmt.Errorf("start the anchor of %s again: %w", b.Unit, errors.Join(err, kerr))
}

// adopt takes the unit's directory for the leaves.
func (b *Box) adopt(unit string) error {
	g, err := b.Top.Child(unit)
	if err != nil {
		return fmt.Errorf("open the anchor of %s: %w", b.Unit, err)
	}
	if w := b.WorkDir(); w != nil && w.Inode() == g.Inode() {
		return g.Close()
	}
	b.SetWork(g)
	return nil
}
