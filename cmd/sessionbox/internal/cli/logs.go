package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/spf13/cobra"
)

type logsOptions struct {
	follow, timestamps bool
	tail               int
}

func (a *app) newLogs() *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use:   "logs SESSION/TASK [flags]",
		Short: "Show what a command wrote that was started with exec --log",
		Long: `Show the output of a task that was started with ` + "`sessionbox exec --log`" + `, oldest first:
what it wrote to stdout on stdout, to stderr on stderr, byte for byte. It holds what
the command left running wrote as well. What is not there any more is said on stderr.

With -f what is written from now on follows, until nothing is left that could write.
With --json each line is an object; "partial" says that the stream's next one goes on
where this one ends, "missing_bytes" that so much is not in the log.

Logs outlive their session by 31 days. A name means the session that has it now or,
if none has, the last one that had it; an id names any.

Exit status:
  0    shown
  1    failed
  2    usage
  3    no such session or task, or it has no log
  130  interrupted while following`,
		Example: `  sessionbox logs work/3
  sessionbox logs work/3 -f --tail 20
  sessionbox logs work/3 --json | jq -r 'select(.stream=="stderr").text'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("logs: of which task?").hintf("usage: %s; `sessionbox inspect SESSION` lists the tasks", cmd.UseLine())
			}
			return nil
		},
		ValidArgsFunction: a.completeSessions(true, false),
	}
	f := cmd.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false, "go on with what is written from now on")
	f.IntVarP(&o.tail, "tail", "n", 0, "only the newest `N` lines")
	f.BoolVarP(&o.timestamps, "timestamps", "t", false, "when each line was written, before it")
	cmd.RunE = a.withSignals(func(ctx context.Context, args []string) error {
		lo := session.LogOptions{Follow: o.follow}
		if cmd.Flags().Changed("tail") {
			if o.tail < 0 {
				return usagef("--tail: %d is negative", o.tail).hintf("leave it out for all that is kept")
			}
			lo.Tail = &o.tail
		}
		return a.logs(ctx, &o, lo, args[0])
	})
	return cmd
}

func (a *app) logs(ctx context.Context, o *logsOptions, lo session.LogOptions, arg string) error {
	ref, task, err := splitRef(arg)
	if err != nil {
		return err
	}
	m, err := a.manager()
	if err != nil {
		return err
	}
	p := logPrinter{a: a, stamps: o.timestamps}
	for l, err := range m.Logs(ctx, ref, task, lo) {
		if err == nil {
			err = p.print(&l)
		}
		if err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return errFollowed
	}
	return nil
}

// LogLine is a line of a task's log in JSON.
type LogLine struct {
	Schema int       `json:"schema"`
	Time   time.Time `json:"time,omitzero"`
	Stream string    `json:"stream,omitempty"` // stdout, stderr
	// Text is without the newline; what is not UTF-8 is replaced.
	Text string `json:"text"`
	// Partial says that the stream's next line goes on where this one ends.
	Partial bool `json:"partial"`
	// MissingBytes are not in the log, in place of a text.
	MissingBytes int64 `json:"missing_bytes,omitempty"`
}

// logPrinter writes each stream of a log to the like one of ours.
type logPrinter struct {
	a      *app
	stamps bool
	within [2]bool // that a line was begun
	buf    []byte
}

func (p *logPrinter) print(l *session.LogLine) error {
	if p.a.json {
		return p.a.line(LogLine{Schema: session.Schema, Time: l.Time, Stream: l.Stream,
			Text: strings.ToValidUTF8(string(l.Text), "\uFFFD"), Partial: l.Partial, MissingBytes: l.Missing})
	}
	if l.Missing > 0 {
		p.a.say("%d bytes are missing here", l.Missing)
		return nil
	}
	w, within := p.a.stdout, &p.within[0]
	if l.Stream == "stderr" {
		w, within = p.a.stderr, &p.within[1]
	}
	p.buf = p.buf[:0]
	if p.stamps && !*within {
		p.buf = fmt.Appendf(p.buf, "%s ", l.Time.UTC().Format(stampLayout))
	}
	p.buf = append(p.buf, l.Text...)
	if !l.Partial {
		p.buf = append(p.buf, '\n')
	}
	*within = l.Partial
	_, err := w.Write(p.buf)
	return err
}

// stampLayout is RFC 3339 with as many digits on every line.
const stampLayout = "2006-01-02T15:04:05.000000Z"
