package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
	"golang.org/x/sys/unix"
)

// present gives the box, or says that it is gone.
func (s *Session) present() (Box, error) {
	if s.box == nil {
		return nil, &Error{Kind: ErrBoxGone, Session: s.Name(), Text: "its box is gone, and with it all its processes",
			Hint: "`sessionbox close " + s.Name() + "` clears it away"}
	}
	return s.box, nil
}

// Freeze stops everything in the session, nested sessions included, and returns
// when the kernel says that it stands. A close ends frozen processes too.
func (s *Session) Freeze(ctx context.Context) error {
	box, err := s.freezable()
	if err != nil {
		return err
	}
	if err := s.standStill(ctx, box); err != nil {
		return err
	}
	s.freezeIsMeant(ctx)
	s.m.event(store.Event{Event: "frozen", ID: s.rec.ID, Name: s.rec.Name}, nil)
	return nil
}

// freezable gives the box, if the caller may freeze it.
func (s *Session) freezable() (Box, error) {
	box, err := s.present()
	if err != nil {
		return nil, err
	}
	if slices.Contains(s.m.ownSession(), s.rec.ID) {
		return nil, &Error{Kind: ErrUsage, Session: s.Name(), Text: "this would freeze the caller, who runs inside",
			Hint: "freeze it from outside"}
	}
	return box, s.mayAct()
}

// standStill freezes the box and returns when the kernel says that it stands.
func (s *Session) standStill(ctx context.Context, box Box) error {
	wait, cancel := context.WithTimeout(ctx, freezeTime)
	defer cancel()
	if err := box.Freeze(wait); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return &Error{Kind: ErrTimeout, Session: s.Name(), Text: "not everything stands still", Err: err, Retry: true,
				Hint: "a process in state D freezes when it leaves the kernel; `sessionbox thaw` undoes it"}
		}
		return fmt.Errorf("freeze %s: %w", s.Name(), err)
	}
	return nil
}

// freezeIsMeant notes that a session which may have been frozen for being idle or for
// want of memory, or was hibernated, is frozen because somebody wants it so: neither
// the next command nor a guard thaws it.
func (s *Session) freezeIsMeant(ctx context.Context) {
	s.noteHibernated(ctx, nil)
	if s.rec.IdleAction != store.IdleFreeze && s.rec.Memory == nil {
		return
	}
	wait, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	_, err := s.m.store.Update(wait, s.rec.ID, func(r *store.Session) error {
		changed := frozenByHand(r.Memory)
		if r.IdleDone == 0 && !changed {
			return errNothingToDo
		}
		r.IdleDone = 0
		return nil
	})
	if err != nil && !errors.Is(err, errNothingToDo) {
		s.m.log.Warn("note that a freeze is meant", "session", s.rec.ID, "err", err)
	}
}

// freezeTime bounds a freeze: what is in state D does not stop before it is out.
const freezeTime = 10 * time.Second

// Thaw lets a frozen session run on.
func (s *Session) Thaw(ctx context.Context) error {
	box, err := s.present()
	if err == nil {
		err = s.mayAct()
	}
	if err != nil {
		return err
	}
	// That it is meant is noted first: who is killed right after the thaw has left a session
	// that a guard does not freeze again at once. That it was frozen is noted until it is not:
	// who is killed before the thaw has left one that a guard still thaws.
	s.thawIsMeant(ctx, false)
	if err := box.Thaw(ctx); err != nil {
		return fmt.Errorf("thaw %s: %w", s.Name(), err)
	}
	s.m.thawAbandoned(&s.rec, box)
	s.noteHibernated(ctx, nil)
	s.thawIsMeant(ctx, true)
	s.m.event(store.Event{Event: "thawed", ID: s.rec.ID, Name: s.rec.Name}, nil)
	return nil
}

// thawIsMeant notes that a session which was frozen for want of memory was thawed by
// hand, done or about to be: a guard does not freeze it again at once.
func (s *Session) thawIsMeant(ctx context.Context, done bool) {
	if s.rec.Memory == nil {
		return
	}
	wait, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	_, err := s.m.store.Update(wait, s.rec.ID, func(r *store.Session) error {
		if r.Memory == nil || r.Memory.Frozen == 0 {
			return errNothingToDo
		}
		r.Memory.Thawed = proc.Clock()
		if done {
			r.Memory.Frozen = 0
		}
		return nil
	})
	if err != nil && !errors.Is(err, errNothingToDo) && !errors.Is(err, store.ErrNotFound) {
		s.m.log.Warn("note that a thaw is meant", "session", s.rec.ID, "err", err)
	}
}

// Frozen says whether the session is stopped.
func (s *Session) Frozen() (bool, error) {
	if s.box == nil {
		return false, nil
	}
	return s.box.Frozen()
}

// StepOut takes the calling process out of the session, if it runs inside: what
// is about to end everything there must outlive it to tell.
func (s *Session) StepOut(ctx context.Context) error {
	c := &closing{m: s.m}
	return c.stepOut(ctx, s.rec.ID)
}

// KillAll ends every task of the session, and of those inside it, with all they
// started; the sessions stay open and our own processes in them stay. It says
// how many processes it found. Something started meanwhile may live.
func (s *Session) KillAll(ctx context.Context, reason string) (int, error) {
	if s.box == nil {
		return 0, nil
	}
	if err := s.mayAct(); err != nil {
		return 0, err
	}
	return s.killAll(ctx, reason)
}

func (s *Session) killAll(ctx context.Context, reason string) (int, error) {
	wait, cancel := context.WithTimeout(ctx, killTime)
	defer cancel()
	found := 0
	var failed error
	members, err := s.box.Members("")
	if err != nil {
		return 0, err
	}
	for _, m := range members {
		if !isHelper(m) && !nestedLeaf(m.Leaf) {
			found++
		}
	}
	leaves, err := s.box.Leaves()
	if err != nil {
		return 0, err
	}
	for _, leaf := range leaves {
		if p, err := s.box.Populated(leaf); err == nil && !p {
			continue
		}
		if n := taskOfLeaf(leaf); n > 0 {
			s.markEnding(wait, n, store.TaskKilled, reason)
		}
		failed = errors.Join(failed, survivorsError(s.Name(), s.box.Kill(wait, leaf)))
	}
	for _, id := range s.m.children(&s.rec, s.box) {
		n, err := s.killNested(ctx, id, reason)
		found += n
		failed = errors.Join(failed, err)
	}
	failed = errors.Join(failed, s.killOutsideLeaves(wait))
	s.m.event(store.Event{Event: "killed", ID: s.rec.ID, Name: s.rec.Name}, map[string]any{"reason": reason, "processes": found})
	return found, failed
}

func (s *Session) killNested(ctx context.Context, id, reason string) (int, error) {
	child, err := s.m.Get(ctx, id)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrClosed) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer child.Release()
	if child.box == nil {
		return 0, nil
	}
	return child.killAll(ctx, reason)
}

// killOutsideLeaves ends processes that moved themselves out of the leaves, up or
// into directories of their own making:
// through a pidfd, after they were seen to be members with it held.
func (s *Session) killOutsideLeaves(ctx context.Context) error {
	for pass := 0; ; pass++ {
		members, err := s.box.Members("")
		if err != nil {
			return err
		}
		killed := 0
		for _, m := range members {
			if isHelper(m) || taskOfLeaf(m.Leaf) != 0 {
				continue
			}
			h, err := proc.OpenPID(m.PID)
			if err != nil {
				continue
			}
			now, err := s.box.Members("")
			if err == nil && slices.ContainsFunc(now, func(n proc.Member) bool { return n == m }) {
				killed++
				if err := h.Signal(unix.SIGKILL); err == nil {
					h.Wait(ctx)
				}
			}
			h.Close()
		}
		if killed == 0 {
			return nil
		}
		if pass == strayPassesMax || ctx.Err() != nil {
			return &Error{Kind: ErrSurvivors, Session: s.Name(), Text: fmt.Sprintf("%d processes outside of all tasks are not gone", killed), Retry: true}
		}
	}
}

const strayPassesMax = 20

// WaitFor is what [Session.Wait] waits for.
type WaitFor string

// What can be waited for.
const (
	WaitExit  WaitFor = "exit"  // the command has ended; of a session: all of them have
	WaitEmpty WaitFor = "empty" // nothing that it started is left; of a session: nothing runs in it
)

// Wait waits for one task or, with n 0, for all of the session. It returns nil
// when that has come, also because the session was closed meanwhile, and an
// error of kind [ErrTimeout] when ctx ended before.
func (s *Session) Wait(ctx context.Context, n int, f WaitFor) error {
	if s.box == nil {
		return nil
	}
	if n != 0 {
		if err := s.knowsTask(n); err != nil {
			return err
		}
	}
	var err error
	if f == WaitEmpty {
		err = s.waitEmpty(ctx, n)
	} else {
		err = s.waitExit(ctx, n)
	}
	if err != nil && ctx.Err() != nil {
		return &Error{Kind: ErrTimeout, Session: s.Name(), Text: "still running", Retry: true}
	}
	return err
}

func (s *Session) waitEmpty(ctx context.Context, n int) error {
	if n != 0 {
		h, err := s.grip(n)
		if err != nil && !errors.Is(err, proc.ErrElsewhere) {
			return err
		}
		defer h.Close()
		if err := s.box.WaitEmpty(ctx, LeafName(n)); err != nil {
			return err
		}
		return s.waitRecord(ctx, n, h)
	}
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		leaves, err := s.box.Leaves()
		if err != nil {
			return err
		}
		for _, leaf := range leaves {
			if err := s.box.WaitEmpty(ctx, leaf); err != nil {
				return err
			}
		}
		members, err := s.box.Members("")
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(members, func(m proc.Member) bool { return !isHelper(m) }) {
			return nil
		}
		// In a nested session, or outside of all leaves: rare, so looked at in
		// intervals.
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// waitExit waits for the command of a task, or of all tasks of the session.
func (s *Session) waitExit(ctx context.Context, n int) error {
	if n != 0 {
		return s.waitTask(ctx, n, nil)
	}
	for {
		tasks, _, err := s.m.store.Tasks(s.rec.ID)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		held := map[int]*proc.Handle{} // of all, before the first one is waited for
		for i := range tasks {
			if n := tasks[i].N; alive(s.stateOf(&tasks[i])) && err == nil {
				held[n], err = s.grip(n)
			}
		}
		for n, h := range held {
			if err == nil {
				err = s.waitTask(ctx, n, h)
			}
			h.Close()
		}
		if err != nil || len(held) == 0 {
			return err
		}
	}
}

// stateOf is the state of a task, with what the kernel says of it.
func (s *Session) stateOf(t *store.Task) string {
	v := view{m: s.m, rec: &s.rec, box: s.box, byTsk: map[int][]proc.Member{}}
	rec := *t
	v.correct(&rec)
	return string(rec.State)
}

// waitTask waits for the end of a command, then for the record of it.
func (s *Session) waitTask(ctx context.Context, n int, h *proc.Handle) error {
	for pause := time.Millisecond; h == nil; pause = min(2*pause, 50*time.Millisecond) {
		rec, err := s.m.store.Task(s.rec.ID, n)
		if errors.Is(err, store.ErrNotFound) {
			return nil // the session was closed
		}
		if err != nil {
			return err
		}
		if !alive(s.stateOf(&rec)) {
			return nil
		}
		if h, err = s.grip(n); err != nil {
			return err
		}
		if h != nil {
			defer h.Close()
			break
		}
		if rec.PID != 0 { // it has just ended
			break
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
	if h != nil {
		if err := h.Wait(ctx); err != nil {
			return err
		}
	}
	return s.waitRecord(ctx, n, h)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
