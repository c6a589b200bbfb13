package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/render"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/spf13/cobra"
)

type waitOptions struct {
	what    string
	timeout *time.Duration
}

func (a *app) newWait() *cobra.Command {
	var o waitOptions
	cmd := &cobra.Command{
		Use:   "wait SESSION[/TASK] [flags]",
		Short: "Wait until a task, or all of a session, has ended",
		Long: `Wait for the end of a task's command or, with --for empty, of everything that it
started; of a session: of all its commands, of everything in it. How a task ended is
printed. That the session is closed meanwhile ends the wait, too; of one that was
closed before, the history tells how its tasks ended.

Exit status:
  0    it has ended, however
  1    failed
  2    usage
  3    no such session or task
  124  --timeout was over
  130  interrupted`,
		Example: `  sessionbox wait work/3
  sessionbox wait work --for empty --timeout 10m`,
		Args:              someArgs(1, 1),
		ValidArgsFunction: a.completeSessions(true, false),
		RunE:              a.withSignals(func(ctx context.Context, args []string) error { return a.wait(ctx, &o, args[0]) }),
	}
	cmd.Flags().StringVar(&o.what, "for", "exit", "`WHAT` to wait for: exit or empty")
	cmd.Flags().Var(duration{&o.timeout}, "timeout", "how long to wait (default, and 0: for ever)")
	completeWords(cmd, "for", "exit", "empty")
	return cmd
}

func (a *app) wait(ctx context.Context, o *waitOptions, arg string) error {
	switch session.WaitFor(o.what) {
	case session.WaitExit, session.WaitEmpty:
	default:
		return usagef("--for: not %q", o.what).hintf("want exit or empty")
	}
	ref, task, err := splitRef(arg)
	if err != nil {
		return err
	}
	m, err := a.manager()
	if err != nil {
		return err
	}
	s, err := m.Get(ctx, ref)
	if errors.Is(err, session.ErrClosed) || errors.Is(err, session.ErrNotFound) {
		return a.waitedBefore(m, ref, task, err)
	}
	if err != nil {
		return err
	}
	defer s.Release()
	if value(o.timeout) > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *o.timeout)
		defer cancel()
	}
	if err := s.Wait(ctx, task, session.WaitFor(o.what)); err != nil {
		if errors.Is(err, session.ErrTimeout) {
			return &codeError{code: exitTimedOut, err: err}
		}
		return err
	}
	return a.waited(ctx, m, s, task)
}

// waited says how it ended.
func (a *app) waited(ctx context.Context, m *session.Manager, s *session.Session, task int) error {
	if task == 0 {
		if !a.json {
			return nil
		}
		info, err := m.Inspect(ctx, s.ID(), session.InspectOptions{})
		if errors.Is(err, session.ErrClosed) || errors.Is(err, session.ErrNotFound) {
			return a.waitedBefore(m, s.ID(), task, err)
		}
		if err != nil {
			return err
		}
		return a.printJSON(info)
	}
	return a.printWaited(a.task(ctx, s, task))
}

// waitedBefore says how it ended in a session that is closed; cause is the error if
// there was none of this name.
func (a *app) waitedBefore(m *session.Manager, ref string, task int, cause error) error {
	info, ok := m.Closed(ref)
	if !ok {
		return cause
	}
	if task == 0 {
		if !a.json {
			return nil
		}
		return a.printJSON(info)
	}
	i := slices.IndexFunc(info.Tasks, func(t session.TaskInfo) bool { return t.N == task })
	if i < 0 {
		return &session.Error{Kind: session.ErrNotFound, Session: ref, Text: fmt.Sprintf("is closed, and its receipt tells of no task %d", task),
			Hint: "`sessionbox history` lists what it tells of; of very many tasks only the last ones"}
	}
	t := Task{Schema: session.Schema, Session: info.ID, Name: info.Name, Ref: fmt.Sprintf("%s/%d", ref, task), TaskInfo: info.Tasks[i]}
	return a.printWaited(t)
}

func (a *app) printWaited(t Task) error {
	if a.json {
		return a.printJSON(t)
	}
	_, err := fmt.Fprintf(a.stdout, "%s %s\n", t.Ref, render.TaskState(&t.TaskInfo))
	return err
}
