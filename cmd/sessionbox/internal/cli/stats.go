package cli

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/render"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

type statsOptions struct {
	noStream bool
	interval *time.Duration
}

func (a *app) newStats() *cobra.Command {
	var o statsOptions
	cmd := &cobra.Command{
		Use:   "stats [SESSION…] [flags]",
		Short: "Show what sessions use: processor, memory, swap, processes",
		Long: `Show what all open sessions use, or the given ones: on a terminal kept up to date, else
one table after the other. With --json each session is a line of JSON. Looking is no
activity in a session.

CPU is of one processor, between two looks. MEM is memory that cannot be had back
without killing or swapping; page cache is not counted. LIMIT is the limit that it meets
first: the session's own, that of a cgroup around it, or the host's memory; FULL is how
full that is, with all that counts against it. PIDS are processes, and threads where the
kernel counts them. PRESS is the share of the last ten seconds in which something waited
for memory, OOM what the kernel killed for want of it, LEFT what outlived its command.
SOURCE says how memory was measured: cgroup, or processes, a sum in which what they
share counts for each. "-" is a figure that cannot be had here. Where the terminal is too
narrow, columns are left out, first those that say nothing.

Exit status:
  0    shown
  1    failed
  2    usage
  3    no such session
  130  interrupted`,
		Example: `  sessionbox stats
  sessionbox stats work --no-stream
  sessionbox stats --json --interval 10 | jq '[.name, .usage.memory_bytes]'`,
		ValidArgsFunction: a.completeSessions(false, true),
		RunE:              a.withSignals(func(ctx context.Context, args []string) error { return a.stats(ctx, &o, args) }),
	}
	f := cmd.Flags()
	f.BoolVar(&o.noStream, "no-stream", false, "show it once")
	intervalFlag(f, &o.interval)
	return cmd
}

// intervalFlag adds the flag that says how often is looked.
func intervalFlag(f *pflag.FlagSet, at **time.Duration) {
	f.Var(duration{at}, "interval", "time between two looks, at least 0.1 (default 2)")
}

const (
	lookEvery   = 2 * time.Second
	lookLeast   = 100 * time.Millisecond
	lookForOnce = 500 * time.Millisecond // the first rate is wanted soon
)

// interval is the time between two looks that was asked for.
func interval(asked *time.Duration) (time.Duration, error) {
	switch {
	case asked == nil:
		return lookEvery, nil
	case *asked < lookLeast:
		return 0, usagef("--interval: %v is too short", *asked).hintf("looking takes time, too: at least %v", lookLeast)
	}
	return *asked, nil
}

func (a *app) stats(ctx context.Context, o *statsOptions, refs []string) error {
	every, err := interval(o.interval)
	if err != nil {
		return err
	}
	m, err := a.manager()
	if err != nil {
		return err
	}
	ids, err := resolveAll(ctx, m, refs)
	if err != nil {
		return err
	}
	before, err := m.Look(ctx, ids...)
	if err != nil {
		return err
	}
	for pause := min(every, lookForOnce); ; pause = every {
		select {
		case <-ctx.Done():
			return errFollowed
		case <-time.After(pause):
		}
		now, err := m.Look(ctx, ids...)
		if ctx.Err() != nil { // in the middle of a look is no other end than between two
			return errFollowed
		}
		if err != nil {
			return err
		}
		if err := a.showStats(now.Stats(before), o.noStream); err != nil || o.noStream {
			return err
		}
		if len(ids) > 0 && len(now.Sessions) == 0 {
			a.say("closed: %s", strings.Join(refs, ", "))
			return nil
		}
		before = now
	}
}

// resolveAll gives the ids of the sessions that are named.
func resolveAll(ctx context.Context, m *session.Manager, refs []string) ([]string, error) {
	var ids []string
	for _, ref := range refs {
		if err := sessionRef(ref); err != nil {
			return nil, err
		}
		i, err := m.Inspect(ctx, ref, session.InspectOptions{})
		if err != nil {
			return nil, err
		}
		ids = append(ids, i.ID)
	}
	return ids, nil
}

func (a *app) showStats(all []session.Stats, once bool) error {
	if a.json {
		for i := range all {
			if err := a.line(&all[i]); err != nil {
				return err
			}
		}
		return nil
	}
	st := a.style(a.stdout)
	var b bytes.Buffer
	rows, live := a.rowsOfTerminal()
	if len(all) > 0 || !live && !once { // whoever reads a row of tables sees that it goes on
		if err := render.Stats(&b, all, st); err != nil {
			return err
		}
	}
	switch {
	case live && !once:
		if len(all) == 0 {
			b.WriteString("no sessions\n")
		}
		b = frame(b.String(), rows)
	case len(all) == 0 && once:
		a.say("no sessions")
	case !once:
		b.WriteByte('\n') // between two tables
	}
	_, err := a.stdout.Write(b.Bytes())
	return err
}

// rowsOfTerminal is the height of the terminal on stdout, false if it is none.
func (a *app) rowsOfTerminal() (rows int, ok bool) {
	f, ok := a.terminal()
	if !ok {
		return 0, false
	}
	_, rows, err := term.GetSize(int(f.Fd()))
	return rows, err == nil && rows > 0
}

// frame writes a text over the one before it: from the top, each line to its end,
// then what is left of the screen is cleared. Nothing is blank in between. What does
// not fit is cut at the bottom.
func frame(text string, rows int) (b bytes.Buffer) {
	b.WriteString("\x1b[H")
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, line := range lines {
		if i == rows-1 {
			break // the last line is the cursor's
		}
		b.WriteString(line + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	return b
}
