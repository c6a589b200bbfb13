package session

import (
	"fmt"
	"path/filepath"
	"syscall"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// What the kernel killed for want of memory is counted in the directories of a box. It is
// put into the record of a task before its leaf is removed: after a crash in between the
// leaf is there still, and with it the count.

// mark gives a mark for a record, nil when nothing was counted.
func mark(m memlimit.Mark) *memlimit.Mark {
	if m.Zero() {
		return nil
	}
	return &m
}

// sinceOpened is what had been counted around a session's box when it was made.
func sinceOpened(rec *store.Session) memlimit.Mark {
	if rec.Mark == nil {
		return memlimit.Mark{}
	}
	return memlimit.Mark{OOMs: rec.Mark.OOMs}
}

// sinceStarted is what had been counted in the box when a task was started, and around
// it when the box was made.
func sinceStarted(rec *store.Session, t *store.Task) memlimit.Mark {
	if t.Mark == nil {
		return sinceOpened(rec)
	}
	return t.Mark.Over(sinceOpened(rec))
}

// tally reads what is known of a task only while its leaf is there.
func (m *Manager) tally(box Box, rec *store.Session, t *store.Task) memlimit.Tally {
	y := box.Tally(LeafName(t.N), sinceStarted(rec, t), true)
	m.called(y.OOM, rec, t.N)
	return y
}

// oomOf is what the kernel killed of the whole session, nil when nothing was.
func (m *Manager) oomOf(box Box, rec *store.Session, who bool) *memlimit.Kill {
	k := box.Tally("", sinceOpened(rec), who).OOM
	m.called(k, rec, 0)
	return k
}

// victimsOf names who was killed in a session by what is recorded of its tasks, where
// the kernel's log does not tell.
func victimsOf(k *memlimit.Kill, tasks []TaskInfo) {
	if k == nil || len(k.Victims) > 0 {
		return
	}
	for i := range tasks {
		if o := tasks[i].OOM; o != nil {
			k.Victims = append(k.Victims, o.Victims...)
		}
	}
	if uint64(len(k.Victims)) > k.Processes {
		k.Victims = nil // of the time before it lost its box
	}
}

// called gives the place whose limit it was the name that people know it by.
func (m *Manager) called(k *memlimit.Kill, rec *store.Session, task int) {
	if k == nil {
		return
	}
	switch p := &k.Limit; {
	case p.Kind == memlimit.KindTask:
		p.Name, p.Session = fmt.Sprintf("%s/%d", nameOf(rec), task), rec.ID
	case p.Session == rec.ID:
		p.Name = nameOf(rec)
	case p.Session != "": // the session around it
		if outer, err := m.store.Get(p.Session); err == nil {
			p.Name = nameOf(&outer)
		}
	}
}

func nameOf(rec *store.Session) string {
	if rec.Name != "" {
		return rec.Name
	}
	return rec.ID
}

// shellKilled is the status with which a shell ends whose command was ended by SIGKILL.
const shellKilled = 128 + int(syscall.SIGKILL)

// outOfMemory says whether a command ended because the kernel killed it, or all that it
// waited for, for want of memory. ours says that we have killed it, too: then it must be
// among the known victims.
func outOfMemory(k *memlimit.Kill, pid int, signal syscall.Signal, exit int, ours bool) bool {
	switch {
	case k == nil:
		return false
	case k.Of(pid):
		return true
	case ours:
		return false
	}
	return signal == syscall.SIGKILL || signal == 0 && exit == shellKilled
}

// tallied puts what is known of the task into the result of its end.
func (r *Result) tallied(y *memlimit.Tally, rec *store.Task) {
	r.PeakBytes, r.OOM, r.shared = y.PeakBytes, y.OOM, y.Shared
	if !y.Counted && r.Signal == syscall.SIGKILL {
		r.OOM = logged(rec)
	}
}

// before takes into the result what was recorded when the task was moved.
func (r *Result) before(rec *store.Task) {
	if r.OOM == nil && rec.OOM != nil {
		k := *rec.OOM
		r.OOM = &k
	}
	if rec.PeakBytes != nil && (r.PeakBytes == nil || *r.PeakBytes < *rec.PeakBytes) {
		r.PeakBytes = rec.PeakBytes
	}
}

// explain puts what the kernel killed of a task into the result of its end. ours as in
// outOfMemory.
func (r *Result) explain(rec *store.Task, ours bool) {
	if r.OOM == nil {
		return
	}
	if outOfMemory(r.OOM, rec.PID, r.Signal, r.Exit, ours) {
		// Its own command is who was killed, when only one was and nobody names it.
		if r.Signal == syscall.SIGKILL && r.OOM.Processes == 1 && len(r.OOM.Victims) == 0 && len(rec.Argv) > 0 {
			r.OOM.Victims = []memlimit.Victim{{PID: rec.PID, Comm: filepath.Base(rec.Argv[0])}}
		}
		r.State, r.Reason = store.TaskOOMKilled, r.OOM.String()
		return
	}
	if r.shared {
		r.OOM = nil
		return
	}
	if r.Reason == "" {
		r.Reason = r.OOM.String()
	} else {
		r.Reason += "; before that " + r.OOM.String()
	}
}
