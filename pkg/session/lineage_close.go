package session

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"golang.org/x/sys/unix"
)

// Kill ends all of a leaf: it stops them until nobody moves, kills children before their
// parents, and looks until twice in a row nobody is found. It is not broken off with ctx: whom
// it has stopped would stay so.
func (b *lineageBox) Kill(ctx context.Context, leaf string) error {
	j, err := b.job(true)
	if err != nil {
		return err
	}
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer done()
	defer b.noteStop(leaf)()
	r, err := j.Kill(ctx, leaf)
	if r != nil {
		b.mu.Lock()
		b.after = append(b.after, r)
		b.mu.Unlock()
	}
	if err != nil {
		return err
	}
	return r.Err("session " + b.rec.ID)
}

// signalGroup signals the members of a leaf that are in a process group.
func (b *lineageBox) signalGroup(leaf string, pgid int, sig syscall.Signal) error {
	p, err := b.glance()
	if err != nil {
		return err
	}
	var failed error
	for _, m := range p.Alive(leaf) {
		if m.PGID != pgid || m.Shield != "" || oursByArgs(m.PID) {
			continue
		}
		if err := b.table.Signal(m.ID, sig); err != nil && !errors.Is(err, proc.ErrGone) && !errors.Is(err, proc.ErrReused) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// Freeze stops all, nested sessions included, until a reading proves that nobody moves. It is
// noted: somebody who was stopped alone does not make a session frozen.
func (b *lineageBox) Freeze(ctx context.Context) error {
	if err := b.m.store.PutLineage(b.rec.ID, partFrozen, []byte("{}\n")); err != nil {
		b.m.log.Debug("note that it is frozen", "session", b.rec.ID, "err", err)
	}
	j, err := b.job(true)
	if err != nil {
		return err
	}
	err = j.Freeze(ctx, "")
	if errors.Is(err, darwinjob.ErrNotFrozen) {
		err = fmt.Errorf("%w: %w", err, context.DeadlineExceeded)
	}
	return err
}

// Thaw lets all go on, also who was stopped before the freeze.
func (b *lineageBox) Thaw(ctx context.Context) error {
	j, err := b.job(true)
	if err != nil {
		return err
	}
	if err := j.Thaw(ctx, ""); err != nil {
		return err
	}
	return b.m.store.RemoveLineage(b.rec.ID, partFrozen)
}

// Frozen says whether it, or a session around it, was frozen and still stands.
func (b *lineageBox) Frozen() (bool, error) {
	if !b.frozenNoted() {
		return false, nil
	}
	p, err := b.glance()
	if err != nil {
		return false, err
	}
	runs := func(m *darwinjob.Member) bool {
		return m.State == darwinjob.Running && m.Shield == "" && !oursByArgs(m.PID)
	}
	return !slices.ContainsFunc(p.Alive(""), runs), nil
}

// keeperTime bounds the wait for keepers: they have nobody left to keep.
const keeperTime = 5 * time.Second

// Remove makes sure that nobody is left, waits until the keepers have gone, and forgets.
func (b *lineageBox) Remove(ctx context.Context) error {
	p, err := b.glance()
	if err != nil {
		return err
	}
	if others := slices.DeleteFunc(p.Alive(""), func(m *darwinjob.Member) bool { return oursByArgs(m.PID) }); len(others) > 0 {
		return fmt.Errorf("%d processes of session %s: %w", len(others), b.rec.ID, syscall.EBUSY)
	}
	l, err := b.ledger()
	if err != nil {
		return err
	}
	var keepers []darwinjob.ID
	above, err := ancestors() // whoever keeps us waits for us
	if err != nil {
		return err
	}
	for _, r := range l.Reapers {
		if kids, err := b.table.Children(r.ID); len(kids) > 0 || errors.Is(err, darwinjob.ErrUnsettled) {
			continue // it stays with what was given away
		}
		if !above[r.PID] {
			keepers = append(keepers, r.ID)
		}
	}
	for end := b.table.Clock() + keeperTime; ; {
		keepers = slices.DeleteFunc(keepers, func(id darwinjob.ID) bool { return !b.lives(id) })
		if len(keepers) == 0 || ctx.Err() != nil || b.table.Clock() > end {
			break
		}
		b.table.Wait(ctx, keepers, 100*time.Millisecond)
	}
	for _, id := range keepers { // stopped, or in a swap storm
		if oursByArgs(id.PID) {
			b.m.log.Warn("end a keeper that does not end by itself", "session", b.rec.ID, "pid", id.PID)
			_ = b.table.Signal(id, syscall.SIGKILL)
		}
	}
	if err := b.endJob(ctx); err != nil {
		return err
	}
	parts, _ := b.m.store.Lineage(b.rec.ID)
	for part := range parts {
		if err := b.m.store.RemoveLineage(b.rec.ID, part); err != nil {
			b.m.log.Debug("forget a part of the lineage", "session", b.rec.ID, "err", err)
		}
	}
	return nil
}

// lineageTurn bounds waiting for a turn: the one before us may be stopped.
const lineageTurn = 20 * time.Second

// takeTurn waits until no more lineage boxes are being closed than there are processors: each
// close reads the whole process table half a dozen times, and of a hundred at once none would
// be through in its time. It is a courtesy: who has waited for lineageTurn goes on.
func (c *closing) takeTurn(ctx context.Context) {
	if _, ok := c.box.(*lineageBox); ok && !c.o.nested && !c.o.DryRun {
		wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), lineageTurn)
		defer cancel()
		c.pass = c.m.store.TurnOf(wait, runtime.NumCPU())
	}
}

// passTurn lets the next one close, while we wait for something.
func (c *closing) passTurn() {
	if c.pass != nil {
		c.pass()
		c.pass = nil
	}
}

// bequeath leaves the keepers of a lineage box to what was kept of it.
func (c *closing) bequeath() {
	b, ok := c.box.(*lineageBox)
	if !ok || c.keptIn == "" {
		return
	}
	rec, err := c.m.store.Get(c.keptIn)
	if err == nil {
		var to *lineageBox
		if to, err = c.m.openLineage(&rec); err == nil {
			err = b.inherit(to)
		}
	}
	if err != nil {
		c.note("what was kept as " + c.keptIn + " may start what nobody finds: " + err.Error())
	}
}

// aftermath adds to a receipt what the kills of a lineage found: who came too late for a
// list, who was found by the cookie alone, and on whom the evidence did not suffice.
func (c *closing) aftermath() {
	b, ok := c.box.(*lineageBox)
	if !ok {
		return
	}
	b.mu.Lock()
	reports, ours := b.after, b.ours
	b.after = nil
	b.mu.Unlock()
	for _, r := range reports {
		for _, m := range r.Ended {
			id := proc.ID{PID: m.PID, Start: m.Start}
			if _, listed := c.seen[id]; listed || ours[m.ID] {
				continue
			}
			f := Fated{Process: processOf(&m.Proc, c.rec.ID, m.Leaf), Fate: FateKilled}
			if isStray(m) {
				c.r.Strays = append(c.r.Strays, f)
				continue
			}
			c.seen[id] = len(c.r.Processes)
			c.r.Processes = append(c.r.Processes, f)
		}
		for i := range r.Suspects {
			s := &r.Suspects[i]
			if oursByArgs(s.PID) {
				continue // it helps another session
			}
			if slices.ContainsFunc(c.r.Suspects, func(p Process) bool { return p.PID == s.PID && p.Start == s.Start }) {
				continue
			}
			c.r.Suspects = append(c.r.Suspects, processOf(&s.Proc, c.rec.ID, ""))
			c.note(fmt.Sprintf("process %d (%s) was left alone: %s", s.PID, s.Comm, s.Why))
		}
	}
}

// strays are the living that nothing but their marks tell of.
func (b *lineageBox) strays(ctx context.Context) (all []Fated) {
	j, err := b.job(true)
	if err != nil {
		return nil
	}
	p, err := j.Look(ctx, true)
	if err != nil {
		return nil
	}
	for _, m := range p.Alive("") {
		if isStray(m) && !oursByArgs(m.PID) {
			all = append(all, Fated{Process: processOf(&m.Proc, b.rec.ID, m.Leaf), Fate: fateAlive})
		}
	}
	return all
}

// isStray says of a member that nothing but its marks told of it.
func isStray(m *darwinjob.Member) bool {
	return m.Score < darwinjob.ByIdentity.Weight()
}

// processOf describes who is gone by what the last reading showed.
func processOf(p *darwinjob.Proc, id, leaf string) Process {
	return Process{PID: p.PID, Start: p.Start, PPID: p.PPID, Comm: p.Comm, Argv: []string{p.Comm}, State: string(rune(p.State)), UID: p.UID,
		Task: taskOfLeaf(leaf), Session: id, sid: p.SID}
}

// ownSid says whether a command gets a session of its own: its numbers then prove who is of
// it. One that shares our terminal, or is to lead one, keeps what it was given.
func ownSid(attr *syscall.SysProcAttr) bool {
	switch {
	case attr == nil:
		return !beforeTerminal()
	case attr.Setctty || attr.Foreground:
		return false
	case attr.Setsid || attr.Setpgid:
		return true
	}
	return !beforeTerminal()
}

// beforeTerminal says whether our process group is the one in front of our terminal.
func beforeTerminal() bool {
	fd, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	pgrp, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && pgrp == unix.Getpgrp()
}
