package cli

import (
	"context"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/render"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/spf13/cobra"
)

type psOptions struct{ noTrunc bool }

func (a *app) newPs() *cobra.Command {
	var o psOptions
	cmd := &cobra.Command{
		Use:   "ps SESSION[/TASK]",
		Short: "List the processes of a session or task",
		Long: `List what is alive in a session, sessions inside it included, or in one task. What
is in brackets after a command says how it left the reach of cleaners that kill
process groups (setsid, reparented) and which ports it listens on.

Exit status:
  0  listed, also when there is none
  1  failed
  2  usage
  3  no such session or task`,
		Example: `  sessionbox ps work
  sessionbox ps work/3 --json`,
		Args:              someArgs(1, 1),
		ValidArgsFunction: a.completeSessions(true, false),
		RunE:              a.withSignals(func(ctx context.Context, args []string) error { return a.ps(ctx, &o, args[0]) }),
	}
	cmd.Flags().BoolVar(&o.noTrunc, "no-trunc", false, "cut nothing to the width of the terminal")
	return cmd
}

func (a *app) ps(ctx context.Context, o *psOptions, arg string) error {
	ref, task, err := splitRef(arg)
	if err != nil {
		return err
	}
	m, err := a.manager()
	if err != nil {
		return err
	}
	list, err := m.Processes(ctx, ref, session.ProcessOptions{Task: task, Nested: true, Ports: true})
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(list)
	}
	if len(list) == 0 {
		a.say("nothing runs in %s", arg)
		return nil
	}
	st := a.style(a.stdout)
	st.Whole = o.noTrunc
	s, err := m.Get(ctx, ref)
	if err != nil {
		return err
	}
	defer s.Release()
	return render.Processes(a.stdout, list, s.ID(), st)
}
