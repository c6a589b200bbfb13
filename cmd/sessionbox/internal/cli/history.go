package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/render"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/spf13/cobra"
)

type historyOptions struct {
	since *time.Duration
	limit int
}

func (a *app) newHistory() *cobra.Command {
	var o historyOptions
	cmd := &cobra.Command{
		Use:   "history [SESSION] [flags]",
		Short: "Show the receipts of closed sessions",
		Long: `Show which sessions were closed in the last 31 days, or in the time given with
--since, one per line, oldest first. With SESSION, a name or id, the whole receipt of
each session of that name. With --json a list of receipts.

Exit status:
  0  shown
  1  failed
  2  usage
  3  no closed session of that name`,
		Example: `  sessionbox history --since 1d
  sessionbox history work`,
		Args:              someArgs(0, 1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              a.withSignals(func(_ context.Context, args []string) error { return a.history(&o, args) }),
	}
	cmd.Flags().Var(duration{&o.since}, "since", "how far back (default 31d)")
	cmd.Flags().IntVar(&o.limit, "limit", 0, "only the newest `N`")
	return cmd
}

const historyBack = 31 * 24 * time.Hour

func (a *app) history(o *historyOptions, args []string) error {
	m, err := a.manager()
	if err != nil {
		return err
	}
	back := historyBack
	if o.since != nil {
		back = *o.since
	}
	st := a.style(a.stdout)
	all, err := m.Receipts(st.Now.Add(-back))
	if err != nil {
		return err
	}
	if len(args) == 1 {
		all = slices.DeleteFunc(all, func(r session.Receipt) bool { return r.ID != args[0] && r.Name != args[0] })
		if len(all) == 0 {
			return &session.Error{Kind: session.ErrNotFound, Text: fmt.Sprintf("no closed session %q", args[0]),
				Hint: "`sessionbox history` lists them; --since looks further back"}
		}
	}
	if o.limit > 0 && len(all) > o.limit {
		all = all[len(all)-o.limit:]
	}
	switch {
	case a.json:
		return a.printJSON(all)
	case len(args) == 1:
		return a.printReceipts(all)
	case len(all) == 0:
		a.say("no session was closed")
		return nil
	}
	return render.History(a.stdout, all, st)
}
