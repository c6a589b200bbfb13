package cli

import (
	"context"
	"fmt"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/render"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/spf13/cobra"
)

func (a *app) newHibernate() *cobra.Command {
	return &cobra.Command{
		Use:   "hibernate SESSION…",
		Short: "Freeze a session and put it out of memory",
		Long: `Freeze sessions, and those inside, and put what they hold out of memory into swap,
step by step: while there is room in swap for half as much again as is left, and while
the disk is not busy. It is said what stayed, and why: without swap or without the
memory controller a session is frozen and stays where it is.

The next exec wakes a hibernated session, and so does thaw: what it held comes back as
it is used. One whose hibernation is broken off is frozen, and wakes likewise.

Exit status:
  0  hibernated, also when something stayed in memory
  1  failed, or not everything stood still in time
  2  usage, e.g. from inside the session
  3  no such session
  5  not supported by the box
  6  not permitted`,
		Example: `  sessionbox hibernate work
  sessionbox exec work -- make`,
		Args:              someArgs(1, -1),
		ValidArgsFunction: a.completeSessions(false, true),
		RunE:              a.withSignals(a.hibernate),
	}
}

func (a *app) hibernate(ctx context.Context, refs []string) error {
	reports := []session.HibernateReport{}
	var errs []error
	for _, ref := range refs {
		r, err := a.hibernateOne(ctx, ref)
		errs = append(errs, err)
		if err != nil {
			continue
		}
		reports = append(reports, r)
		if a.json {
			continue
		}
		if _, err := fmt.Fprintln(a.stdout, render.Hibernated(&r)); err != nil {
			errs = append(errs, err)
		}
		if r.Hint != "" {
			a.say("hint: %s", r.Hint)
		}
	}
	if a.json {
		errs = append(errs, a.printJSON(reports))
	}
	return several(errs)
}

func (a *app) hibernateOne(ctx context.Context, ref string) (session.HibernateReport, error) {
	if err := sessionRef(ref); err != nil {
		return session.HibernateReport{}, err
	}
	s, err := a.session(ctx, ref)
	if err != nil {
		return session.HibernateReport{}, err
	}
	defer s.Release()
	return s.Hibernate(ctx)
}
