package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/render"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
	"github.com/spf13/cobra"
)

type lsOptions struct {
	all, quiet bool
	filters    []string
	noTrunc    bool
}

func (a *app) newLs() *cobra.Command {
	var o lsOptions
	cmd := &cobra.Command{
		Use:   "ls [flags]",
		Short: "List sessions, what runs in them and what was left behind",
		Long: `List the open sessions, oldest first.

RUN counts commands that run, LEFT processes that outlived their command. MEM is
memory that cannot be had back without killing or swapping. COMMAND is the latest
of those that run or, if none does, what is left over, with the ports it holds.
A session marked ! or * has a note below the table.

Filters: name=, id=, label=KEY or label=KEY=VALUE, state=open, box=cgroup, and
left=yes|no, running=yes|no, frozen=yes|no, hibernated=yes|no, oom=yes|no (the kernel killed
one for want of memory). Several must all fit.

Exit status:
  0  listed, also when there is none
  1  failed
  2  usage`,
		Example: `  sessionbox ls
  sessionbox ls -f left=yes -q | xargs -r sessionbox close
  sessionbox ls --json | jq '.[].name'`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              a.withSignals(func(ctx context.Context, _ []string) error { return a.ls(ctx, &o) }),
	}
	f := cmd.Flags()
	f.BoolVarP(&o.all, "all", "a", false, "closed ones too, of this month and the last")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "only ids")
	f.StringArrayVarP(&o.filters, "filter", "f", nil, "`KEY=VALUE`, can be given several times")
	f.BoolVar(&o.noTrunc, "no-trunc", false, "cut nothing to the width of the terminal")
	return cmd
}

func (a *app) ls(ctx context.Context, o *lsOptions) error {
	fits, err := filter(o.filters)
	if err != nil {
		return err
	}
	m, err := a.manager()
	if err != nil {
		return err
	}
	infos, err := m.List(ctx, session.ListOptions{All: o.all, Ports: !o.quiet, Others: !o.quiet})
	if err != nil {
		return err
	}
	infos = slices.DeleteFunc(infos, func(i session.Info) bool { return !fits(&i) })
	switch {
	case a.json:
		if infos == nil {
			infos = []session.Info{}
		}
		return a.printJSON(infos)
	case o.quiet:
		for i := range infos {
			if _, err := fmt.Fprintln(a.stdout, infos[i].ID); err != nil {
				return err
			}
		}
		return nil
	case len(infos) == 0:
		a.say("no sessions")
		return nil
	}
	st := a.style(a.stdout)
	st.Whole = o.noTrunc
	return render.List(a.stdout, a.rows(ctx, m, infos), st)
}

// rows adds what is left over where no command runs that would say it.
func (a *app) rows(ctx context.Context, m *session.Manager, infos []session.Info) []render.Row {
	rows := make([]render.Row, len(infos))
	for i := range infos {
		rows[i].Info = infos[i]
		if infos[i].Leftovers > 0 && infos[i].Running == 0 {
			rows[i].Left, _ = m.Processes(ctx, infos[i].ID, session.ProcessOptions{})
		}
	}
	return rows
}

// filter makes a test of filters KEY=VALUE.
func filter(filters []string) (func(*session.Info) bool, error) {
	var tests []func(*session.Info) bool
	for _, f := range filters {
		key, val, ok := strings.Cut(f, "=")
		if !ok {
			return nil, usagef("--filter: %q is not KEY=VALUE", f).hintf("e.g. -f label=agent=claude")
		}
		test, err := filterOn(key, val)
		if err != nil {
			return nil, err
		}
		tests = append(tests, test)
	}
	return func(i *session.Info) bool {
		return !slices.ContainsFunc(tests, func(t func(*session.Info) bool) bool { return !t(i) })
	}, nil
}

func filterOn(key, val string) (func(*session.Info) bool, error) {
	yes := func(is func(*session.Info) bool) (func(*session.Info) bool, error) {
		switch val {
		case "yes", "true":
			return is, nil
		case "no", "false":
			return func(i *session.Info) bool { return !is(i) }, nil
		}
		return nil, usagef("--filter %s: not %q", key, val).hintf("want yes or no")
	}
	switch key {
	case "name":
		return func(i *session.Info) bool { return i.Name == val }, nil
	case "id":
		return func(i *session.Info) bool { return strings.HasPrefix(i.ID, val) }, nil
	case "parent":
		return func(i *session.Info) bool { return i.Parent == val }, nil
	case "state":
		return func(i *session.Info) bool { return i.State == val }, nil
	case "box":
		return func(i *session.Info) bool { return i.Box.Kind == val && i.State != string(store.StateClosed) }, nil
	case "label":
		k, v, valued := strings.Cut(val, "=")
		return func(i *session.Info) bool {
			have, ok := i.Labels[k]
			return ok && (!valued || have == v)
		}, nil
	case "left":
		return yes(func(i *session.Info) bool { return i.Leftovers > 0 })
	case "running":
		return yes(func(i *session.Info) bool { return i.Running > 0 })
	case "frozen":
		return yes(func(i *session.Info) bool { return i.Box.Frozen })
	case "hibernated":
		return yes(func(i *session.Info) bool { return i.Box.Hibernated })
	case "oom":
		return yes(func(i *session.Info) bool { return i.OOM != nil })
	}
	return nil, usagef("no filter %q", key).hintf("there are name, id, parent, label, state, box, left, running, frozen, hibernated, oom")
}
