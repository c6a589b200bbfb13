package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// rest is what is to be done when the box is empty: what others run for the session ends,
// what is outside of the box, and the box itself.
func (c *closing) rest(ctx context.Context) error {
	whole := ctx
	if c.box != nil || c.failed != nil {
		ctx = context.WithoutCancel(ctx)
	}
	c.releaseHeirs() // when they could not be left our keepers, they need not stand still for others
	waits := c.waits()
	if waits {
		c.passTurn()
	}
	nested := c.completeNested(whole)
	switch {
	case c.failed != nil && nested == nil:
		return c.failed
	case c.failed != nil:
		return errors.Join(c.failed, nested)
	}
	others := c.hired.finish(whole)
	if waits {
		c.takeTurn(ctx)
	}
	if boot, err := c.m.boot(); err == nil && c.rec.Boot != "" && c.rec.Boot != boot {
		// Nothing of it can have lived on, and no unit either.
		c.note("it ran before the last boot")
		c.r.Tasks = c.tasks()
		if err := errors.Join(nested, others); err != nil {
			return err
		}
		return c.removeTmp(whole)
	}
	failed, left := c.m.deleteContainer(ctx, &c.rec, c.box)
	if failed != nil {
		c.note(failed.Error())
	}
	if err := c.leftover(left); err != nil {
		return errors.Join(err, nested, others)
	}
	others, err := c.sweepAll(ctx, whole, others)
	if err != nil {
		return errors.Join(err, nested, others)
	}
	c.r.Tasks = c.tasks()
	victimsOf(c.r.OOM, c.r.Tasks)
	if nested != nil {
		return errors.Join(nested, others)
	}
	if len(c.r.Survivors) > 0 {
		return errors.Join(survivorsError(c.name(), &proc.SurvivorsError{Path: c.rec.Path, Survivors: c.r.Survivors}), others)
	}
	if others != nil { // the box goes, the record stays: the next close asks again
		if err := c.keepRecord(ctx); err != nil {
			c.note("its box stays, as its record could not: " + err.Error())
			return others
		}
	}
	if err := c.remove(ctx); err != nil {
		return errors.Join(err, others)
	}
	c.removed = true
	if others != nil {
		return others
	}
	return c.removeTmp(whole)
}

// strayRounds bounds how often others are asked again because strays were ended.
const strayRounds = 3

// sweepAll ends the strays, and what they have had others start until then: others is what
// is known to be left of that, before and after. What asks them ends with whole. The last that
// is done is a sweep, as what asks may leave something behind itself.
func (c *closing) sweepAll(ctx, whole context.Context, others error) (error, error) {
	for n := 0; ; n++ {
		askers, err := c.sweep(ctx, false)
		if err != nil || !askers || n == strayRounds {
			return others, err
		}
		others = c.hired.finish(whole)
	}
}

// keepRecord makes sure that a session is found when its box is gone: by its own close, and
// by that of the session around it.
func (c *closing) keepRecord(ctx context.Context) error {
	err := c.m.store.MarkBoxless(c.rec.ID)
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if r, closed := c.m.lastReceipt(c.rec.ID); closed && r.ID == c.rec.ID {
		return nil // by somebody else, meanwhile
	}
	wait, cancel := context.WithTimeout(ctx, forgetTime)
	defer cancel()
	rec, at := c.rec, time.Now()
	rec.State, rec.Closing = store.StateClosing, &at
	err = c.m.store.Claim(wait, rec)
	if errors.As(err, new(*store.NameTakenError)) {
		rec.Name = ""
		err = c.m.store.Claim(wait, rec)
	}
	if err != nil {
		return err
	}
	return c.m.store.MarkBoxless(rec.ID)
}

// sweep ends what carries the session's cookie outside the box, and says whether there was
// any that may have had others start something. Where it cannot be looked for, it cannot be
// said that nothing is left.
//
// The kill of a lineage box has looked for it itself.
func (c *closing) sweep(ctx context.Context, dry bool) (askers bool, err error) {
	if b, ok := c.box.(*lineageBox); ok {
		if dry {
			c.r.Strays = append(c.r.Strays, b.strays(ctx)...)
			return false, nil
		}
		if !c.hired.commanded() {
			return false, nil
		}
	}
	skip := c.listed(dry)
	for _, pid := range c.watching() {
		skip[pid] = true
	}
	w, err := c.m.endStrays(ctx, &c.rec, skip, dry, c.now)
	askers = c.addSwept(&w)
	if err != nil {
		return false, &Error{Kind: ErrUnsupported, Session: c.name(), Text: "processes outside its box could not be looked for", Err: err,
			Hint: "close it from where /proc shows all of this user's processes"}
	}
	return askers, nil
}

// addSwept adds what a sweep has found to the receipt, in place of what earlier ones have
// said of the same, and says whether it ended anybody new.
func (c *closing) addSwept(w *swept) (ended bool) {
	r := &c.r
	r.Survivors = slices.DeleteFunc(r.Survivors, func(s proc.Survivor) bool {
		return slices.ContainsFunc(r.Strays, func(f Fated) bool { return f.PID == s.PID && f.Start == s.Start })
	})
	r.Survivors = append(r.Survivors, w.left...)
	for i := range w.ended {
		f := &w.ended[i]
		if at := slices.IndexFunc(r.Strays, func(o Fated) bool { return sameFated(&o, f) }); at >= 0 {
			r.Strays[at].Fate = f.Fate
			continue
		}
		r.Strays = append(r.Strays, *f)
		ended = ended || f.Fate == FateKilled
	}
	for i := range w.suspects {
		p := &w.suspects[i]
		if !slices.ContainsFunc(r.Suspects, func(o Process) bool { return sameProcess(&o, p) }) {
			r.Suspects = append(r.Suspects, *p)
		}
	}
	for _, n := range w.notes {
		if !slices.Contains(r.Notes, n) {
			c.note(n)
		}
	}
	return ended
}

// removeTries is how often a box that was entered again is emptied again.
const removeTries = 3

// remove takes the empty box away.
func (c *closing) remove(ctx context.Context) error {
	if c.rec.Kind == store.KindSystemd {
		defer c.m.turn(ctx, closeTurn)()
	}
	wait, cancel := context.WithTimeout(ctx, killTime)
	defer cancel()
	var err error
	for range removeTries {
		if c.box == nil {
			err = c.m.removeUnit(wait, &c.rec)
		} else {
			err = c.box.Remove(wait)
		}
		if !errors.Is(err, syscall.EBUSY) {
			break
		}
		// Somebody came in after the kill: a process elsewhere may move itself.
		if err := c.end(ctx); err != nil {
			return err
		}
		if len(c.r.Survivors) > 0 {
			return survivorsError(c.name(), &proc.SurvivorsError{Path: c.rec.Path, Survivors: c.r.Survivors})
		}
	}
	if c.box != nil {
		c.sweepUp()
	}
	if isUnitLeft(err) {
		c.m.store.Owe(c.rec.Unit) // the manager is told at the next open
		c.note(err.Error())
		return nil
	}
	if errors.Is(err, syscall.EBUSY) {
		return &Error{Kind: ErrSurvivors, Session: c.name(), Text: "processes keep entering its box", Err: err, Retry: true}
	}
	if err != nil {
		return fmt.Errorf("remove the box %s: %w", c.rec.Path, err)
	}
	return nil
}

// mayForget says whether a session whose close has failed may be forgotten: there is no box that
// would say that it is there, and nobody who is known to live.
func (c *closing) mayForget(ctx context.Context) bool {
	return ctx.Err() == nil && !c.o.DryRun && len(c.r.Survivors) == 0 && c.nestedErrors() == nil && (c.box == nil || c.removed)
}

// forget moves the session from the records to the history. That it is closed
// is true whatever happens here, so failures are notes.
func (c *closing) forget(ctx context.Context) error {
	if err := c.m.appendReceipt(&c.r); err != nil {
		c.note("not written to the history: " + err.Error())
	}
	wait, cancel := context.WithTimeout(ctx, forgetTime)
	defer cancel()
	if err := c.m.store.Remove(wait, c.rec.ID); err != nil {
		c.note("its record could not be removed: " + err.Error())
	}
	return nil
}

// forgetTime bounds waiting for the lock of the names: a busy machine may have
// hundreds opening and closing at once.
const forgetTime = 30 * time.Second
