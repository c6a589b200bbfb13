package session

import (
	"context"
	"errors"
	"time"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// HibernateReport is what hibernating a session has done. It stands still in any case.
type HibernateReport struct {
	Schema int    `json:"schema"`
	ID     string `json:"id"`
	Name   string `json:"name,omitempty"`
	// ReclaimedBytes is how much less memory it takes, page cache included; SwapBytes
	// what it has in swap; StayedBytes what it holds in memory that could go there.
	ReclaimedBytes uint64 `json:"reclaimed_bytes"`
	SwapBytes      uint64 `json:"swap_bytes"`
	StayedBytes    uint64 `json:"stayed_bytes"`
	// Complete says that all went that could; else Why says why not, and Hint what
	// would help.
	Complete    bool    `json:"complete"`
	Why         string  `json:"why,omitempty"`
	Hint        string  `json:"hint,omitempty"`
	TookSeconds float64 `json:"took_seconds"`
}

// Hibernate freezes the session and puts what it holds out of memory. A thaw wakes it,
// and so does the next command that is started in it. It is recorded before it is done:
// one that was broken off, at any point, has left a session that is frozen, or not, and
// wakes likewise.
//
// Where nothing can be put out of memory the session is frozen all the same, and the
// report says why. The errors are those of [Session.Freeze].
func (s *Session) Hibernate(ctx context.Context) (HibernateReport, error) {
	began := time.Now()
	box, err := s.freezable()
	if err != nil {
		return HibernateReport{Schema: Schema, ID: s.rec.ID, Name: s.rec.Name}, err
	}
	s.noteHibernated(ctx, &began)
	if err := s.standStill(ctx, box); err != nil {
		return HibernateReport{Schema: Schema, ID: s.rec.ID, Name: s.rec.Name}, err
	}
	return s.putOut(ctx, box, began), nil
}

// putOut puts what a session that stands still holds out of memory.
func (s *Session) putOut(ctx context.Context, box Box, began time.Time) HibernateReport {
	r := HibernateReport{Schema: Schema, ID: s.rec.ID, Name: s.rec.Name}
	done, err := box.Reclaim(ctx)
	if err != nil {
		s.m.log.Warn("put a session out of memory", "session", s.rec.ID, "err", err)
		done.Why = err.Error()
	}
	r.ReclaimedBytes, r.SwapBytes, r.StayedBytes = done.Bytes(), done.SwapBytes, done.StayedBytes
	if r.Complete = done.Complete(); !r.Complete {
		r.Why, r.Hint = done.Why, s.hintFor(done.Why, box)
	}
	r.TookSeconds = time.Since(began).Seconds()
	s.m.event(store.Event{Event: "hibernated", ID: s.rec.ID, Name: s.rec.Name, Msg: r.Why}, r)
	return r
}

// hintFor says what would let more of a session be put out of memory.
func (s *Session) hintFor(why string, box Box) string {
	switch why {
	case memlimit.WhyNoSwap:
		return "it takes swap to put it out of memory: a swap file, or zram"
	case memlimit.WhyNoController:
		return controllerFix(s.rec.Kind == store.KindSystemd, box.Path(), "memory")
	}
	return ""
}

// noteHibernated notes since when the session is hibernated, nil that it is not: who
// wakes it is told by that, and a freeze that is meant is another thing. That it cannot
// be noted stops nothing: it is frozen then.
func (s *Session) noteHibernated(ctx context.Context, at *time.Time) {
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockTime)
	defer cancel()
	_, err := s.m.store.Update(wait, s.rec.ID, func(r *store.Session) error {
		if at == nil && r.Hibernated == nil {
			return errNothingToDo
		}
		r.Hibernated = at
		return nil
	})
	if err != nil && !errors.Is(err, errNothingToDo) && !errors.Is(err, store.ErrNotFound) {
		s.m.log.Warn("note that a session is hibernated", "session", s.rec.ID, "err", err)
	}
}

// wake thaws a session that was hibernated, or that lies in one that was, as a command is
// about to be started in it; false if it stands still all the same. Records say so
// still: only who is frozen is hibernated.
func (s *Session) wake(ctx context.Context, rec *store.Session) bool {
	woken := rec.Hibernated != nil
	if woken {
		s.m.thawHibernated(ctx, rec, s.box)
	}
	for at := rec.Parent; at != ""; {
		outer, err := s.m.store.Get(at)
		if err != nil {
			break
		}
		if outer.Hibernated != nil {
			if box, err := s.m.openBox(&outer); err == nil {
				woken = true
				s.m.thawHibernated(ctx, &outer, box)
				box.Close()
			}
		}
		at = outer.Parent
	}
	for range wakeLooks { // the last of them may be on its way
		if frozen, err := s.box.Frozen(); err != nil || !frozen || !woken {
			return err == nil && !frozen
		}
		if sleep(ctx, wakePause) != nil {
			break
		}
	}
	return false
}

// How often, and after how long each time, a box that was thawed is looked at.
const (
	wakeLooks = 50
	wakePause = 10 * time.Millisecond
)

func (m *Manager) thawHibernated(ctx context.Context, rec *store.Session, box Box) {
	if err := box.Thaw(ctx); err != nil {
		m.log.Warn("wake a hibernated session", "session", rec.ID, "err", err)
		return
	}
	m.event(store.Event{Event: "thawed", ID: rec.ID, Name: rec.Name, Msg: "a command is started in it"}, nil)
}
