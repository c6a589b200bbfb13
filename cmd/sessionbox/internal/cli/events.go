package cli

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/render"
	"github.com/sessionbox/sessionbox/pkg/store"
	"github.com/spf13/cobra"
)

type eventsOptions struct {
	follow bool
	since  *time.Duration
	kinds  []string
	limit  int
}

func (a *app) newEvents() *cobra.Command {
	var o eventsOptions
	cmd := &cobra.Command{
		Use:   "events [SESSION[/TASK]] [flags]",
		Short: "Show what happened: sessions opened and closed, tasks started and ended",
		Long: `Show the events of the last day, or of the time given with --since, oldest first;
with -f those from now on. With --json each event is a line of JSON.

A session is named exactly here, by its name or id: closed ones have events, too.

Exit status:
  0    shown
  1    failed
  2    usage
  130  interrupted while following`,
		Example: `  sessionbox events --since 1h
  sessionbox events -f --json | jq 'select(.event=="closed")'`,
		Args:              someArgs(0, 1),
		ValidArgsFunction: a.completeSessions(true, false),
		RunE:              a.withSignals(func(ctx context.Context, args []string) error { return a.events(ctx, &o, args) }),
	}
	f := cmd.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false, "those from now on, until interrupted; with --since, those before, too")
	f.Var(duration{&o.since}, "since", "how far back (default 24h)")
	f.StringArrayVar(&o.kinds, "event", nil, "only this `KIND`, can be given several times")
	f.IntVar(&o.limit, "limit", 0, "only the newest `N`")
	return cmd
}

const eventsBack = 24 * time.Hour

func (a *app) events(ctx context.Context, o *eventsOptions, args []string) error {
	f := store.Filter{Events: o.kinds, Limit: max(0, o.limit)}
	if len(args) == 1 {
		var err error
		if f.Session, f.Task, err = splitRef(args[0]); err != nil {
			return err
		}
	}
	m, err := a.manager()
	if err != nil {
		return err
	}
	if f.Session == "." {
		s, err := m.Get(ctx, ".")
		if err != nil {
			return err
		}
		f.Session = s.ID()
		s.Release()
	}
	st := a.style(a.stdout)
	show := func(e *store.Event) error {
		if a.json {
			return a.line(e)
		}
		return render.Event(a.stdout, e, st)
	}
	if !o.follow || o.since != nil {
		back := eventsBack
		if o.since != nil {
			back = *o.since
		}
		f.Since = st.Now.Add(-back)
		past, err := m.History(f)
		if err != nil {
			return err
		}
		for i := range past {
			if err := show(&past[i]); err != nil {
				return err
			}
		}
	}
	if !o.follow {
		return nil
	}
	f.Limit, f.Since = 0, time.Now()
	for e, err := range m.Follow(ctx, f) {
		if err != nil {
			if errors.As(err, new(*store.BadLine)) {
				continue // one line that cannot be read costs that line
			}
			return err
		}
		if err := show(&e); err != nil {
			return err
		}
	}
	return errFollowed
}

// errFollowed is the end of what has none but a signal.
var errFollowed = errors.New("interrupted")

// line writes one line of JSON to stdout.
func (a *app) line(v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = a.stdout.Write(append(b, '\n'))
	}
	return err
}
