package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// activeShare is the share of one processor that a box must use, averaged between two
// looks at it, for that to be activity. What a server that waits for requests spends
// on timers and collecting garbage is less.
const activeShare = 0.01

// IsActive says whether that much processor time in a while is activity.
func IsActive(used, in time.Duration) bool { return float64(used) >= activeShare*float64(in) }

// sampleEvery is how often the processor time of a session with this idle timeout is
// looked at: often enough for a burst of work to stand out from what is housekeeping.
func sampleEvery(timeout time.Duration) time.Duration {
	return min(max(timeout/10, 500*time.Millisecond), 5*time.Minute)
}

// lastActive is when the session was last used as far as records tell, and whether it
// is in use now: a command that somebody waits for runs in it.
func lastActive(rec *store.Session, tasks []store.Task) (last time.Duration, inUse bool) {
	last = rec.Active
	for i := range tasks {
		t := &tasks[i]
		if t.Moved != "" {
			continue
		}
		last = max(last, t.StartClock, t.EndClock)
		if !t.State.Ended() && !t.Detached && t.Supervisor.PID != 0 && proc.FateOf(proc.ID(t.Supervisor)) == proc.Alive {
			inUse = true
		}
	}
	return last, inUse
}

// idleSince is lastActive, with the sessions inside this one, which are in its box.
func (m *Manager) idleSince(rec *store.Session, tasks []store.Task, box Box) (last time.Duration, inUse bool) {
	last, inUse = lastActive(rec, tasks)
	for _, id := range m.children(rec, box) {
		child, err := m.store.Get(id)
		if err != nil {
			continue
		}
		inner, _, err := m.store.Tasks(id)
		if err != nil {
			continue
		}
		b, err := m.openBox(&child)
		if err != nil {
			continue
		}
		l, used := m.idleSince(&child, inner, b)
		b.Close()
		last, inUse = max(last, l), inUse || used
	}
	return last, inUse
}

func (m *Manager) idleInfo(rec *store.Session, box Box) *IdleInfo {
	if rec.IdleTimeout == 0 || box == nil {
		return nil
	}
	tasks, _, _ := m.store.Tasks(rec.ID) // what cannot be read is no activity
	last, inUse := m.idleSince(rec, tasks, box)
	i := &IdleInfo{TimeoutSeconds: rec.IdleTimeout.Seconds(), Action: string(rec.IdleAction), InUse: inUse}
	if i.Action == "" {
		i.Action = string(store.IdleWarn)
	}
	if !inUse {
		i.IdleSeconds = (proc.Clock() - last).Seconds()
	}
	return i
}

// idleDue is when an idle session must be looked at, false if not before something
// else changes. What is done in the sessions inside it is seen then.
func idleDue(rec *store.Session, tasks []store.Task) (time.Duration, bool) {
	last, inUse := lastActive(rec, tasks)
	if inUse { // the end of its task is a change
		return 0, false
	}
	if rec.IdleDone > last && rec.IdleAction == store.IdleFreeze {
		return 0, false // it uses nothing while it is frozen
	}
	return min(max(last+rec.IdleTimeout, rec.Sampled), rec.Sampled+sampleEvery(rec.IdleTimeout)), true
}

// judgeIdle tells whether a session was idle for too long, and does what is to be
// done but for closing it.
func (m *Manager) judgeIdle(ctx context.Context, rec *store.Session, dry bool) verdict {
	none := verdict{action: ActionNone}
	if rec.IdleTimeout == 0 || rec.State != store.StateOpen {
		return none
	}
	box, err := m.openBox(rec)
	if err != nil {
		return none
	}
	defer box.Close()
	tasks, _, err := m.store.Tasks(rec.ID)
	if err != nil {
		return none
	}
	last, inUse := m.idleSince(rec, tasks, box)
	now := proc.Clock()
	busy, sampled := sampleCPU(rec, box, now)
	if busy {
		last = now
	}
	if sampled && !dry {
		m.recordSample(ctx, rec, busy)
	}
	idle := now - last
	if inUse || idle < rec.IdleTimeout || rec.IdleDone > last {
		return none
	}
	reason := fmt.Sprintf("it was idle for %v", idle.Round(time.Second))
	still := func(r *store.Session) bool {
		tasks, _, err := m.store.Tasks(r.ID)
		if err != nil || r.State != store.StateOpen || r.IdleTimeout == 0 {
			return false
		}
		b, err := m.openBox(r) // what judgeIdle had is closed when a close asks
		if err != nil {
			return false
		}
		defer b.Close()
		last, inUse := m.idleSince(r, tasks, b)
		return !inUse && proc.Clock()-last >= r.IdleTimeout
	}
	v := verdict{action: ActionWarned, reason: reason, only: still}
	switch rec.IdleAction {
	case store.IdleClose:
		v.action = ActionEnded
		return v
	case store.IdleFreeze:
		v.action = ActionFrozen
	}
	if dry {
		return v
	}
	return m.onIdle(ctx, rec.ID, box, v)
}

// sampleCPU says whether the box used the processor since it was last asked. What
// cannot be read (a cgroup always can) is no activity.
func sampleCPU(rec *store.Session, box Box, now time.Duration) (busy, sampled bool) {
	if now-rec.Sampled < sampleEvery(rec.IdleTimeout)/2 {
		return false, false // too short to tell
	}
	u, err := box.Usage("")
	if err != nil || u.CPU == nil {
		return false, false
	}
	busy = IsActive(*u.CPU-rec.SampledCPU, now-rec.Sampled)
	rec.Sampled, rec.SampledCPU = now, *u.CPU
	return busy, true
}

func (m *Manager) recordSample(ctx context.Context, rec *store.Session, busy bool) {
	wait, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	_, err := m.store.Update(wait, rec.ID, func(r *store.Session) error {
		if r.Sampled >= rec.Sampled {
			return errNothingToDo
		}
		r.Sampled, r.SampledCPU = rec.Sampled, rec.SampledCPU
		if busy {
			r.Active = max(r.Active, rec.Sampled)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errNothingToDo) && !errors.Is(err, store.ErrNotFound) {
		m.log.Warn("note the processor time of a session", "session", rec.ID, "err", err)
	}
}

// idleFreezeTime bounds an idle freeze, which is done under the session's lock: no
// command can be started in between.
const idleFreezeTime = 2 * time.Second

// onIdle warns of an idle session or freezes it, once.
func (m *Manager) onIdle(ctx context.Context, id string, box Box, v verdict) verdict {
	wait, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	froze := false
	rec, err := m.store.Update(wait, id, func(r *store.Session) error {
		if !v.only(r) {
			return errNotAnyMore
		}
		if v.action == ActionFrozen {
			if frozen, err := box.Frozen(); err == nil && frozen {
				return errNotAnyMore // somebody else did it, and thaws it
			}
			freeze, done := context.WithTimeout(wait, idleFreezeTime)
			defer done()
			froze = true
			if err := box.Freeze(freeze); err != nil {
				return err
			}
		}
		r.IdleDone = proc.Clock()
		if froze {
			r.Hibernated = nil
		}
		return nil
	})
	if err != nil {
		if froze { // not everything stands, or it could not be written down that we did it
			box.Thaw(context.WithoutCancel(ctx))
		}
		if !errors.Is(err, errNotAnyMore) {
			m.log.Warn("an idle session", "session", id, "action", v.action, "err", err)
		}
		return verdict{action: ActionNone}
	}
	m.event(store.Event{Event: "idle", ID: id, Name: rec.Name, Msg: v.reason}, map[string]any{"action": v.action})
	if froze {
		m.event(store.Event{Event: "frozen", ID: id, Name: rec.Name, Msg: v.reason}, nil)
	}
	return v
}

// thawIdle thaws a session that was frozen for being idle; false if it was not, and
// whoever froze it wants it so.
func (s *Session) thawIdle(ctx context.Context, rec *store.Session) bool {
	if rec.IdleAction != store.IdleFreeze || rec.IdleDone == 0 {
		return false
	}
	tasks, _, err := s.m.store.Tasks(rec.ID)
	if err != nil {
		return false
	}
	if last, _ := lastActive(rec, tasks); last > rec.IdleDone {
		return false
	}
	if err := s.box.Thaw(ctx); err != nil {
		s.m.log.Warn("thaw an idle session", "session", rec.ID, "err", err)
		return false
	}
	s.m.event(store.Event{Event: "thawed", ID: rec.ID, Name: rec.Name, Msg: "a command is started in it"}, nil)
	return true
}
