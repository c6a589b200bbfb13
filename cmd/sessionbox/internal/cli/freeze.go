package cli

import (
	"context"

	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/spf13/cobra"
)

func (a *app) newFreeze() *cobra.Command {
	return &cobra.Command{
		Use:   "freeze SESSION…",
		Short: "Stop everything in a session until it is thawed",
		Long: `Stop all processes of sessions, without a signal that they could see, and those of
sessions inside. They keep their memory and use no processor. No command can be
started in a frozen session; it can be closed.

Exit status:
  0  frozen
  1  failed, or not everything stood still in time
  2  usage, e.g. from inside the session
  3  no such session
  5  not supported by the box
  6  not permitted`,
		Example: `  sessionbox freeze work
  sessionbox thaw work`,
		Args:              someArgs(1, -1),
		ValidArgsFunction: a.completeSessions(false, true),
		RunE: a.withSignals(func(ctx context.Context, args []string) error {
			return a.each(ctx, args, (*session.Session).Freeze)
		}),
	}
}

func (a *app) newThaw() *cobra.Command {
	return &cobra.Command{
		Use:   "thaw SESSION…",
		Short: "Let a frozen session run on",
		Long: `Let frozen sessions run on. Thawing one that is not frozen does no harm.

Exit status:
  0  not frozen any more
  1  failed
  2  usage
  3  no such session
  6  not permitted`,
		Example:           `  sessionbox thaw work`,
		Args:              someArgs(1, -1),
		ValidArgsFunction: a.completeSessions(false, true),
		RunE: a.withSignals(func(ctx context.Context, args []string) error {
			return a.each(ctx, args, (*session.Session).Thaw)
		}),
	}
}

// each does something to each session and answers with what it is then.
func (a *app) each(ctx context.Context, refs []string, do func(*session.Session, context.Context) error) error {
	m, err := a.manager()
	if err != nil {
		return err
	}
	infos := []session.Info{}
	var errs []error
	for _, ref := range refs {
		info, err := one(ctx, m, ref, do)
		errs = append(errs, err)
		if err == nil {
			infos = append(infos, info)
		}
	}
	if a.json {
		errs = append(errs, a.printJSON(infos))
	}
	return several(errs)
}

func one(ctx context.Context, m *session.Manager, ref string, do func(*session.Session, context.Context) error) (session.Info, error) {
	if err := sessionRef(ref); err != nil {
		return session.Info{}, err
	}
	s, err := m.Get(ctx, ref)
	if err != nil {
		return session.Info{}, err
	}
	defer s.Release()
	if err := do(s, ctx); err != nil {
		return session.Info{}, err
	}
	return m.Inspect(ctx, s.ID(), session.InspectOptions{})
}
