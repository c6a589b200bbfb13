package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/tui"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func (a *app) newTop() *cobra.Command {
	var every *time.Duration
	cmd := &cobra.Command{
		Use:   "top [flags]",
		Short: "Watch sessions, tasks and processes, and act on them, full screen",
		Long: `Show the open sessions full screen and keep them up to date: what they use, and below
each its tasks and their processes. Keys freeze and thaw a session, kill a task and close
a session; what would end a process asks first and names all that it would end. "?" shows
the keys. Looking is no activity in a session.

The bar is how full the limit is that a session's memory meets first: its own part, then
that of all others; see ` + "`sessionbox stats --help`" + ` for the figures.

Where stdin or stdout is no terminal, or with --json, it is ` + "`sessionbox stats --no-stream`" + `.

Exit status:
  0    left with q
  1    failed
  2    usage
  130  interrupted`,
		Example: `  sessionbox top
  sessionbox top --interval 0.5`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              a.withSignals(func(ctx context.Context, _ []string) error { return a.top(ctx, every) }),
	}
	intervalFlag(cmd.Flags(), &every)
	return cmd
}

func (a *app) top(ctx context.Context, asked *time.Duration) error {
	every, err := interval(asked)
	if err != nil {
		return err
	}
	in, isFile := a.stdin.(*os.File)
	out, tty := a.terminal()
	if a.json || !tty || !isFile || !term.IsTerminal(int(in.Fd())) {
		return a.stats(ctx, &statsOptions{noStream: true, interval: asked}, nil)
	}
	m, err := session.New(session.Config{CgroupRoot: a.cgroupRoot}) // what it logs would be written over the screen
	if err != nil {
		return err
	}
	err = tui.Run(ctx, topSource{m}, tui.Options{In: in, Out: out, Interval: every, Color: a.style(a.stdout).Color})
	if errors.Is(err, tui.ErrInterrupted) {
		return &codeError{code: exitSignal + int(syscall.SIGINT)}
	}
	return err
}

// topSource lets the screen see and act through the manager.
type topSource struct{ m *session.Manager }

func (t topSource) Look(ctx context.Context, wanted func(string) bool) (tui.Snapshot, error) {
	look, err := t.m.Look(ctx)
	s := tui.Snapshot{Look: look, Alive: map[string][]session.Process{}}
	for i := range look.Sessions {
		if id := look.Sessions[i].ID; wanted(id) {
			if alive, err := t.m.Processes(ctx, id, session.ProcessOptions{}); err == nil { // else it was closed meanwhile
				s.Alive[id] = alive
			}
		}
	}
	return s, err
}

func (t topSource) Freeze(ctx context.Context, id string) error {
	return t.do(ctx, id, (*session.Session).Freeze)
}

func (t topSource) Thaw(ctx context.Context, id string) error {
	return t.do(ctx, id, (*session.Session).Thaw)
}

func (t topSource) do(ctx context.Context, id string, do func(*session.Session, context.Context) error) error {
	s, err := t.m.Get(ctx, id)
	if err != nil {
		return err
	}
	defer s.Release()
	return do(s, ctx)
}

func (t topSource) WouldKill(ctx context.Context, id string, task int) ([]session.Process, error) {
	return t.m.Processes(ctx, id, session.ProcessOptions{Task: task})
}

func (t topSource) Kill(ctx context.Context, id string, task int) error {
	_, err := killOne(ctx, t.m, fmt.Sprintf("%s/%d", id, task), 0, 0)
	return err
}

func (t topSource) WouldClose(ctx context.Context, id string) (session.Receipt, error) {
	return t.m.Close(ctx, id, session.CloseOptions{DryRun: true})
}

func (t topSource) Close(ctx context.Context, id string) (session.Receipt, error) {
	return t.m.Close(ctx, id, session.CloseOptions{})
}

// terminal is stdout, if it is a terminal on which something can be written over.
func (a *app) terminal() (*os.File, bool) {
	f, isFile := a.stdout.(*os.File)
	return f, isFile && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}
