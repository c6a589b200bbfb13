package cli

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/render"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

type closeOptions struct {
	all    bool
	labels map[string]string
	grace  *time.Duration
	now    bool
	dryRun bool
	forget bool

	spare, include bool

	generation int
}

func (a *app) newClose() *cobra.Command {
	var o closeOptions
	cmd := &cobra.Command{
		Use:   "close SESSION… [flags]",
		Short: "End everything of a session and say what it was",
		Long: `Close sessions: ask their processes to end (SIGTERM), wait for the grace, kill what
is left, and remove the box. Sessions opened from inside are closed first. The
receipt lists what was alive and what became of it.

A daemon that was founded in a session may serve others: somebody outside is connected to
a unix socket of it, as a client to a tmux server or to the master of ssh connections. At a
terminal it is asked what to do with it. Else it is spared if one of those is neither the
session's owner nor who closes it: with all that it has started it is moved to a session
of its own (NAME.kept-N), which its own close ends. --spare and --include decide. Who is in
a session that is closed along is not outside, and in a container none is spared.

What cannot be asked any more cannot be closed: an engine that is gone for good and held
containers of the session, processes of a container that was killed itself. --forget drops
the record of such a session. The exit status stays, and the receipt says what may be left.

0 means that the kernel says nothing is left. Closing what is closed already does
no harm: the earlier receipt is shown. With --json the answer is a list of
receipts.

Exit status:
  0  closed, nothing is left
  1  failed
  2  usage
  3  no such session
  4  something survived: it is listed, with what it waits for
  6  not permitted
  7  another owner has taken the session over from the caller
  130  interrupted; close again to go on`,
		Example: `  sessionbox close work
  sessionbox close --all --now
  sessionbox close work --dry-run`,
		Args: func(cmd *cobra.Command, args []string) error {
			if o.now && o.grace != nil {
				return usagef("close: --now leaves no --grace").hintf("leave one out")
			}
			if o.forget && o.dryRun {
				return usagef("close: --dry-run forgets nothing").hintf("leave one out")
			}
			if o.spare && o.include {
				return usagef("close: --spare and --include contradict each other").hintf("leave one out")
			}
			if o.all || len(o.labels) > 0 {
				if len(args) > 0 {
					return usagef("close: either sessions or --all, --label").hintf("leave one out")
				}
				return nil
			}
			return someArgs(1, -1)(cmd, args)
		},
		ValidArgsFunction: a.completeSessions(false, true),
		RunE:              a.withSignals(func(ctx context.Context, args []string) error { return a.close(ctx, &o, args) }),
	}
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, "all sessions")
	f.VarP(labels{&o.labels}, "label", "l", "all sessions with this label; several must all fit")
	f.Var(duration{&o.grace}, "grace", "time from SIGTERM to SIGKILL (default: the session's; 0: as --now)")
	f.BoolVar(&o.now, "now", false, "kill at once")
	f.BoolVar(&o.dryRun, "dry-run", false, "change nothing, say what would be ended")
	f.BoolVar(&o.forget, "forget", false, "forget it if it cannot be closed, as nobody can be asked any more")
	f.BoolVar(&o.spare, "spare", false, "spare daemons that serve anybody outside the session")
	f.BoolVar(&o.include, "include", false, "end daemons too that serve others")
	generationFlag(f, &o.generation)
	return cmd
}

// closeAtOnce is how many sessions are closed at the same time.
const closeAtOnce = 8

func (a *app) close(ctx context.Context, o *closeOptions, refs []string) error {
	m, err := a.manager()
	if err != nil {
		return err
	}
	if o.all || len(o.labels) > 0 {
		if refs, err = selected(ctx, m, o); err != nil {
			return err
		}
	}
	for _, ref := range refs {
		if err := sessionRef(ref); err != nil {
			return err
		}
	}
	receipts := make([]session.Receipt, len(refs))
	errs := make([]error, len(refs))
	shared, err := a.shared(ctx, m, o, refs)
	if err != nil {
		return err
	}
	so := session.CloseOptions{Shared: shared, Along: refs, Grace: o.grace, Now: o.now, Forget: o.forget, DryRun: o.dryRun, Generation: o.generation}
	var wg sync.WaitGroup
	slots := make(chan struct{}, closeAtOnce)
	for i, ref := range refs {
		slots <- struct{}{}
		wg.Go(func() {
			receipts[i], errs[i] = m.Close(ctx, ref, so)
			<-slots
		})
	}
	wg.Wait()
	shown := []session.Receipt{}
	for _, r := range receipts {
		if r.ID != "" {
			shown = append(shown, r)
		}
	}
	if a.json {
		err = a.printJSON(shown)
	} else {
		err = a.printReceipts(shown)
	}
	return several(append(errs, err))
}

// shared decides about daemons that serve others. It asks only where somebody can answer.
func (a *app) shared(ctx context.Context, m *session.Manager, o *closeOptions, refs []string) (session.Shared, error) {
	switch {
	case o.spare:
		return session.SharedSpare, nil
	case o.include:
		return session.SharedInclude, nil
	case o.dryRun || o.now || a.json || !isTerminal(a.stdin) || !isTerminal(a.stderr):
		return session.SharedAuto, nil
	}
	served := 0
	for _, ref := range refs {
		all, _ := m.Served(ctx, ref, refs...) // the close says what is wrong with a reference
		for i := range all {
			a.say("%s (%d) in %s serves %s", render.Clean(all[i].Comm), all[i].PID, ref, render.Clients(&all[i]))
		}
		served += len(all)
	}
	if served == 0 {
		return session.SharedAuto, nil
	}
	return a.ask(ctx)
}

// ask asks whether daemons are to be spared. No answer is the default.
func (a *app) ask(ctx context.Context) (session.Shared, error) {
	fmt.Fprint(a.stderr, "sessionbox: spare what serves others, or end it with the session? [Spare/end] ")
	answers := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(a.stdin).ReadString('\n')
		answers <- line
	}()
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case answer := <-answers:
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "e", "end":
			return session.SharedInclude, nil
		case "s", "spare", "y", "yes":
			return session.SharedSpare, nil
		}
		return session.SharedAuto, nil
	}
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func (a *app) printReceipts(all []session.Receipt) error {
	st := a.style(a.stdout)
	for i := range all {
		if err := render.Receipt(a.stdout, &all[i], st); err != nil {
			return err
		}
	}
	return nil
}

// selected are the open sessions that the flags choose, without those inside
// another one that is chosen: these are closed with it.
func selected(ctx context.Context, m *session.Manager, o *closeOptions) ([]string, error) {
	infos, err := m.List(ctx, session.ListOptions{})
	if err != nil {
		return nil, err
	}
	chosen := map[string]string{} // id to parent
	for i := range infos {
		if infos[i].State != string(store.StateClosed) && hasLabels(&infos[i], o.labels) {
			chosen[infos[i].ID] = infos[i].Parent
		}
	}
	var ids []string
	for i := range infos {
		parent, ok := chosen[infos[i].ID]
		if _, inside := chosen[parent]; ok && !inside {
			ids = append(ids, infos[i].ID)
		}
	}
	return ids, nil
}

func hasLabels(i *session.Info, want map[string]string) bool {
	for k, v := range want {
		if i.Labels[k] != v {
			return false
		}
	}
	return true
}
