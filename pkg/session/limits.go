package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// SetLimits changes ceilings of the open session; those that l does not set stay
// as they are, Max lifts one. It says of each ceiling whether it is in force. One for
// memory that is below 1.3 times what is in use is refused with [ErrTooLow]: it would
// end, or stall, what runs.
func (s *Session) SetLimits(ctx context.Context, l memlimit.Limits) ([]memlimit.Ceiling, error) {
	return s.setLimits(ctx, l, false)
}

// ForceLimits is SetLimits that takes a ceiling below what is in use, too.
func (s *Session) ForceLimits(ctx context.Context, l memlimit.Limits) ([]memlimit.Ceiling, error) {
	return s.setLimits(ctx, l, true)
}

func (s *Session) setLimits(ctx context.Context, l memlimit.Limits, force bool) ([]memlimit.Ceiling, error) {
	box, err := s.present()
	if err == nil {
		err = s.mayAct()
	}
	if err != nil {
		return nil, err
	}
	s.freeLeft(ctx)
	base, err := memlimit.FromOCI(s.rec.Limits)
	if err != nil {
		base = memlimit.Limits{} // a record of another mind; what is asked for counts
	}
	r, err := resources(l.Merge(base))
	if err != nil {
		return nil, &Error{Kind: ErrUsage, Session: s.Name(), Text: "bad ceiling", Err: err, Hint: sizesHint}
	}
	if !force {
		if err := s.bear(box, l, base); err != nil {
			return nil, err
		}
	}
	var all []memlimit.Ceiling
	if brakes(&s.rec) {
		all, err = s.limitBraked(ctx, box, r, l)
	} else if all, err = box.SetLimits(ctx, r); err == nil {
		s.recordLimits(ctx, box, r)
	}
	if err != nil {
		return nil, fmt.Errorf("set the ceilings of %s: %w", s.Name(), err)
	}
	s.m.remark(&s.rec, box, all)
	s.ceilings = all
	s.m.event(store.Event{Event: "limited", ID: s.rec.ID, Name: s.rec.Name}, map[string]any{"limits": all})
	return all, nil
}

// bear says whether the session can live under the ceilings that are about to be
// lowered, by what it holds now. Without the controller none is in force, and nothing
// is lost.
func (s *Session) bear(box Box, l, had memlimit.Limits) error {
	l, err := l.Resolve(hostTotals())
	if err != nil {
		return err
	}
	lowered := memlimit.Limits{}
	if !above(l.MemoryMax, had.MemoryMax) {
		lowered.MemoryMax = l.MemoryMax
	}
	if !above(l.MemoryHigh, had.MemoryHigh) {
		lowered.MemoryHigh = l.MemoryHigh
	}
	u, err := box.Usage("")
	if err != nil || u.Tier != memlimit.TierCgroup || u.MemoryBytes == nil {
		return nil
	}
	if err := lowered.Bear(*u.MemoryBytes); err != nil {
		return &Error{Kind: ErrTooLow, Session: s.Name(), Text: "the ceiling is refused", Err: err,
			Hint: "end what it does not need first; --force sets it all the same"}
	}
	return nil
}

// above says that a ceiling is known to be higher than another, or as high.
func above(a, b memlimit.Size) bool {
	n, ok := a.Value()
	was, had := b.Value()
	return ok && had && n >= was
}

// recordLimits notes what was set; that it cannot be noted undoes nothing.
func (s *Session) recordLimits(ctx context.Context, box Box, r *specs.LinuxResources) {
	wait, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	rec, err := s.m.store.Update(wait, s.rec.ID, func(rec *store.Session) error {
		rec.Limits = r
		return nil
	})
	switch {
	case err == nil:
		s.rec = rec
		s.markLimits(box)
	case errors.Is(err, store.ErrNotFound): // known from its box alone
	default:
		s.m.log.Warn("the ceilings are set, but could not be recorded", "err", err)
	}
}

// markLimits notes on the box what its record says.
func (s *Session) markLimits(box Box) {
	meta, err := json.Marshal(s.rec)
	if err == nil {
		err = box.SetMeta(string(meta))
	}
	if err != nil {
		s.m.log.Debug("mark the box", "err", err)
	}
}

// limitBraked sets ceilings of a session whose memory.high a guard may set or lift, under
// its lock: else the guard could lift what it does not know yet to be the user's. A
// memory.high that it has lifted stays so unless it is among those that are asked for. A
// brake goes with the ceiling that it is below: the guard sets another.
func (s *Session) limitBraked(ctx context.Context, box Box, l *specs.LinuxResources, asked memlimit.Limits) (all []memlimit.Ceiling, err error) {
	wait, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	high := asked.MemoryHigh.IsSet()
	rec, err := s.m.store.Update(wait, s.rec.ID, func(rec *store.Session) (err error) {
		set := l
		lifted := rec.Memory != nil && rec.Memory.Lifted != nil && !high
		braked := rec.Memory != nil && rec.Memory.Brake != 0 && !high && !lifted && asked.MemoryMax.IsSet()
		switch {
		case braked:
			set, err = withHigh(l, wantedHigh(rec))
		case lifted:
			set, err = withHigh(l, memlimit.Size{})
		}
		if err != nil {
			return err
		}
		if all, err = box.SetLimits(ctx, set); err != nil {
			return err
		}
		if lifted || braked {
			want, err := memlimit.FromOCI(l)
			if err != nil {
				return err
			}
			if all, err = box.Limits(want); err != nil {
				return err
			}
		}
		rec.Limits = l
		if braked {
			rec.Memory.Brake = 0
		}
		if high && rec.Memory != nil {
			rec.Memory.Brake, rec.Memory.Lifted = 0, nil
		}
		return nil
	})
	if err == nil {
		s.rec = rec
		s.markLimits(box)
	}
	return all, err
}

// withHigh is what there is to set, with another memory.high or, if that is not set, but for it.
func withHigh(l *specs.LinuxResources, high memlimit.Size) (*specs.LinuxResources, error) {
	rest, err := memlimit.FromOCI(l)
	if err != nil {
		return nil, err
	}
	rest.MemoryHigh = high
	return rest.OCI()
}

// Limits says of each ceiling of the session whether it is in force.
func (s *Session) Limits() ([]memlimit.Ceiling, error) {
	box, err := s.present()
	if err != nil {
		return nil, err
	}
	want, err := memlimit.FromOCI(s.rec.Limits)
	if err != nil {
		return nil, err
	}
	all, err := box.Limits(want)
	s.m.remark(&s.rec, box, all)
	return all, err
}

// remark says of ceilings what would put them in force, and which of them never act.
func (m *Manager) remark(rec *store.Session, box Box, all []memlimit.Ceiling) {
	fixes := map[string]string{}
	for i := range all {
		c := &all[i]
		if !c.Missing() {
			continue
		}
		if c.Why == memlimit.WhyNoSwapAccount {
			c.Fix = "boot with swapaccount=1"
			continue
		}
		name := c.Controller()
		if _, known := fixes[name]; !known {
			fixes[name] = controllerFix(rec.Kind == store.KindSystemd, box.Path(), name)
		}
		c.Fix = fixes[name]
	}
	memlimit.Remark(all, hostTotals())
	for i := range all {
		if c := &all[i]; c.File == "memory.high" && !c.Want.IsSet() && rec.Memory != nil && rec.Memory.Brake != 0 {
			c.Note = "memory.high is the guard's brake: nobody stands at it for more than 10 s"
			if _, held, err := m.store.Guard(); err == nil && !held {
				c.Note = "memory.high is a brake that was left by a guard that is gone: `sessionbox reconcile` lifts it"
			}
		}
		if c := &all[i]; c.File == "memory.high" && c.Value.IsSet() && !c.InForce && rec.Memory != nil && rec.Memory.Lifted != nil {
			c.Why = "the guard lifted it: the session stalled there"
			c.Fix = fmt.Sprintf("`sessionbox limit %s --memory-high %s` sets it again; the guard does when less than 90 %% of it is in use", cmp.Or(rec.Name, rec.ID), c.Want)
		}
	}
}
