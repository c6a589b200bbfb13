package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
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
const lineageTurn = 5 * time.Second

// takeTurn waits until no more lineage boxes are being closed than there are processors: each
// close reads the whole process table half a dozen times, and of a hundred at once none would
// be through in its time. It is a courtesy: who has waited for lineageTurn goes on, and who has
// little time, as the guard in an emergency, does not wait.
func (c *closing) takeTurn(ctx context.Context) {
	_, ok := c.box.(*lineageBox)
	if _, hurry := ctx.Deadline(); !ok || hurry || c.o.nested || c.o.DryRun {
		return
	}
	wait, cancel := context.WithTimeout(ctx, lineageTurn)
	defer cancel()
	c.pass = c.m.store.TurnOf(wait, "close", runtime.NumCPU())
}

// passTurn lets the next one close, while we wait for something.
func (c *closing) passTurn() {
	if c.pass != nil {
		c.pass()
		c.pass = nil
	}
}

// heir is a session that processes of a lineage box were kept in, by this close or by one
// that was broken off: our keepers are above them still.
type heir struct {
	box   *lineageBox
	pause *pause // nil: it does not stand still
}

// holdHeirs has those who were kept stand still while the others are ended: what they let go of
// becomes our keeper's child, who is ended. Those of them that ask for it are kept as well.
func (c *closing) holdHeirs(ctx context.Context) {
	if c.findHeirs(); len(c.heirs) == 0 {
		return
	}
	hold, cancel := context.WithTimeout(ctx, spareTime)
	defer cancel()
	c.stopHeirs(hold)
	c.spareMarked(hold)
	c.oneLook(false)
	c.findHeirs()
	c.stopHeirs(hold)
}

// findHeirs looks for the sessions that were made to keep what asked for it.
func (c *closing) findHeirs() {
	b, ok := c.box.(*lineageBox)
	if !ok {
		return
	}
	if l, err := b.ledger(); err != nil || len(l.Away) == 0 {
		return // nobody was let go of
	}
	recs, _, err := c.m.store.Sessions()
	if err != nil {
		c.note("what was kept may start what nobody finds: " + err.Error())
		return
	}
	for i := range recs {
		from := recs[i].KeptFrom
		known := slices.ContainsFunc(c.heirs, func(h heir) bool { return h.box.rec.ID == recs[i].ID })
		if known || recs[i].Kind != store.KindLineage || len(from) == 0 || from[len(from)-1] != c.rec.ID {
			continue
		}
		if box, err := c.m.openLineage(&recs[i]); err == nil {
			c.heirs = append(c.heirs, heir{box: box})
		}
	}
}

// stopHeirs stops them, and those of them that have come since. Before anybody is to be ended
// there are none.
func (c *closing) stopHeirs(ctx context.Context) {
	for i := range c.heirs {
		h := &c.heirs[i]
		if h.pause != nil {
			h.pause.again(ctx)
			continue
		}
		var err error
		if h.pause, err = h.box.pause(ctx); err != nil {
			c.note("what " + h.box.rec.ID + " keeps runs on while others are ended: " + err.Error())
		}
	}
}

// bequeath leaves the keepers of a lineage box to what was kept of it, and lets that run on.
func (c *closing) bequeath() {
	b, ok := c.box.(*lineageBox)
	if !ok {
		return
	}
	for _, h := range c.heirs {
		if err := b.inherit(h.box); err != nil {
			c.note("what " + cmp.Or(h.box.rec.Name, h.box.rec.ID) + " keeps may start and let go of what no session finds (" + err.Error() + "): to be sure, close both")
		}
	}
	c.releaseHeirs()
}

func (c *closing) releaseHeirs() {
	for i := range c.heirs {
		if h := &c.heirs[i]; h.pause != nil {
			h.pause.end()
			h.pause = nil
		}
	}
}

// releaseKept ends what a close that was broken off has begun with what it keeps.
func (c *closing) releaseKept() {
	c.releaseHeirs()
	if c.kept != nil {
		c.kept.Release()
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
