package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// MemoryDeed is something that a guard does to a session for want of memory. Each is
// done under the session's lock, if its record still allows it and its box still is
// the one that was looked at; else nothing is, and the error says so.
type MemoryDeed struct {
	ID    string
	Inode uint64 // of its box, as it was when this was decided
	// Reason is why, for records and people.
	Reason string
}

// errNotAllowed says that the session's record does not allow what is to be done.
var errNotAllowed = errors.New("its record does not allow it any more")

// may asks the record as it is now.
func (d *MemoryDeed) may(r *store.Session, step memlimit.Steps) error {
	switch {
	case r.State != store.StateOpen:
		return errNotAnyMore
	case r.Inode != d.Inode:
		return fmt.Errorf("its box is another one now: %w", errNotAnyMore)
	case r.Memory == nil, r.Memory.Protected:
		return errNotAllowed
	}
	if steps, err := memlimit.ParseSteps(r.Memory.Steps); err != nil || steps&step == 0 {
		return errNotAllowed
	}
	return nil
}

// memoryFreezeTime bounds a freeze, during which no command can be started.
const memoryFreezeTime = 2 * time.Second

// MemoryFreeze stops a session until there is memory again. It gives none back: it
// keeps it from taking more. One that is frozen already is left to who did that.
func (m *Manager) MemoryFreeze(ctx context.Context, d MemoryDeed) error {
	rec, err := m.memoryUpdate(ctx, &d, memlimit.MayFreeze, func(ctx context.Context, r *store.Session, box Box) error {
		if frozen, err := box.Frozen(); err == nil && frozen {
			return errors.New("it is frozen already")
		}
		return m.freezeNoted(ctx, r, box, func(r *store.Session) {
			r.Memory.Frozen, r.Memory.Thawed = proc.Clock(), 0
			r.Hibernated = nil // of an earlier time: the next command would wake it
		})
	})
	if err != nil {
		return err
	}
	m.event(store.Event{Event: "frozen", ID: rec.ID, Name: rec.Name, Msg: d.Reason}, nil)
	return nil
}

// freezeNoted freezes the box of a record whose lock is held. That it is us is written down
// first: who is killed in between leaves a note that means nothing while the session runs,
// and not one that stands still and nobody knows why.
func (m *Manager) freezeNoted(ctx context.Context, r *store.Session, box Box, note func(*store.Session)) error {
	before := *r
	if r.Memory != nil {
		policy := *r.Memory
		before.Memory = &policy
	}
	note(r)
	if err := m.store.Put(*r); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, memoryFreezeTime)
	defer cancel()
	err := box.Freeze(wait)
	if err != nil { // not everything stands
		err = errors.Join(err, box.Thaw(context.WithoutCancel(ctx)), m.store.Put(before))
	}
	return err
}

// MemoryThaw lets a session run on that [Manager.MemoryFreeze] stopped; one that was
// frozen by somebody else stays so.
func (m *Manager) MemoryThaw(ctx context.Context, d MemoryDeed) error {
	rec, err := m.memoryUpdate(ctx, &d, 0, func(ctx context.Context, r *store.Session, box Box) error {
		if r.Memory.Frozen == 0 {
			return errNotAnyMore
		}
		if err := box.Thaw(ctx); err != nil {
			return err
		}
		r.Memory.Frozen = 0
		return nil
	})
	if err == nil {
		m.event(store.Event{Event: "thawed", ID: rec.ID, Name: rec.Name, Msg: d.Reason}, nil)
	}
	return err
}

// MemoryHibernate freezes a session that nobody uses and puts it out of memory, as
// [Session.Hibernate] does: the next command in it wakes it.
func (m *Manager) MemoryHibernate(ctx context.Context, d MemoryDeed) (HibernateReport, error) {
	began := time.Now()
	rec, err := m.memoryUpdate(ctx, &d, memlimit.MayHibernate, func(ctx context.Context, r *store.Session, box Box) error {
		tasks, _, err := m.store.Tasks(r.ID)
		if err != nil {
			return err
		}
		if _, inUse := m.idleSince(r, tasks, box); inUse {
			return errNotAnyMore
		}
		if frozen, err := box.Frozen(); err == nil && frozen {
			return errors.New("it is frozen already")
		}
		return m.freezeNoted(ctx, r, box, func(r *store.Session) { r.Hibernated = &began })
	})
	if err != nil {
		return HibernateReport{}, err
	}
	box, err := m.openBox(&rec)
	if err != nil {
		return HibernateReport{}, err
	}
	defer box.Close()
	s := Session{m: m, rec: rec, box: box}
	return s.putOut(ctx, box, began), nil
}

// MemoryBrake sets memory.high of a session: what is beyond it is slowed down and
// reclaimed. That it is us is written down first: who is killed in between leaves a note
// of a brake that is not there, and not one that holds a session for ever and that nobody
// knows of. A session whose user has asked for a memory.high keeps that.
func (m *Manager) MemoryBrake(ctx context.Context, d MemoryDeed, high uint64) error {
	_, err := m.memoryUpdate(ctx, &d, memlimit.MayBrake, func(ctx context.Context, r *store.Session, box Box) error {
		if !wantedHigh(r).IsMax() {
			return errNotAllowed
		}
		r.Memory.Brake = high
		if err := m.store.Put(*r); err != nil {
			return err
		}
		err := setHigh(ctx, box, memlimit.Bytes(high))
		if err != nil { // it may be set for all that
			undo := context.WithoutCancel(ctx)
			if lifted := setHigh(undo, box, memlimit.Max()); lifted == nil || errors.Is(lifted, ErrUnsupported) {
				r.Memory.Brake = 0
				err = errors.Join(err, m.store.Put(*r))
			}
		}
		return err
	})
	return err
}

// MemoryLift takes the brake away: memory.high is what the session's user wants it to be.
func (m *Manager) MemoryLift(ctx context.Context, d MemoryDeed) error {
	_, err := m.memoryUpdate(ctx, &d, 0, func(ctx context.Context, r *store.Session, box Box) error {
		if r.Memory.Brake == 0 {
			return errNotAnyMore
		}
		if err := setHigh(ctx, box, wantedHigh(r)); err != nil {
			return err
		}
		r.Memory.Brake = 0
		return nil
	})
	return err
}

// MemoryLiftHigh lifts the memory.high that the session's user has asked for, if it still
// is that one. Who did, when and why is written down first: who is killed in between leaves
// a note of a memory.high that is in force for all that, which the kernel is asked about.
func (m *Manager) MemoryLiftHigh(ctx context.Context, d MemoryDeed, high uint64) error {
	self, err := proc.Self()
	if err != nil {
		return err
	}
	_, err = m.memoryUpdate(ctx, &d, memlimit.MayBrake, func(ctx context.Context, r *store.Session, box Box) error {
		if n, ok := wantedHigh(r).Value(); !ok || n != high {
			return errNotAnyMore
		}
		before := r.Memory.Lifted
		r.Memory.Lifted = &store.Lifted{High: high, By: store.ProcID(self), At: time.Now().UTC(), Reason: d.Reason}
		if err := m.store.Put(*r); err != nil {
			return err
		}
		err := setHigh(ctx, box, memlimit.Max())
		if err != nil && !isLifted(box) { // it may be for all that
			r.Memory.Lifted = before
			err = errors.Join(err, m.store.Put(*r))
		}
		return err
	})
	return err
}

// MemoryRestoreHigh sets the memory.high again that [Manager.MemoryLiftHigh] has lifted, if
// the session does with less than that.
func (m *Manager) MemoryRestoreHigh(ctx context.Context, d MemoryDeed) error {
	_, err := m.memoryUpdate(ctx, &d, 0, func(ctx context.Context, r *store.Session, box Box) error {
		if r.State != store.StateOpen || r.Memory.Lifted == nil || !fitsHigh(r, box) {
			return errNotAnyMore
		}
		// Without the controller there is nothing that could be lifted.
		if err := setHigh(ctx, box, wantedHigh(r)); err != nil && !errors.Is(err, ErrUnsupported) {
			return err
		}
		r.Memory.Lifted = nil
		return nil
	})
	return err
}

// isLifted asks the kernel whether a box has no memory.high now, or may have none.
func isLifted(box Box) bool {
	all, err := box.Limits(memlimit.Limits{MemoryHigh: memlimit.Max()})
	if err != nil {
		return true
	}
	for i := range all {
		if all[i].File == "memory.high" {
			return all[i].Value.IsMax()
		}
	}
	return false
}

// fitsHigh says whether what a session has is well below the memory.high that its user
// wants.
func fitsHigh(r *store.Session, box Box) bool {
	high, ok := wantedHigh(r).Value()
	if !ok {
		return true
	}
	u, err := box.Usage("")
	if err != nil || u.MemoryBytes == nil {
		return false
	}
	demand := *u.MemoryBytes
	if u.SwapBytes != nil {
		demand += *u.SwapBytes
	}
	return memlimit.FitsHigh(demand, high)
}

// restoreLeft sets a memory.high again that a guard has lifted and did not live to set, and
// says whether it did.
func (m *Manager) restoreLeft(ctx context.Context, rec *store.Session, dry bool) (bool, error) {
	if rec.State != store.StateOpen || rec.Memory == nil || rec.Memory.Lifted == nil {
		return false, nil
	}
	if _, held, err := m.store.Guard(); err != nil || held {
		return false, err
	}
	if dry {
		box, err := m.openBox(rec)
		if err != nil {
			return false, err
		}
		defer box.Close()
		return fitsHigh(rec, box), nil
	}
	err := m.MemoryRestoreHigh(ctx, MemoryDeed{ID: rec.ID, Inode: rec.Inode})
	if errors.Is(err, errNotAnyMore) {
		return false, nil
	}
	return err == nil, err
}

// wantedHigh is the memory.high that the user of a session wants, max if none was asked
// for.
func wantedHigh(r *store.Session) memlimit.Size {
	if l, err := memlimit.FromOCI(r.Limits); err == nil && l.MemoryHigh.IsSet() {
		return l.MemoryHigh
	}
	return memlimit.Max()
}

// brakes says whether a guard may set or lift the memory.high of a session, or has.
func brakes(r *store.Session) bool {
	if r.Memory == nil {
		return false
	}
	steps, _ := memlimit.ParseSteps(r.Memory.Steps)
	return r.Memory.Brake != 0 || r.Memory.Lifted != nil || steps&memlimit.MayBrake != 0
}

// liftLeft takes away a brake that a guard has left behind, and says whether it did. One
// that is there keeps its brakes.
func (m *Manager) liftLeft(ctx context.Context, rec *store.Session, dry bool) (bool, error) {
	if rec.State != store.StateOpen || rec.Memory == nil || rec.Memory.Brake == 0 {
		return false, nil
	}
	if _, held, err := m.store.Guard(); err != nil || held {
		return false, err
	}
	if dry {
		return true, nil
	}
	err := m.MemoryLift(ctx, MemoryDeed{ID: rec.ID, Inode: rec.Inode})
	if errors.Is(err, errNotAnyMore) {
		return false, nil
	}
	return err == nil, err
}

// freeLeft takes such a brake away from a session that is about to be used.
func (s *Session) freeLeft(ctx context.Context) {
	if s.rec.Memory == nil {
		return
	}
	rec, err := s.m.store.Get(s.rec.ID)
	if err == nil {
		_, err = s.m.liftLeft(ctx, &rec, false)
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		s.m.log.Warn("lift the brake that a guard has left", "session", s.rec.ID, "err", err)
	}
}

func setHigh(ctx context.Context, box Box, high memlimit.Size) error {
	l := memlimit.Limits{MemoryHigh: high}
	r, err := l.OCI()
	if err != nil {
		return err
	}
	all, err := box.SetLimits(ctx, r)
	if err != nil {
		return err
	}
	for i := range all {
		if all[i].File == "memory.high" && !all[i].InForce {
			return &Error{Kind: ErrUnsupported, Text: "memory.high is not in force: " + all[i].Why}
		}
	}
	return nil
}

// MemoryClose closes a session because there is no memory, with that much grace. What serves
// others is ended with it: it may be what takes the memory, and nobody watches what was spared.
func (m *Manager) MemoryClose(ctx context.Context, d MemoryDeed, grace time.Duration) (Receipt, error) {
	return m.closeID(ctx, d.ID, CloseOptions{Grace: &grace, Reason: d.Reason, Shared: SharedInclude,
		only: func(r *store.Session) bool { return d.may(r, memlimit.MayClose) == nil }}, true)
}

// memoryUpdate does something to the box and to the record of a session, in one.
func (m *Manager) memoryUpdate(ctx context.Context, d *MemoryDeed, step memlimit.Steps, do func(context.Context, *store.Session, Box) error) (store.Session, error) {
	wait, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	return m.store.Update(wait, d.ID, func(r *store.Session) error {
		if step == 0 && r.Memory == nil {
			return errNotAnyMore
		}
		if step != 0 {
			if err := d.may(r, step); err != nil {
				return err
			}
		}
		box, err := m.openBox(r)
		if err != nil {
			return err
		}
		defer box.Close()
		return do(wait, r, box)
	})
}

// frozenByHand notes in a record that somebody has frozen the session by hand: a guard
// does not undo it.
func frozenByHand(p *store.MemoryPolicy) (changed bool) {
	if p == nil || p.Frozen == 0 {
		return false
	}
	p.Frozen = 0
	return true
}
