package cli

import (
	"context"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/render"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/spf13/cobra"
)

func (a *app) newLimit() *cobra.Command {
	var l memlimit.Limits
	cmd := &cobra.Command{
		Use:   "limit SESSION [flags]",
		Short: "Show or change the ceilings of an open session",
		Long: `Show the ceilings of a session and whether they are in force, after changing those
that are given. "max" lifts one. What is set is read back from the kernel: a ceiling
that it does not have is shown as not in force.

Exit status:
  0  shown, also when a ceiling is not in force
  1  failed
  2  usage
  3  no such session
  6  not permitted`,
		Example: `  sessionbox limit work
  sessionbox limit work --memory-max 6G --pids-max max`,
		Args:              someArgs(1, 1),
		ValidArgsFunction: a.completeSessions(false, false),
		RunE:              a.withSignals(func(ctx context.Context, args []string) error { return a.limit(ctx, l, args[0]) }),
	}
	limitFlags(cmd.Flags(), &l)
	return cmd
}

func (a *app) limit(ctx context.Context, l memlimit.Limits, ref string) error {
	if err := sessionRef(ref); err != nil {
		return err
	}
	s, err := a.session(ctx, ref)
	if err != nil {
		return err
	}
	defer s.Release()
	all, err := ceilings(ctx, s, l)
	if err != nil {
		return err
	}
	if a.json {
		if all == nil {
			all = []memlimit.Ceiling{}
		}
		return a.printJSON(all)
	}
	if len(all) == 0 {
		a.say("%s has no ceilings", s.Name())
		return nil
	}
	return render.Ceilings(a.stdout, all, a.style(a.stdout))
}

func ceilings(ctx context.Context, s *session.Session, l memlimit.Limits) ([]memlimit.Ceiling, error) {
	if l.IsSet() {
		return s.SetLimits(ctx, l)
	}
	return s.Limits()
}
