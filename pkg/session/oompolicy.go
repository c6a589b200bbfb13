package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/sessionbox/sessionbox/pkg/store"
)

// OOMInfo is what the kernel kills when a task runs out of memory, if that was asked for.
type OOMInfo struct {
	Policy string `json:"policy"` // process, task
	// InForce is false where the kernel cannot be told; Why then says why.
	InForce bool   `json:"in_force"`
	Why     string `json:"why,omitempty"`
	Fix     string `json:"fix,omitempty"`
}

func checkOOM(p store.OOMPolicy) error {
	switch p {
	case "", store.OOMProcess, store.OOMTask:
		return nil
	}
	return &Error{Kind: ErrUsage, Text: fmt.Sprintf("out of memory: not %q", p), Hint: "want process or task"}
}

// oomInfo says what holds of a session's policy, nil if it has none.
func oomInfo(rec *store.Session, box Box) *OOMInfo {
	if rec.OOMPolicy == "" {
		return nil
	}
	i := &OOMInfo{Policy: string(rec.OOMPolicy), InForce: true}
	if rec.OOMPolicy == store.OOMTask && (box == nil || !box.LeafMemory()) {
		i.InForce, i.Why = false, "memory controller not delegated"
		if box == nil {
			i.Why = "its box is gone"
		} else {
			i.Fix = controllerFix(rec.Kind == store.KindSystemd, box.Path(), "memory")
		}
	}
	return i
}

// dieTogether has all of a task that is about to be started die with the first of it
// that the kernel kills for want of memory, if the session has it so. Where it cannot
// be had that is told of the session, and the task starts all the same.
func (s *Session) dieTogether(ctx context.Context, leaf string) {
	if s.rec.OOMPolicy != store.OOMTask {
		return
	}
	_, err := s.box.Prepare(ctx, leaf)
	if err == nil {
		err = s.box.OOMGroup(leaf, true)
	}
	if err != nil {
		s.m.log.Debug("have a task die together", "leaf", leaf, "err", err)
	}
}

// OOM is what holds of the session's policy, nil if it has none.
func (s *Session) OOM() *OOMInfo { return oomInfo(&s.rec, s.box) }

// SetOOM changes what the kernel kills when a task of the session runs out of memory,
// also of those that run. A [Session] that was had before goes by what it was then.
func (s *Session) SetOOM(ctx context.Context, p store.OOMPolicy) (*OOMInfo, error) {
	box, err := s.present()
	if err == nil {
		err = errors.Join(s.mayAct(), checkOOM(p))
	}
	if err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	rec, err := s.m.store.Update(wait, s.rec.ID, func(r *store.Session) error {
		r.OOMPolicy = p
		return nil
	})
	if err != nil { // the tasks to come are told by it
		return nil, recordError(err)
	}
	s.rec = rec
	leaves, err := box.Leaves()
	if err != nil {
		return nil, err
	}
	for _, leaf := range leaves {
		if err := box.OOMGroup(leaf, p == store.OOMTask); err != nil {
			s.m.log.Debug("change what dies with a task", "leaf", leaf, "err", err)
		}
	}
	s.m.event(store.Event{Event: "limited", ID: s.rec.ID, Name: s.rec.Name}, map[string]any{"oom_policy": s.OOM()})
	return s.OOM(), nil
}
