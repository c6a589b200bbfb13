package cli

import (
	"context"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/render"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
	"github.com/spf13/cobra"
)

func (a *app) newLimit() *cobra.Command {
	var l memlimit.Limits
	var force bool
	var oom string
	cmd := &cobra.Command{
		Use:   "limit SESSION [flags]",
		Short: "Show or change the ceilings of an open session",
		Long: `Show the ceilings of a session and whether they are in force, after changing those
that are given. "max" lifts one. What is set is read back from the kernel: a ceiling
that it does not have is shown as not in force.

A ceiling for memory is refused when it is below 1.3 times what the session holds now:
the kernel would end what runs, or slow it down for ever. --force sets it.

--memory-high is no place to rest in: without swap who has filled it gets on by next to
nothing and is never killed. That is warned of, and where the session's --memory-steps
allow brake the guard lifts it within 10 s of stall, which is shown as not in force; it sets
it again when less than 90 % of it is in use, as does this command with --memory-high.

--oom task has the kernel kill all of a task when it kills one process of it for want
of memory; it holds for the tasks that run, too.

Exit status:
  0  shown, also when a ceiling is not in force
  1  failed, or refused as too low
  2  usage
  3  no such session
  6  not permitted`,
		Example: `  sessionbox limit work
  sessionbox limit work --memory-max 6G --pids-max max
  sessionbox limit work --oom task`,
		Args:              someArgs(1, 1),
		ValidArgsFunction: a.completeSessions(false, false),
		RunE:              a.withSignals(func(ctx context.Context, args []string) error { return a.limit(ctx, l, oom, force, args[0]) }),
	}
	limitFlags(cmd.Flags(), &l)
	oomFlag(cmd.Flags(), &oom)
	completeWords(cmd, "oom", "process", "task")
	cmd.Flags().BoolVar(&force, "force", false, "set a ceiling below what is in use, too")
	return cmd
}

func (a *app) limit(ctx context.Context, l memlimit.Limits, oom string, force bool, ref string) error {
	if err := sessionRef(ref); err != nil {
		return err
	}
	s, err := a.session(ctx, ref)
	if err != nil {
		return err
	}
	defer s.Release()
	if oom != "" {
		policy, err := s.SetOOM(ctx, store.OOMPolicy(oom))
		if err != nil {
			return err
		}
		a.warnOOM(policy)
	}
	all, err := ceilings(ctx, s, l, force)
	if err != nil {
		return err
	}
	if a.json {
		if all == nil {
			all = []memlimit.Ceiling{}
		}
		return a.printJSON(all)
	}
	if len(all) == 0 && oom != "" {
		return nil
	}
	if len(all) == 0 {
		a.say("%s has no ceilings", s.Name())
		return nil
	}
	if err := render.Ceilings(a.stdout, all, a.style(a.stdout)); err != nil {
		return err
	}
	a.hintCeilings(all)
	return nil
}

func ceilings(ctx context.Context, s *session.Session, l memlimit.Limits, force bool) ([]memlimit.Ceiling, error) {
	switch {
	case !l.IsSet():
		return s.Limits()
	case force:
		return s.ForceLimits(ctx, l)
	}
	return s.SetLimits(ctx, l)
}
