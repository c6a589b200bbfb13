package cli

import (
	"context"
	"slices"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/render"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/spf13/cobra"
)

type treeOptions struct{ noTrunc bool }

func (a *app) newTree() *cobra.Command {
	var o treeOptions
	cmd := &cobra.Command{
		Use:   "tree [SESSION…]",
		Short: "Show sessions, those inside them, their tasks and processes",
		Long: `Show all sessions, or the given ones, as a tree: sessions opened from inside, tasks
that are not over, and processes. With --json the answer is a list of sessions
with their tasks' processes; the tree is in their "parent".

Exit status:
  0  shown
  1  failed
  2  usage
  3  no such session`,
		Example: `  sessionbox tree
  sessionbox tree work`,
		ValidArgsFunction: a.completeSessions(false, true),
		RunE:              a.withSignals(func(ctx context.Context, args []string) error { return a.tree(ctx, &o, args) }),
	}
	cmd.Flags().BoolVar(&o.noTrunc, "no-trunc", false, "cut nothing to the width of the terminal")
	return cmd
}

func (a *app) tree(ctx context.Context, o *treeOptions, refs []string) error {
	m, err := a.manager()
	if err != nil {
		return err
	}
	infos, err := m.List(ctx, session.ListOptions{})
	if err != nil {
		return err
	}
	if len(refs) > 0 {
		if infos, err = below(ctx, m, infos, refs); err != nil {
			return err
		}
	}
	all := make([]render.Branch, len(infos))
	for i := range infos {
		all[i].Info = infos[i]
		all[i].Alive, err = m.Processes(ctx, infos[i].ID, session.ProcessOptions{Ports: true})
		if err != nil {
			all[i].Alive = nil // closed meanwhile, or broken: it is shown all the same
		}
	}
	if a.json {
		return a.printJSON(withProcesses(all))
	}
	if len(all) == 0 {
		a.say("no sessions")
		return nil
	}
	st := a.style(a.stdout)
	st.Whole = o.noTrunc
	return render.Tree(a.stdout, all, st)
}

// below are the sessions that refs name and all inside them.
func below(ctx context.Context, m *session.Manager, all []session.Info, refs []string) ([]session.Info, error) {
	wanted := map[string]bool{}
	for _, ref := range refs {
		if err := sessionRef(ref); err != nil {
			return nil, err
		}
		i, err := m.Inspect(ctx, ref, session.InspectOptions{})
		if err != nil {
			return nil, err
		}
		wanted[i.ID] = true
	}
	for range all { // parents are older, but clocks can be set back
		for i := range all {
			if wanted[all[i].Parent] {
				wanted[all[i].ID] = true
			}
		}
	}
	return slices.DeleteFunc(all, func(i session.Info) bool { return !wanted[i.ID] }), nil
}

// withProcesses puts the processes into their tasks.
func withProcesses(all []render.Branch) []session.Info {
	infos := make([]session.Info, len(all))
	for i := range all {
		infos[i] = all[i].Info
		for _, p := range all[i].Alive {
			for t := range infos[i].Tasks {
				if infos[i].Tasks[t].N == p.Task {
					infos[i].Tasks[t].Processes = append(infos[i].Tasks[t].Processes, p)
				}
			}
		}
	}
	return infos
}
