package cli

import (
	"context"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/render"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/spf13/cobra"
)

func (a *app) newDoctor() *cobra.Command {
	var backend string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say which box this machine gives, and what would make it better",
		Long: `Check what sessionbox can use: one line each, ok, missing (with what would help) or
unknown (could not be told). Where it may it makes a cgroup for a moment and starts a
process in it. What it says of the box is for sessions that are opened with the same
--backend, which the config file or SESSIONBOX_BACKEND may choose.

Exit status:
  0  a session can be opened here
  5  it cannot: the missing lines say why`,
		Example:           `  sessionbox doctor`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              a.withSignals(func(ctx context.Context, _ []string) error { return a.doctor(ctx, backend) }),
	}
	backendFlag(cmd.Flags(), &backend)
	completeBackend(cmd)
	return cmd
}

func (a *app) doctor(ctx context.Context, backend string) error {
	kind, err := backendKind(backend)
	if err != nil {
		return err
	}
	m, err := a.manager()
	if err != nil {
		return err
	}
	checks := m.Doctor(ctx, kind)
	if a.json {
		err = a.printJSON(checks)
	} else {
		err = render.Doctor(a.stdout, checks, a.style(a.stdout))
	}
	if err != nil {
		return err
	}
	for _, c := range checks {
		if c.Needed && c.Status == session.CheckMissing {
			a.code = exitUnsupported
		}
	}
	return nil
}
