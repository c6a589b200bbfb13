package cli

import (
	"context"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/render"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/spf13/cobra"
)

func (a *app) newInspect() *cobra.Command {
	return &cobra.Command{
		Use:   "inspect SESSION",
		Short: "Show all that is known of a session",
		Long: `Show a session: its box, ceilings and whether they are in force, memory, ports, and
all its tasks. With --json the processes of each task too.

Exit status:
  0  shown
  1  failed
  2  usage
  3  no such session; ` + "`sessionbox history SESSION`" + ` has those that are closed`,
		Example: `  sessionbox inspect work
  sessionbox inspect . --json`,
		Args:              someArgs(1, 1),
		ValidArgsFunction: a.completeSessions(false, false),
		RunE:              a.withSignals(func(ctx context.Context, args []string) error { return a.inspect(ctx, args[0]) }),
	}
}

func (a *app) inspect(ctx context.Context, ref string) error {
	if err := sessionRef(ref); err != nil {
		return err
	}
	m, err := a.manager()
	if err != nil {
		return err
	}
	info, err := m.Inspect(ctx, ref, session.InspectOptions{Processes: a.json, Ports: true, Others: true})
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(info)
	}
	return render.Inspect(a.stdout, &info, a.style(a.stdout))
}
