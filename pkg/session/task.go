package session

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/keeper"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// Task is a command that this process started in a session.
type Task struct {
	s   *Session
	rec store.Task
	cmd *exec.Cmd
	tie bond
	log *taskLog // nil without a log
	// below is the command where cmd is only what stands for it, in a lineage box.
	below *keeper.Command

	mu       sync.Mutex
	ended    bool
	timedOut bool
	stop     func()
	limited  chan struct{} // closed when a timeout that fired has done its work
}

// Result is how a task ended.
type Result struct {
	State     store.TaskState
	Exit      int            // exit status, -1 when a signal ended it
	Signal    syscall.Signal // 0 when it exited
	Reason    string
	Leftovers int // processes that outlived the command
	// LostBytes of its output are not in the log, or came too fast to be shown; LostWhy
	// says why, if it is not the latter.
	LostBytes int64
	LostWhy   string
	PeakBytes *uint64
	// OOM is what the kernel killed of it for want of memory, nil when nothing was.
	OOM  *memlimit.Kill
	Took time.Duration

	shared bool // OOM may be another task's
}

// Session is where the task runs; another than it was started in if it was to be kept.
func (t *Task) Session() *Session { return t.s }

// N is the task's number in its session.
func (t *Task) N() int { return t.rec.N }

// PID of the command.
func (t *Task) PID() int { return t.rec.PID }

// Wait waits for the command, not for what it left behind, and records its end. What
// a command with a log wrote is shown completely before Wait returns.
// The error is for what kept us from knowing; a failing command is none.
func (t *Task) Wait() (Result, error) {
	done, kept := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(kept)
		if t.tie != nil {
			t.keepTied(done)
		}
	}()
	err := t.cmd.Wait()
	status, told := t.status()
	now := time.Now()
	t.log.ended()
	close(done)
	// A tie made anew after this and never released would look like our death,
	// and what the command left behind on purpose would be ended.
	<-kept
	t.mu.Lock()
	t.ended = true
	if t.stop != nil {
		t.stop()
	}
	tie, timedOut := t.tie, t.timedOut
	t.mu.Unlock()
	if timedOut {
		<-t.limited // it ends all that the command started, not the command alone
	}
	if t.cmd.ProcessState == nil {
		return Result{}, fmt.Errorf("wait for task %d: %w", t.rec.N, err)
	}
	t.follow()
	if !told {
		status = t.cmd.ProcessState.Sys().(syscall.WaitStatus)
	}
	r := resultOf(status)
	if timedOut {
		r.State, r.Reason = store.TaskTimedOut, "timed out after "+t.rec.Timeout.String()
	}
	r.Took = now.Sub(t.rec.Started)
	y := t.s.m.tally(t.s.box, &t.s.rec, &t.rec)
	r.tallied(&y, &t.rec)
	r.Leftovers = t.finish(&r, now)
	if tie != nil {
		tie.Release()
	}
	r.LostBytes, r.LostWhy = t.log.shown()
	return r, nil
}

// status is how the command ended where it is not cmd; false if that does not tell.
func (t *Task) status() (syscall.WaitStatus, bool) {
	if t.below == nil {
		return 0, false
	}
	return t.below.Status()
}

// follow goes after a task that was kept while it ran: it is one of another session
// now.
func (t *Task) follow() {
	rec, err := t.s.m.store.Task(t.s.rec.ID, t.rec.N)
	if err == nil && rec.Moved == "" {
		return
	}
	if s, n, ok := t.s.m.whereKept(t.s.rec.ID, &t.rec); ok {
		t.s, t.rec.N, t.rec.Leaf = s, n, LeafName(n)
	}
}

// Hide ends the showing of the output of a command with a log that has ended: Wait
// need not wait for whoever does not read it. Before that end it does nothing.
func (t *Task) Hide() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		t.log.hide()
	}
}

// resultOf is what a wait status tells.
func resultOf(ws syscall.WaitStatus) Result {
	r := Result{Exit: ws.ExitStatus(), State: store.TaskExited}
	switch {
	case ws.Signaled():
		r.State, r.Signal = store.TaskSignaled, ws.Signal()
	case r.Exit != 0:
		r.State = store.TaskFailed
	}
	return r
}

// put writes the end into a task's record. What was noted before about who ends it
// counts for more than the status.
func (r *Result) put(rec *store.Task, now time.Time, closing bool) {
	ours := rec.Ending != "" || closing || r.State == store.TaskTimedOut
	if rec.Ending != "" && r.State != store.TaskExited && r.State != store.TaskTimedOut {
		r.State, r.Reason = rec.Ending, rec.Reason
	}
	if r.Signal != 0 && r.State == store.TaskSignaled && closing {
		r.State, r.Reason = store.TaskKilled, "the session was closed"
	}
	r.before(rec)
	r.explain(rec, ours)
	rec.State, rec.Reason, rec.Ended, rec.PeakBytes, rec.OOM = r.State, r.Reason, &now, r.PeakBytes, r.OOM
	rec.EndClock = proc.Clock()
	if r.Signal != 0 {
		rec.Signal = signalName(r.Signal)
	} else {
		rec.Exit = &r.Exit
	}
}

// detail is what the history says of the end.
func (r *Result) detail(leftovers int) map[string]any {
	d := map[string]any{"state": r.State, "exit": r.Exit, "leftovers": leftovers}
	if r.PeakBytes != nil {
		d["peak_bytes"] = *r.PeakBytes
	}
	if r.OOM != nil {
		d["oom"], d["reason"] = r.OOM, r.Reason
	}
	return d
}

// finish records the end and clears an empty leaf away.
func (t *Task) finish(r *Result, now time.Time) (leftovers int) {
	ctx, cancel := context.WithTimeout(context.Background(), lockTime)
	defer cancel()
	err := t.recordEnd(ctx, r, now)
	if errors.Is(err, errMoved) {
		t.follow()
		if err = t.recordEnd(ctx, r, now); errors.Is(err, errMoved) {
			err = nil // a keep that was broken off: its new record is another's to correct
		}
	}
	members, _ := t.s.box.Members(t.rec.Leaf)
	leftovers = len(members)
	if errors.Is(err, store.ErrNotFound) { // closed meanwhile: close has recorded it
		r.State, r.Reason = store.TaskKilled, "the session was closed"
		r.explain(&t.rec, true)
	} else if err != nil && !errors.Is(err, errAlreadyEnded) {
		t.s.m.log.Warn("record the end", "task", t.rec.N, "err", err)
	}
	if leftovers == 0 {
		if err := t.s.box.RemoveLeaf(t.rec.Leaf); err != nil {
			t.s.m.log.Debug("remove the leaf", "task", t.rec.N, "err", err)
		}
	}
	if t.rec.N%pruneEvery == 0 {
		t.s.prune(ctx)
	}
	t.s.m.event(store.Event{Event: "task_ended", ID: t.s.rec.ID, Name: t.s.rec.Name, Task: t.rec.N},
		r.detail(leftovers))
	return leftovers
}

// A long session runs thousands of commands: of those that ended and left
// nothing, the records of the newest stay, the history has all.
const (
	pruneEvery = 64
	pruneKeep  = 500
)

func (s *Session) prune(ctx context.Context) {
	_, err := s.m.store.PruneTasks(ctx, s.rec.ID, pruneKeep, func(t store.Task) bool {
		p, err := s.box.Populated(LeafName(t.N))
		return err != nil || p
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		s.m.log.Debug("remove old records of tasks", "err", err)
	}
}

// errMoved says that a task is one of another session now.
var errMoved = errors.New("it was kept")

func (t *Task) recordEnd(ctx context.Context, r *Result, now time.Time) error {
	_, err := t.s.m.store.UpdateTask(ctx, t.s.rec.ID, t.rec.N, func(rec *store.Task) error {
		switch {
		case rec.State.Ended():
			r.State, r.Reason, r.OOM = rec.State, rec.Reason, rec.OOM
			return errAlreadyEnded
		case rec.Moved != "": // since we looked
			return errMoved
		}
		rec.PID, rec.Start = t.rec.PID, t.rec.Start
		r.put(rec, now, r.Signal != 0 && t.s.closing())
		return nil
	})
	return err
}

// closing says whether somebody is closing the session.
func (s *Session) closing() bool {
	rec, err := s.m.store.Get(s.rec.ID)
	return err == nil && rec.State != store.StateOpen
}

var errAlreadyEnded = errors.New("its end is recorded already")

// fail records that the command could not be started.
func (t *Task) fail(cause error) {
	if t.tie != nil {
		t.tie.Release()
	}
	t.log.remove(t)
	now := time.Now()
	t.rec.State, t.rec.Reason, t.rec.Ended = store.TaskFailed, "not started: "+cause.Error(), &now
	if err := t.s.m.store.PutTask(t.s.rec.ID, t.rec); err != nil {
		t.s.m.log.Debug("record the failed start", "err", err)
	}
	t.s.box.RemoveLeaf(t.rec.Leaf)
}

// keepTied renews the tie when the anchor was killed, until done is closed. Only it
// touches the tie meanwhile.
func (t *Task) keepTied(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-t.tie.Lost():
		}
		t.tie.Drop()
		ctx, cancel := context.WithTimeout(context.Background(), lockTime)
		lock, err := t.s.enter(ctx) // not while it is being closed
		if err == nil {
			var tie bond
			if tie, err = t.s.tie(ctx, &t.rec); err == nil {
				t.tie = tie
			}
			lock.Unlock()
		}
		cancel()
		if err != nil {
			t.s.m.log.Warn("the session's anchor is gone and cannot be started again", "err", err)
			return
		}
	}
}

// Signal sends sig to the command's process group, as a terminal does, to those
// of it that are in the task's leaf: what moved to a session of its own is left
// alone. Each is signalled through a pidfd.
//
// In a container it is the command alone, and who waits for it hands on what a process
// can catch; what none can goes to all in the leaf.
func (t *Task) Signal(sig syscall.Signal) error {
	switch {
	case t.s.IsContainer() && (sig == syscall.SIGKILL || sig == syscall.SIGSTOP):
		_, err := t.s.box.Signal(context.Background(), t.rec.Leaf, sig)
		return err
	case t.s.IsContainer():
		return t.cmd.Process.Signal(sig)
	}
	pgid := t.rec.PID
	if t.below != nil { // it may be in a group that it was started in
		if st, err := proc.ReadStat(pgid); err == nil && st.Start == t.rec.Start {
			pgid = st.PGID
		}
	}
	return signalGroup(t.s.box, t.rec.Leaf, pgid, sig)
}

// Kill ends the task with everything it started and returns when it is empty.
func (t *Task) Kill(ctx context.Context) error {
	return t.s.killTask(ctx, t.rec.N, "killed by its starter")
}

// limitTime ends the task when its time is over.
func (t *Task) limitTime(limit, killAfter time.Duration) {
	if killAfter <= 0 {
		killAfter = t.s.rec.Grace
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.stop, t.limited = cancel, make(chan struct{})
	go func() {
		defer close(t.limited)
		select {
		case <-ctx.Done():
			return
		case <-time.After(limit):
		}
		if rec, err := t.s.m.store.Task(t.s.rec.ID, t.rec.N); err == nil && rec.Moved != "" {
			return // it was kept, which is to last
		}
		t.mu.Lock()
		t.timedOut = !t.ended
		ended := t.ended
		t.mu.Unlock()
		if ended {
			return // what is left now was left on purpose
		}
		if err := endLeaf(context.Background(), t.s.box, t.rec.Leaf, killAfter); err != nil {
			t.s.m.log.Error("end a task that is out of time", "task", t.rec.N, "err", err)
		}
	}()
}

// endLeaf asks all in a leaf to end, and kills them when they have not in time.
func endLeaf(ctx context.Context, box Box, leaf string, grace time.Duration) error {
	soft, stop := context.WithTimeout(ctx, grace)
	defer stop()
	box.Signal(soft, leaf, syscall.SIGTERM) // the kill reaches whom this does not
	box.Signal(soft, leaf, syscall.SIGCONT)
	if box.WaitEmpty(soft, leaf) == nil {
		return nil
	}
	hard, done := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer done()
	return box.Kill(hard, leaf)
}

// killTime bounds a kill: what is still there then is in D state.
const killTime = 10 * time.Second

// KillTask ends one task with everything it started; the session lives on.
func (s *Session) KillTask(ctx context.Context, n int, reason string) error {
	if err := s.mayAct(); err != nil {
		return err
	}
	return s.killTask(ctx, n, reason)
}

func (s *Session) killTask(ctx context.Context, n int, reason string) error {
	if s.box == nil {
		return nil
	}
	if err := s.knowsTask(n); err != nil {
		return err
	}
	if p, err := s.box.Populated(LeafName(n)); err == nil && !p {
		return nil // there is nobody to end
	}
	s.markEnding(ctx, n, store.TaskKilled, reason)
	kill, cancel := context.WithTimeout(ctx, killTime)
	defer cancel()
	err := s.box.Kill(kill, LeafName(n))
	s.m.event(store.Event{Event: "task_killed", ID: s.rec.ID, Name: s.rec.Name, Task: n}, map[string]any{"reason": reason})
	return survivorsError(s.Name(), err)
}

// SignalTask sends sig once to each process of a task, or, with n 0, of the
// session, and says to how many.
func (s *Session) SignalTask(ctx context.Context, n int, sig syscall.Signal) (int, error) {
	if s.box == nil {
		return 0, nil
	}
	if err := s.mayAct(); err != nil {
		return 0, err
	}
	leaf := ""
	if n != 0 {
		if err := s.knowsTask(n); err != nil {
			return 0, err
		}
		leaf = LeafName(n)
	}
	return s.box.Signal(ctx, leaf, sig)
}

func (s *Session) knowsTask(n int) error {
	t, err := s.m.store.Task(s.rec.ID, n)
	if err == nil && t.Moved != "" {
		if p, perr := s.box.Populated(LeafName(n)); perr == nil && p {
			return nil // it was not moved to the end
		}
		where, _, _ := strings.Cut(t.Moved, "/")
		return &Error{Kind: ErrNotFound, Session: s.Name(), Text: fmt.Sprintf("task %d was kept, as %s", n, t.Moved),
			Hint: "`sessionbox inspect " + where + "`"}
	}
	if errors.Is(err, store.ErrNotFound) {
		if p, perr := s.box.Populated(LeafName(n)); perr == nil && p {
			return nil // its record was lost, its processes were not
		}
		return &Error{Kind: ErrNotFound, Session: s.Name(), Text: fmt.Sprintf("has no task %d", n),
			Hint: "`sessionbox inspect " + s.Name() + "` lists them"}
	}
	return nil
}

// markEnding notes why a task is about to end, so that its supervisor does not
// call it a mere signal. Failing to note it is no reason not to end it.
func (s *Session) markEnding(ctx context.Context, n int, as store.TaskState, reason string) {
	wait, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := s.m.store.UpdateTask(wait, s.rec.ID, n, func(t *store.Task) error {
		if t.State.Ended() {
			return errAlreadyEnded
		}
		t.Ending, t.Reason = as, reason
		return nil
	})
	if err != nil && !errors.Is(err, errAlreadyEnded) {
		s.m.log.Debug("note why a task ends", "task", n, "err", err)
	}
}

// survivorsError turns what is left into an error of kind ErrSurvivors.
func survivorsError(name string, err error) error {
	if left, ok := errors.AsType[*proc.SurvivorsError](err); ok {
		return &Error{Kind: ErrSurvivors, Session: name, Err: left, Text: "not everything ended", Retry: true,
			Hint: "a process in state D waits for a device or a file server and ends when that answers; then close again"}
	}
	return err
}
