package cli

import (
	"context"
	"fmt"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/render"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/spf13/cobra"
)

func (a *app) newReconcile() *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use:   "reconcile [flags]",
		Short: "Set right what crashes left: close what has lost its owner, say what is alive",
		Long: `Compare every record with what the kernel says, and do what the records ask for:
close sessions whose owner is gone (or keep them, if they were opened so), finish
closes and openings that were interrupted, clear away what ran before a reboot, give
boxes that lost their record a new one, end tasks that are out of time in place of a
supervisor that died. Sessions with a living owner, kept ones and those that cannot
be judged from here are left alone.

A harness runs it when it starts; the answer says of each session and task what is
really alive, what was ended and why, and what to do next.

Exit status:
  0  done
  1  failed
  2  usage
  4  something survived`,
		Example: `  sessionbox reconcile --dry-run
  sessionbox reconcile --json | jq '.sessions[] | {name, action, reason, next}'`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              a.withSignals(func(ctx context.Context, _ []string) error { return a.reconcile(ctx, dry) }),
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "change nothing, say what would be done")
	return cmd
}

func (a *app) reconcile(ctx context.Context, dry bool) error {
	m, err := a.manager()
	if err != nil {
		return err
	}
	r, err := m.Reconcile(ctx, session.ReconcileOptions{DryRun: dry})
	if err != nil {
		return err
	}
	if a.json {
		if err := a.printJSON(r); err != nil {
			return err
		}
	} else if err := render.Reconciliation(a.stdout, &r, a.style(a.stdout)); err != nil {
		return err
	}
	return failedOf(&r)
}

// failedOf is an error if something could not be ended.
func failedOf(r *session.Reconciliation) error {
	failed, survived := 0, false
	for i := range r.Sessions {
		s := &r.Sessions[i]
		if s.Error == "" {
			continue
		}
		failed++
		survived = survived || s.Receipt != nil && len(s.Receipt.Survivors) > 0
	}
	switch {
	case failed == 0:
		return nil
	case survived:
		return &session.Error{Kind: session.ErrSurvivors, Text: fmt.Sprintf("of %d sessions something is left", failed), Retry: true,
			Hint: "the list says what and why"}
	}
	return &codeError{code: exitFailed, err: fmt.Errorf("%d sessions could not be reconciled", failed)}
}
