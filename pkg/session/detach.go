package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/store"
)

// SuperviseArg is the first argument of the process that waits for a detached
// command. It runs in our leaf of the session's box and ends with the session.
const SuperviseArg = "__supervise"

// order is what that process is asked to do, and answer what it says.
type order struct {
	Session        string
	Dirs           store.Dirs
	CgroupRoot     string
	Helper         string
	Path           string
	Args, Env      []string
	Dir            string
	Timeout, After time.Duration
	Generation     int
	Log            bool
	LogMax         int64
}

type answer struct {
	Task                   int
	PID                    int
	Code, Text, Hint, Errs string
	Missing                bool // the command does not exist
}

// StartDetached starts cmd as a new task that does not end with the caller, and
// gives the task's number. A process of ours in the box waits for it and records
// its end. The command reads from and writes to what cmd says; files only. With a
// log it writes to that alone, and Stdout and Stderr are not looked at. It runs in the
// session that is given, another than s if it is to be kept.
func (s *Session) StartDetached(ctx context.Context, cmd *exec.Cmd, o StartOptions) (in *Session, task int, err error) {
	if !o.Keep {
		task, err = s.startDetached(ctx, cmd, o)
		return s, task, err
	}
	kept, err := s.beside(ctx)
	if err != nil {
		return nil, 0, err
	}
	if task, err = kept.startDetached(ctx, cmd, o); err != nil {
		kept.discard(ctx)
		return nil, 0, err
	}
	return kept, task, nil
}

func (s *Session) startDetached(ctx context.Context, cmd *exec.Cmd, o StartOptions) (task int, err error) {
	if s.IsContainer() {
		if err := s.fillCommand(cmd); err != nil {
			return 0, err
		}
	}
	if cmd.Err != nil || cmd.Path == "" {
		return 0, commandError(cmd, cmd.Err)
	}
	lock, err := s.enter(ctx)
	if err != nil {
		return 0, err
	}
	lock.Unlock() // the supervisor passes the gate itself
	helper, err := s.m.helper()
	if err != nil {
		return 0, err
	}
	dir := cmd.Dir
	if dir == "" {
		if dir, err = os.Getwd(); err != nil {
			return 0, &Error{Kind: ErrCommand, Text: "the current directory cannot be used", Err: err}
		}
	}
	// The unit must be there before something is started in its helper leaf.
	if err := s.box.EnsureAnchor(ctx); err != nil {
		return 0, fmt.Errorf("start the session's anchor: %w", err)
	}
	what, err := json.Marshal(order{Session: s.rec.ID, Dirs: s.m.store.Dirs(), CgroupRoot: s.m.cfg.CgroupRoot, Helper: helper,
		Path: cmd.Path, Args: cmd.Args, Env: s.environ(cmd.Env), Dir: dir, Timeout: o.Timeout, After: o.KillAfter, Generation: s.generation,
		Log: o.Log, LogMax: o.LogMax})
	if err != nil {
		return 0, err
	}
	sup, in, out, err := s.spawnSupervisor(ctx, helper, cmd, o.Log)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	in.SetWriteDeadline(time.Now().Add(lockTime))
	_, err = in.Write(what)
	in.Close()
	if err != nil {
		sup.Kill()
		return 0, fmt.Errorf("tell the supervisor what to start: %w", err)
	}
	out.SetReadDeadline(time.Now().Add(2 * lockTime))
	said, err := io.ReadAll(out)
	var a answer
	if err != nil || json.Unmarshal(said, &a) != nil {
		// It must not start the command later, when the caller tries again.
		sup.Kill()
		return 0, &Error{Kind: ErrTimeout, Session: s.Name(), Text: "the supervisor of the detached command did not answer", Err: err}
	}
	return a.Task, a.err()
}

func (a *answer) err() error {
	if a.Code == "" {
		return nil
	}
	e := &Error{Text: a.Text, Hint: a.Hint}
	for _, c := range codes {
		if c.name == a.Code {
			e.Kind = c.kind
		}
	}
	if a.Missing {
		e.Err = fs.ErrNotExist
	}
	return e
}

// spawnSupervisor starts the waiting process with the command's own files; a command
// with a log has no others than its input.
func (s *Session) spawnSupervisor(ctx context.Context, helper string, cmd *exec.Cmd, log bool) (sup *os.Process, in, out *os.File, err error) {
	childIn, in, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	defer childIn.Close()
	out, childOut, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, nil, nil, err
	}
	defer childOut.Close()
	super := exec.Command(helper, SuperviseArg)
	super.Stdin = cmd.Stdin
	if !log {
		super.Stdout, super.Stderr = cmd.Stdout, cmd.Stderr
	}
	super.ExtraFiles = []*os.File{childIn, childOut}
	super.Env = append(plainEnv(), sessionEnv(&s.rec)...)
	super.Dir = "/"
	super.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := s.box.Start(ctx, helperLeaf, super); err != nil {
		in.Close()
		out.Close()
		return nil, nil, nil, fmt.Errorf("start the supervisor: %w", err)
	}
	go super.Wait()
	return super.Process, in, out, nil
}

// superviseMain is the process that waits for a detached command.
func superviseMain() error {
	closeInherited(3, 4)
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE)
	in, out := os.NewFile(3, "order"), os.NewFile(4, "answer")
	// Whatever is started here must not hold them open.
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(4)
	var o order
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return err
	}
	in.Close()
	t, err := o.start()
	if err != nil {
		a := answer{Code: Code(err), Text: err.Error(), Missing: NotFoundCommand(err)}
		if e, ok := errors.AsType[*Error](err); ok {
			a.Hint = e.Hint
		}
		json.NewEncoder(out).Encode(a)
		out.Close()
		return nil
	}
	json.NewEncoder(out).Encode(answer{Task: t.N(), PID: t.PID()})
	out.Close()
	_, err = t.Wait()
	return err
}

func (o *order) start() (*Task, error) {
	st, err := store.Open(o.Dirs)
	if err != nil {
		return nil, err
	}
	// Whoever gave the order sees to the guard: our environment is not the user's.
	m := newManager(Config{Helper: o.Helper, CgroupRoot: o.CgroupRoot, NoGuard: true, Log: discard()})
	m.store = st
	s, err := m.Get(context.Background(), o.Session)
	if err != nil {
		return nil, err
	}
	s.ActFor(o.Generation)
	cmd := &exec.Cmd{Path: o.Path, Args: o.Args, Env: o.Env, Dir: o.Dir, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	if o.Log {
		cmd.Stdout, cmd.Stderr = nil, nil // shown to nobody
	}
	return s.Start(context.Background(), cmd, StartOptions{Timeout: o.Timeout, KillAfter: o.After, Detached: true, Log: o.Log, LogMax: o.LogMax})
}
