package session

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
)

// end empties the box.
func (c *closing) end(ctx context.Context) error {
	c.list()
	c.count()
	used, known := c.used()
	c.oneLook(false)
	grace := c.grace()
	asked := grace > 0 && c.othersThan(helperLeaf)
	if asked {
		c.passTurn()
		c.ask(ctx, grace)
	}
	if grace > 0 {
		c.lastWords(ctx)
	}
	if asked {
		c.list() // who is there now was not listed before, or did not listen
		if err := ctx.Err(); err != nil {
			// Broken off in the grace: nobody is killed for that.
			for i := range c.r.Processes {
				if c.r.Processes[i].Fate == FateKilled {
					c.r.Processes[i].Fate = fateAlive
				}
			}
			return err
		}
	}
	// From here on there is no way back, and the receipt must say what was done.
	ctx = context.WithoutCancel(ctx)
	if c.missed {
		// Who is another process by the time it is read is seen only while the box
		// stands still; the kill thaws it.
		still, done := context.WithTimeout(ctx, stillTime)
		if err := c.box.Freeze(still); err != nil {
			c.m.log.Debug("freeze before the list", "err", err)
		}
		done()
		c.list()
	}
	c.holdHeirs(ctx)
	kill, cancel := context.WithTimeout(ctx, killTime)
	defer cancel()
	err := c.leftover(c.box.Kill(kill, ""))
	if err == nil && len(c.r.Survivors) == 0 {
		c.bequeath() // what others run may be waited for after this
	}
	c.aftermath()
	if !known {
		used, _ = c.used()
	}
	c.r.Usage = used
	c.r.OOM = c.m.oomOf(c.box, &c.rec, true)
	return err
}

// leftover notes whom a kill of the box did not end. The error is one that says nothing of
// them.
func (c *closing) leftover(err error) error {
	left, ok := errors.AsType[*proc.SurvivorsError](err)
	if !ok {
		return err
	}
	for _, s := range left.Survivors {
		if i, ok := c.seen[proc.ID{PID: s.PID, Start: s.Start}]; ok {
			c.r.Processes[i].Fate = FateSurvived
		}
	}
	c.r.Survivors = append(c.r.Survivors, left.Survivors...)
	return nil
}

// used is what the box has used, and whether that can be told of the living only: then it is
// asked before they are ended.
func (c *closing) used() (UsageInfo, bool) {
	_, living := c.box.(*lineageBox)
	u, err := c.box.Usage("")
	if err != nil {
		return UsageInfo{}, false
	}
	return usage(u), living
}

// oneLook has one look at a lineage box serve all that is asked of it, or no more.
func (c *closing) oneLook(on bool) {
	if b, ok := c.box.(*lineageBox); ok {
		b.oneLook(on)
	}
}

// lookAnew has a lineage box look anew when a session inside was emptied: its processes have
// gone, and who was kept of it is another session's, that was not there at the last look.
func (c *closing) lookAnew() {
	if b, ok := c.box.(*lineageBox); ok {
		b.survey.forget()
		b.oneLook(false)
	}
}

// ask sends SIGTERM and waits until all tasks are gone or the grace is over.
// SIGCONT lets stopped ones hear it, thawing frozen ones.
func (c *closing) ask(ctx context.Context, grace time.Duration) {
	wait, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} {
		if _, err := c.box.Signal(wait, "", sig); err != nil {
			c.m.log.Debug("signal", "sig", sig, "err", err) // the kill reaches them
		}
	}
	if frozen, err := c.box.Frozen(); err == nil && frozen {
		c.box.Thaw(wait)
	}
	c.m.thawAbandoned(&c.rec, c.box)
	leaves, err := c.box.Leaves()
	if err != nil {
		return
	}
	for _, leaf := range leaves {
		if c.box.WaitEmpty(wait, leaf) != nil {
			return
		}
	}
	// Members can move themselves up, out of the leaves: rare, so looked at
	// in intervals.
	for c.othersThan(helperLeaf) && wait.Err() == nil {
		select {
		case <-wait.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// othersThan says whether the box holds a process that is not in our own leaf.
func (c *closing) othersThan(leaf string) bool {
	members, err := c.box.Members("")
	if err != nil {
		return true
	}
	return slices.ContainsFunc(members, func(m proc.Member) bool { return m.Leaf != leaf })
}

// list adds what is alive in the box to the receipt, and settles the fate of
// those listed before: who is not there any more ended when asked.
func (c *closing) list() {
	for i := range c.r.Processes {
		c.r.Processes[i].Fate = FateEnded
	}
	members, err := c.box.Members("")
	if err != nil {
		c.note("the box could not be listed: " + err.Error())
		return
	}
	few, d := len(members) <= detailedUpTo, brief
	if few {
		d = named
	}
	described := describeAll(members, c.rec.ID, c.records, few, d, c.now)
	others := slices.DeleteFunc(members, func(m proc.Member) bool { return m.Leaf == helperLeaf })
	c.missed = len(described) < len(others)
	for _, p := range described {
		id := proc.ID{PID: p.PID, Start: p.Start}
		i, ok := c.seen[id]
		if !ok {
			i = len(c.r.Processes)
			c.seen[id] = i
			c.r.Processes = append(c.r.Processes, Fated{Process: p})
		}
		c.r.Processes[i].Fate = FateKilled
	}
}

// stillTime bounds the wait for a box to stand still: one with a vfork under way
// never does.
const stillTime = 100 * time.Millisecond

// detailedUpTo bounds how many processes are described with command line and
// ports: a close of thousands must not wait for the telling.
const detailedUpTo = 200
