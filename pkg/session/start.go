package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/anchor"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// StartOptions say how a command runs in a session.
type StartOptions struct {
	// Tie ends the task, with everything it started, when the calling process
	// dies. Without it a task outlives its starter.
	Tie bool
	// Timeout ends the task, with everything it started; 0 is none. The task is
	// asked with SIGTERM first and killed after KillAfter (0: the session's grace).
	Timeout, KillAfter time.Duration
	// Keep starts the task in a session of its own, which the end of this one leaves
	// alone; see [Session.Keep].
	Keep bool
	// Detached says in the record that nobody waits for the command's output.
	Detached bool
	// Log keeps the command's output, see [Manager.Logs]. It then writes to a process
	// of ours in the session, which neither hangs nor fails when nobody reads:
	// Stdout and Stderr of the [exec.Cmd] are where the output is shown as well until
	// the command ends (not StdoutPipe and StderrPipe, whose ends close before), and
	// are not held by anything that it leaves behind.
	Log bool
	// LogMax bounds the log: the oldest part goes first. 0 is [DefaultLogMax].
	LogMax int64

	adopted bool // it runs already
}

// lockTime bounds waiting for a session's lock: a holder may be stopped.
const lockTime = 5 * time.Second

// Start starts cmd as a new task of the session. The marks of the session are
// added to its environment. Call [Task.Wait] and not cmd.Wait.
//
// The error is of kind [ErrCommand] when the command is to blame,
// [ErrClosed] when the session is being closed.
func (s *Session) Start(ctx context.Context, cmd *exec.Cmd, o StartOptions) (*Task, error) {
	if s.IsContainer() {
		if err := s.fillCommand(cmd); err != nil {
			return nil, err
		}
	}
	if cmd.Err != nil || cmd.Path == "" {
		return nil, commandError(cmd, cmd.Err)
	}
	if o.Keep {
		return s.startKept(ctx, cmd, o)
	}
	unlock, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock.Unlock()
	t, err := s.newTask(unlock, cmd.Args, cmd.Dir, o)
	if err != nil {
		return nil, err
	}
	t.cmd = cmd
	if o.Log {
		if t.log, err = s.startLog(ctx, &t.rec, cmd, o.LogMax); err != nil {
			t.fail(err)
			return nil, err
		}
		defer t.log.started()
	}
	if o.Tie {
		if t.tie, err = s.tie(ctx, &t.rec); err != nil {
			t.fail(err)
			return nil, err
		}
	}
	cmd.Env = s.environ(cmd.Env)
	s.shimCommand(cmd)
	if cmd.WaitDelay == 0 {
		// A child in the background may hold our end of a pipe for ever; the
		// command's end must not wait for it.
		cmd.WaitDelay = drainTime
	}
	s.dieTogether(ctx, t.rec.Leaf)
	if err := s.start(ctx, cmd, t.rec.Leaf); err != nil {
		t.fail(err)
		return nil, err
	}
	t.rec.State, t.rec.PID = store.TaskRunning, cmd.Process.Pid
	if b, ok := s.box.(*lineageBox); ok {
		t.below = b.command(t.rec.Leaf)
		t.rec.PID = t.below.PID
	}
	if st, err := proc.ReadStat(t.rec.PID); err == nil {
		t.rec.Start = st.Start
	}
	err = s.m.store.PutTask(s.rec.ID, t.rec)
	if s.overtaken(err, t.rec.Started) {
		unlock.Unlock() // what follows changes records
		return nil, t.takeBack(ctx)
	}
	if err != nil {
		// It runs, and the first record names its leaf: nothing is lost.
		s.m.log.Warn("record the start", "task", t.rec.N, "err", err)
	}
	if o.Timeout > 0 {
		t.limitTime(o.Timeout, o.KillAfter)
	}
	t.told() // while the command runs
	return t, nil
}

// gatePatience is how long a close waits for a task that is being started.
const gatePatience = 2 * time.Second

// overtaken says whether the session was closed while we started something in
// it: a close does not wait for ever for the lock that we hold.
func (s *Session) overtaken(putErr error, since time.Time) bool {
	if errors.Is(putErr, store.ErrNotFound) {
		return true
	}
	return time.Since(since) > gatePatience/2 && s.closing()
}

// takeBack ends what was started in a session that was closed meanwhile. Under
// systemd that start may have made the box anew, so it is removed as well.
func (t *Task) takeBack(ctx context.Context) error {
	kill, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer cancel()
	err := t.s.box.Kill(kill, t.rec.Leaf)
	if err == nil { // else it may not end, and neither would waiting for it
		_, err = t.Wait()
	}
	if _, gerr := t.s.m.store.Get(t.s.rec.ID); errors.Is(gerr, store.ErrNotFound) {
		err = errors.Join(err, t.s.box.Kill(kill, ""), t.s.box.Remove(kill))
	}
	return &Error{Kind: ErrClosed, Session: t.s.Name(), Text: "was closed while the command started", Err: err, Hint: "open a new one"}
}

// drainTime is how long output is still copied after the command has ended.
const drainTime = 250 * time.Millisecond

// enter passes the gate: while the lock is held no close can begin.
func (s *Session) enter(ctx context.Context) (*store.Lock, error) {
	if s.m.stateErr != nil {
		return nil, s.m.stateErr
	}
	s.m.reguard(ctx, &s.rec)
	s.freeLeft(ctx)
	wait, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	lock, err := s.lockStart(wait)
	if err != nil {
		return nil, err
	}
	rec, err := s.m.store.Get(s.rec.ID)
	if err == nil {
		err = s.ready(wait, &rec)
	}
	if err != nil {
		lock.Unlock()
		return nil, err
	}
	return lock, nil
}

// lockStart keeps the session from being closed, without asking whether it is.
func (s *Session) lockStart(ctx context.Context) (*store.Lock, error) {
	lock, err := s.m.store.Lock(ctx, s.rec.ID, store.LockStart)
	if errors.Is(err, store.ErrNotFound) {
		if r, ok := s.m.lastReceipt(s.rec.ID); ok {
			return nil, closedAt(s.Name(), r.Closed)
		}
		return nil, &Error{Kind: ErrNotFound, Session: s.Name(), Text: "its record is gone",
			Hint: "`sessionbox reconcile` gives it a new one, `sessionbox close " + s.rec.ID + "` ends it"}
	}
	if err != nil {
		return nil, &Error{Kind: ErrTimeout, Session: s.Name(), Text: "its lock cannot be had", Err: err, Retry: true,
			Hint: "another sessionbox process holds it; it may be stopped"}
	}
	return lock, nil
}

// ready says whether a task can be started.
func (s *Session) ready(ctx context.Context, rec *store.Session) error {
	switch {
	case rec.State == store.StateClosing || rec.State == store.StateClosed:
		return &Error{Kind: ErrClosed, Session: s.Name(), Text: "is being closed", Hint: "open a new one"}
	case rec.State == store.StateOpening:
		return &Error{Kind: ErrClosed, Session: s.Name(), Text: "is still being opened, or its opening was interrupted",
			Hint: "try again, or `sessionbox close " + s.Name() + "` to clear it away", Retry: true}
	case s.box == nil:
		return &Error{Kind: ErrBoxGone, Session: s.Name(), Text: "its box is gone (" + s.rec.Path + "), and with it all its processes",
			Hint: "`sessionbox close " + s.Name() + "`, then open a new one"}
	}
	if err := s.m.mayAct(rec, s.generation); err != nil {
		return err
	}
	if err := s.m.containerReady(rec); err != nil {
		return err
	}
	if frozen, err := s.box.Frozen(); err == nil && frozen && !s.thawIdle(ctx, rec) && !s.wake(ctx, rec) {
		if rec.Memory != nil && rec.Memory.Frozen != 0 {
			return &Error{Kind: ErrFrozen, Session: s.Name(), Text: "is frozen for want of memory, a new command would not run", Retry: true,
				Hint: "it is thawed when there is memory again; `sessionbox thaw " + s.Name() + "` does it now"}
		}
		return &Error{Kind: ErrFrozen, Session: s.Name(), Text: "is frozen, a new command would not run",
			Hint: "`sessionbox thaw " + s.Name() + "` first"}
	}
	return nil
}

func (s *Session) newTask(lock *store.Lock, argv []string, dir string, o StartOptions) (*Task, error) {
	self, err := proc.Self()
	if err != nil {
		return nil, err
	}
	if dir == "" {
		dir, _ = os.Getwd()
	}
	rec := store.Task{Argv: argv, Cwd: dir, Started: time.Now(), StartClock: proc.Clock(), State: store.TaskStarting,
		Timeout: o.Timeout, KillAfter: o.KillAfter, Detached: o.Detached, Adopted: o.adopted, Supervisor: store.ProcID(self), NS: self.NS}
	rec.Mark = mark(s.box.Mark(false))
	if err := lock.AddTask(&rec); err != nil {
		return nil, recordError(err)
	}
	rec.Leaf = LeafName(rec.N)
	return &Task{s: s, rec: rec}, nil
}

// told writes to the history that the task was started.
func (t *Task) told() {
	t.s.m.event(store.Event{Event: "task_started", ID: t.s.rec.ID, Name: t.s.rec.Name, Task: t.rec.N}, map[string]any{"argv": t.rec.Argv})
}

// LeafName is the leaf of a session's task in its box.
func LeafName(n int) string { return fmt.Sprintf("task-%d", n) }

// start starts cmd in a leaf; one that vanished in between, because the unit was
// collected, is made again once.
func (s *Session) start(ctx context.Context, cmd *exec.Cmd, leaf string) error {
	if s.IsContainer() {
		return s.startInside(ctx, cmd, leaf)
	}
	dir := cmd.Dir
	if dir != "" {
		if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
			return &Error{Kind: ErrCommand, Text: "the directory " + dir + " cannot be used", Err: err,
				Hint: "it may have been removed meanwhile; -w DIR names another one"}
		}
	}
	start := func() error { return s.box.Start(ctx, leaf, cmd) }
	err := error(nil)
	if s.rec.Strict {
		err = s.startStrict(ctx, cmd, start)
	} else {
		err = start()
	}
	var pe *fs.PathError
	if errors.As(err, &pe) && strings.HasPrefix(pe.Op, "fork/exec") {
		return commandError(cmd, err)
	}
	return err
}

func commandError(cmd *exec.Cmd, err error) error {
	name := cmd.Path
	if len(cmd.Args) > 0 {
		name = cmd.Args[0]
	}
	e := &Error{Kind: ErrCommand, Text: "cannot run " + name, Err: err}
	switch {
	case name == "":
		e.Text, e.Hint = "no command given", "write it after the session: sessionbox exec SESSION -- COMMAND…"
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		e.Hint = "check the name and PATH; a script's #! line may name what is not there"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOEXEC):
		e.Hint = "is it executable, and of this machine's kind? `chmod +x` or name its interpreter"
	}
	return e
}

// environ marks an environment; nil stands for our own. What a command in a container has
// is its bundle's, marked already, and env only what is added.
func (s *Session) environ(env []string) []string {
	if s.IsContainer() {
		return env
	}
	if env == nil {
		env = os.Environ()
	}
	own := sessionEnv(&s.rec)
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		for _, o := range own {
			k, _, _ := strings.Cut(o, "=")
			if strings.HasPrefix(kv, k+"=") {
				return true
			}
		}
		return false
	})
	return s.shimEnviron(strictEnviron(&s.rec, tmpEnviron(&s.rec, append(env, own...))))
}

// tie asks the anchor to watch us; one that is not there is started.
func (s *Session) tie(ctx context.Context, t *store.Task) (bond, error) {
	if b, ok := s.box.(*lineageBox); ok {
		return b.tie(t.Leaf)
	}
	return s.tieToAnchor(ctx, t)
}

func (s *Session) tieToAnchor(ctx context.Context, t *store.Task) (bond, error) {
	inode, err := s.box.Prepare(ctx, t.Leaf)
	if err != nil {
		return nil, err
	}
	dir := s.m.store.SessionDir(s.rec.ID)
	if tie, err := anchor.Dial(dir, s.leafName(t.Leaf), t.N, inode); err == nil {
		return tie, nil
	}
	tie, err := s.tieAnew(ctx, dir, t)
	if errors.Is(err, fs.ErrNotExist) {
		// It runs and has no socket: it was made in a directory that was lost.
		if err := s.box.RenewAnchor(ctx); err != nil {
			return nil, fmt.Errorf("end the session's former anchor: %w", err)
		}
		tie, err = s.tieAnew(ctx, dir, t)
	}
	if err != nil {
		return nil, err
	}
	return tie, nil
}

// bond is what ties a task to its starter.
type bond interface {
	// Lost is closed when the one who watches is gone.
	Lost() <-chan struct{}
	// Release says that the task needs no watching any more, Drop says nothing.
	Release()
	Drop()
}

// tieAnew makes sure that there is an anchor, and asks it.
func (s *Session) tieAnew(ctx context.Context, dir string, t *store.Task) (*anchor.Tie, error) {
	if err := s.box.EnsureAnchor(ctx); err != nil {
		return nil, fmt.Errorf("start the session's anchor: %w", err)
	}
	// Under systemd the unit, and with it our leaf, may be a new one now.
	inode, err := s.box.Prepare(ctx, t.Leaf)
	if err != nil {
		return nil, err
	}
	return anchor.DialRetry(ctx, dir, s.leafName(t.Leaf), t.N, inode)
}

// Exec replaces the calling process by the command, as a new task: no process
// of ours stays, and whoever waits for this pid waits for the command. Its end
// shows in the task when its leaf is empty; its status goes to its own parent.
// Exec returns only with an error; the process is in the box then.
func (s *Session) Exec(ctx context.Context, cmd *exec.Cmd) error {
	if s.IsContainer() {
		return &Error{Kind: ErrUnsupported, Session: s.Name(), Text: "is a container, and a process outside cannot become one in it", Hint: "leave out --replace"}
	}
	if cmd.Err != nil || cmd.Path == "" {
		return commandError(cmd, cmd.Err)
	}
	if s.rec.Strict {
		return &Error{Kind: ErrUnsupported, Session: s.Name(), Text: "is strict, and a process that runs cannot close its doors itself", Hint: "leave out --replace"}
	}
	lock, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	t, err := s.newTask(lock, cmd.Args, cmd.Dir, StartOptions{})
	if err != nil {
		return err
	}
	if cmd.Dir != "" {
		if err := os.Chdir(cmd.Dir); err != nil {
			t.fail(err)
			return &Error{Kind: ErrCommand, Text: "the directory " + cmd.Dir + " cannot be used", Err: err}
		}
	}
	s.dieTogether(ctx, t.rec.Leaf)
	if err := s.box.Enter(ctx, t.rec.Leaf); err != nil {
		t.fail(err)
		return err
	}
	self, err := proc.Self()
	if err != nil {
		return err
	}
	t.rec.State, t.rec.PID, t.rec.Start, t.rec.Supervisor = store.TaskRunning, self.PID, self.Start, store.ProcID{}
	if err := s.m.store.PutTask(s.rec.ID, t.rec); err != nil {
		return recordError(err)
	}
	t.told()
	s.shimCommand(cmd)
	err = syscall.Exec(cmd.Path, cmd.Args, s.environ(cmd.Env)) // the lock closes on exec
	t.fail(err)
	return commandError(cmd, err)
}
