package session

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// The end of a command is recorded by its supervisor, who has its status as its parent.
// Where there is none any more, or never was (exec --replace), whoever holds a pidfd of
// the command can learn the status from the kernel (6.15) and record it here.

// RecordEnd records how the command of a task ended, for one who learned its status
// elsewhere than by [Task.Wait]. It can be called by several at once and again: an end
// that is recorded stays as it is, and one that a living supervisor is about to record is
// left to it, as it may know better why. The error is of kind [ErrUsage] when the command
// still runs.
func (m *Manager) RecordEnd(ctx context.Context, id string, task int, ws syscall.WaitStatus) error {
	s, err := m.Get(ctx, id)
	if err != nil {
		return err
	}
	defer s.Release()
	err = s.recordEnd(ctx, task, ws)
	if errors.Is(err, errAlreadyEnded) || errors.Is(err, errSupervised) {
		return nil
	}
	return err
}

// toldEnd says whether a record tells how the command ended, and not just that it has: a
// reconcile notes the latter. What was never started has no status to come.
func toldEnd(t *store.Task) bool {
	return t.State.Ended() && (t.Exit != nil || t.Signal != "" || t.PID == 0)
}

var errSupervised = errors.New("its supervisor will record its end")

func (s *Session) recordEnd(ctx context.Context, n int, ws syscall.WaitStatus) error {
	r := resultOf(ws)
	leftovers := 0
	if s.box != nil {
		rec, err := s.m.store.Task(s.rec.ID, n)
		if err != nil {
			rec = store.Task{N: n}
		}
		y := s.m.tally(s.box, &s.rec, &rec)
		r.tallied(&y, &rec)
		members, _ := s.box.Members(LeafName(n))
		leftovers = len(members)
	}
	wait, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	_, err := s.m.store.UpdateTask(wait, s.rec.ID, n, func(rec *store.Task) error {
		switch {
		case toldEnd(rec):
			return errAlreadyEnded
		case rec.Supervisor.PID != 0 && proc.FateOf(proc.ID(rec.Supervisor)) != proc.Gone:
			return errSupervised
		case rec.PID == 0 || proc.FateOf(proc.ID(rec.ID(s.rec.Boot))) == proc.Alive:
			return &Error{Kind: ErrUsage, Session: s.Name(), Text: fmt.Sprintf("the command of task %d has not ended", n)}
		}
		at := time.Now()
		if rec.State.Ended() { // its status was not known to who noted it
			if rec.Ended != nil {
				at = *rec.Ended
			}
			if rec.State == store.TaskTimedOut || rec.State == store.TaskKilled || rec.State == store.TaskOOMKilled {
				rec.Ending = rec.State
			}
		}
		r.put(rec, at, s.closing())
		return nil
	})
	if err != nil {
		return err
	}
	if s.box != nil && leftovers == 0 {
		if err := s.box.RemoveLeaf(LeafName(n)); err != nil {
			s.m.log.Debug("remove the leaf", "task", n, "err", err)
		}
	}
	s.m.event(store.Event{Event: "task_ended", ID: s.rec.ID, Name: s.rec.Name, Task: n},
		r.detail(leftovers))
	return nil
}

// grip gives a handle on the command of a task, nil if it does not run.
func (s *Session) grip(n int) (*proc.Handle, error) {
	rec, err := s.m.store.Task(s.rec.ID, n)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil || rec.PID == 0 || rec.State.Ended() {
		return nil, err
	}
	h, err := proc.Open(proc.ID(rec.ID(s.rec.Boot)))
	if errors.Is(err, proc.ErrGone) || errors.Is(err, proc.ErrReused) {
		return nil, nil
	}
	return h, err
}

// recordTime is how long the record of an end may lag behind the end.
const recordTime = 2 * time.Second

// waitRecord waits for the record of a command's end, and makes it where nobody else
// will. h, which may be nil, was held when the command ended.
func (s *Session) waitRecord(ctx context.Context, n int, h *proc.Handle) error {
	wait, cancel := context.WithTimeout(ctx, recordTime)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		rec, err := s.m.store.Task(s.rec.ID, n)
		if errors.Is(err, store.ErrNotFound) {
			return nil // the session was closed
		}
		if err != nil {
			return err
		}
		if toldEnd(&rec) || rec.State.Ended() && h == nil {
			return nil
		}
		// The order matters: what is reaped has a status, if the kernel keeps it at all.
		reaped := h == nil || !inProc(h)
		ws, known := syscall.WaitStatus(0), false
		if h != nil {
			ws, known = h.ExitStatus()
		}
		if known {
			if err := s.recordEnd(wait, n, ws); err != nil && !errors.Is(err, errSupervised) && !errors.Is(err, errAlreadyEnded) {
				s.m.log.Debug("record the end", "task", n, "err", err)
			}
		} else if reaped && !alive(s.stateOf(&rec)) {
			return nil // nobody will tell
		}
		if sleep(wait, pause) != nil {
			return ctx.Err()
		}
	}
}

// inProc says whether the process is still there, be it as a zombie.
func inProc(h *proc.Handle) bool {
	st, err := proc.ReadStat(h.PID())
	return err == nil && st.State == 'Z'
}
