package cli

import (
	"context"

	"github.com/spf13/cobra"
)

func (a *app) newTouch() *cobra.Command {
	var generation int
	cmd := &cobra.Command{
		Use:   "touch SESSION [flags]",
		Short: "Say that a session is in use: renew its lease, restart its idle time",
		Long: `Renew the lease of a session that was opened with --lease, and say that it is not
idle. A lease that has run out can be renewed for as long as nobody has closed the
session or taken it over.

Exit status:
  0  renewed
  1  failed
  2  usage
  3  no such session
  6  not permitted
  7  another owner has taken the session over`,
		Example: `  sessionbox touch work
  while sleep 20; do sessionbox touch work --generation 1 || break; done`,
		Args:              someArgs(1, 1),
		ValidArgsFunction: a.completeSessions(false, false),
		RunE: a.withSignals(func(ctx context.Context, args []string) error {
			m, err := a.manager()
			if err != nil {
				return err
			}
			info, err := m.Touch(ctx, args[0], generation)
			if err != nil || !a.json {
				return err
			}
			return a.printJSON(info)
		}),
	}
	generationFlag(cmd.Flags(), &generation)
	return cmd
}
