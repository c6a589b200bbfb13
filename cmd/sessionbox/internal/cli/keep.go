package cli

import (
	"context"
	"fmt"

	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/spf13/cobra"
)

func (a *app) newKeep() *cobra.Command {
	var generation int
	cmd := &cobra.Command{
		Use:   "keep SESSION/TASK… [flags]",
		Short: "Move a task to a session of its own, which stays when its session is closed",
		Long: `Move a task, with everything that it started, to a session of its own: NAME.kept-N.
It has no owner, is listed as any other and ends with its own close. The new name of
the task is printed. Its processes run on meanwhile; each is in one of the two boxes
at any time.

Exit status:
  0  kept
  1  failed
  2  usage, or nothing of the task runs
  3  no such session or task
  6  not permitted
  7  another owner has taken the session over from the caller`,
		Example: `  sessionbox keep work/3
  sessionbox close work && sessionbox ls`,
		Args:              someArgs(1, -1),
		ValidArgsFunction: a.completeSessions(true, true),
		RunE:              a.withSignals(func(ctx context.Context, args []string) error { return a.keep(ctx, args, generation) }),
	}
	generationFlag(cmd.Flags(), &generation)
	return cmd
}

func (a *app) keep(ctx context.Context, args []string, generation int) error {
	m, err := a.manager()
	if err != nil {
		return err
	}
	done := []Task{}
	errs := make([]error, 0, len(args)+1)
	for _, arg := range args {
		t, err := a.keepOne(ctx, m, arg, generation)
		errs = append(errs, err)
		if err != nil {
			continue
		}
		done = append(done, t)
		if !a.json {
			_, err := fmt.Fprintln(a.stdout, t.Ref)
			errs = append(errs, err)
		}
	}
	if a.json {
		errs = append(errs, a.printJSON(done))
	}
	return several(errs)
}

func (a *app) keepOne(ctx context.Context, m *session.Manager, arg string, generation int) (Task, error) {
	ref, n, err := splitRef(arg)
	if err != nil {
		return Task{}, err
	}
	if n == 0 {
		return Task{}, usagef("keep: which task of %s?", ref).hintf("`sessionbox inspect %s` lists them; e.g. `sessionbox keep %s/1`", ref, ref)
	}
	s, err := m.Get(ctx, ref)
	if err != nil {
		return Task{}, err
	}
	defer s.Release()
	s.ActFor(generation)
	kept, n, err := s.Keep(ctx, n)
	if err != nil {
		return Task{}, err
	}
	defer kept.Release()
	if !a.json {
		a.warnLogin(kept)
	}
	return a.task(ctx, kept, n), nil
}
