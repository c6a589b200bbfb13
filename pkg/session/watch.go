package session

import (
	"slices"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// Watch is what may change by itself in a session.
type Watch struct {
	Session string // id
	Name    string
	// Ends are processes whose end is a reason to reconcile the session: its owner,
	// the commands that nobody waits for, and those who wait for the others.
	Ends []ProcessID
	// Due is when the session must be looked at though nothing ended, on the clock of
	// [proc.Clock]; 0 is never.
	Due time.Duration
	// Policy says that somebody must watch: it has an owner, an idle timeout, a task
	// whose time limit nobody else keeps, or memory that is watched.
	Policy bool
	// Memory is what concerns its memory; its zero value: nothing.
	Memory MemoryWatch
}

// Watches says what may change by itself in all sessions.
func (m *Manager) Watches() ([]Watch, error) {
	recs, _, err := m.store.Sessions()
	list := make([]Watch, 0, len(recs))
	for i := range recs {
		list = append(list, m.watch(&recs[i]))
	}
	return list, err
}

func (m *Manager) watch(rec *store.Session) Watch {
	w := Watch{Session: rec.ID, Name: rec.Name}
	if rec.State == store.StateClosed || m.mayJudge(rec) != nil {
		return w
	}
	if o := rec.Owner; o != nil {
		w.Policy = true
		if o.Lease != 0 {
			w.at(o.Ends)
		} else {
			w.Ends = append(w.Ends, proc.ID(o.Process))
		}
	}
	if rec.State == store.StateOpening {
		w.Ends = append(w.Ends, proc.ID(rec.Creator))
		return w
	}
	tasks, _, _ := m.store.Tasks(rec.ID) // what cannot be read cannot be watched
	if rec.State == store.StateOpen {
		w.Memory = memoryWatch(rec, tasks)
		if w.Memory.Lineage != "" && rec.Parent != "" {
			w.Memory.Around = m.chainOf(rec.Parent)
			slices.Reverse(w.Memory.Around)
		}
		w.Policy = w.Policy || w.Memory.Policy
	}
	s := Session{m: m, rec: *rec}
	for i := range tasks {
		t := &tasks[i]
		if t.State.Ended() || t.Moved != "" {
			continue
		}
		if t.Supervisor.PID != 0 && proc.FateOf(proc.ID(t.Supervisor)) != proc.Gone {
			w.Ends = append(w.Ends, proc.ID(t.Supervisor))
			continue
		}
		if t.Supervisor.PID != 0 && t.State != store.TaskOrphaned && t.State != store.TaskLost {
			w.at(1) // it died before anybody waited for its end: the record is to be set right
		}
		if t.PID != 0 {
			w.Ends = append(w.Ends, proc.ID(t.ID(rec.Boot)))
		}
		if due := s.timeLimit(t); due != 0 {
			w.Policy = true
			w.at(due)
		}
	}
	if rec.IdleTimeout > 0 && rec.State == store.StateOpen {
		w.Policy = true
		if due, ok := idleDue(rec, tasks); ok {
			w.at(due)
		}
	}
	return w
}

// at has the session looked at no later than then.
func (w *Watch) at(then time.Duration) {
	if w.Due == 0 || then < w.Due {
		w.Due = max(1, then)
	}
}
