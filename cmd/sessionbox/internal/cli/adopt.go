package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/render"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/spf13/cobra"
)

func (a *app) newAdopt() *cobra.Command {
	o := session.AdoptOptions{LeaveCaller: true} // it ends when it has told
	cmd := &cobra.Command{
		Use:   "adopt SESSION PID… [flags]",
		Short: "Bring running processes with all their descendants into a session",
		Long: `Bring running processes, each with all its descendants, into an open session as one
new task, whose name SESSION/TASK is printed. It is for an agent that can only call a
hook after it has started. Either none is moved or all are; they stand still for some
milliseconds, and no signal is sent. This command itself stays outside and ends.

PID:START, with the start time in clock ticks since boot (field 22 of
/proc/PID/stat), makes sure that the pid is not another's by now.

Not adopted are: other users' processes, those of another session, services and
their managers, sshd and other daemons that give users their sessions, a login shell
and the shell of a terminal. Between PID and this command there must be none of them
either. What is in the session already stays where it is.

Memory that they hold already stays charged where it was: the session's figures and
ceilings know what is touched from now on. They do not carry the session's cookie:
one that leaves the box later is not found by it.

Exit status:
  0  all of the tree is in the session
  1  failed: no such process, or some are still outside
  2  usage
  3  no such session
  5  not supported by the box
  6  not permitted, or a process that must not be adopted`,
		Example: `  sessionbox adopt work $PPID
  sessionbox adopt work 4711:123456 --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return usagef("adopt: which process?").hintf("usage: %s; in a hook $PPID often is the agent", cmd.UseLine())
			}
			return someArgs(2, -1)(cmd, args)
		},
		ValidArgsFunction: a.completeSessions(false, false),
	}
	cmd.RunE = a.withSignals(func(ctx context.Context, args []string) error { return a.adopt(ctx, o, args[0], args[1:]) })
	f := cmd.Flags()
	f.BoolVar(&o.FromSession, "from-session", false, "also take processes that belong to another session")
	f.BoolVar(&o.OtherUsers, "other-users", false, "also take processes of other users (root only)")
	return cmd
}

func (a *app) adopt(ctx context.Context, o session.AdoptOptions, ref string, pids []string) error {
	if err := sessionRef(ref); err != nil {
		return err
	}
	roots := make([]session.Root, len(pids))
	for i, text := range pids {
		var err error
		if roots[i], err = parseRoot(text); err != nil {
			return err
		}
	}
	s, err := a.session(ctx, ref)
	if err != nil {
		return err
	}
	defer s.Release()
	r, err := s.Adopt(ctx, roots, o)
	if err != nil && r.Task == 0 {
		return err
	}
	if a.json {
		return several([]error{err, a.printJSON(r)})
	}
	return several([]error{err, a.tellAdopted(s.Name(), &r)})
}

// tellAdopted prints the task, and says beside it what else is to be known.
func (a *app) tellAdopted(name string, r *session.Adopted) error {
	for _, p := range r.Skipped {
		a.say("not adopted: %d (%s): %s", p.PID, render.Clean(p.Comm), render.Clean(p.Reason))
	}
	for _, n := range r.Notes {
		a.say("note: %s", n)
	}
	if r.Task == 0 {
		a.say("nothing to adopt: %d of the processes are in %s already", r.Already, name)
		return nil
	}
	text := fmt.Sprintf("adopted %d processes", len(r.Processes))
	if len(r.Processes) == 1 {
		text = "adopted 1 process"
	}
	if r.Already > 0 {
		text += fmt.Sprintf(", %d were in %s already", r.Already, name)
	}
	if n := r.ChargedElsewhereBytes; n > 0 {
		text += fmt.Sprintf("; %s stay charged where they were", memlimit.FormatBytes(uint64(n)))
	}
	a.say("%s", text)
	if _, err := fmt.Fprintf(a.stdout, "%s/%d\n", name, r.Task); err != nil {
		return fmt.Errorf("%s/%d was adopted, but that could not be printed: %w", name, r.Task, err)
	}
	return nil
}

// parseRoot reads PID or PID:START.
func parseRoot(text string) (r session.Root, err error) {
	pid, start, timed := strings.Cut(text, ":")
	if r.PID, err = strconv.Atoi(pid); err == nil && timed {
		r.Start, err = strconv.ParseUint(start, 10, 64)
	}
	if err != nil || timed && r.Start == 0 {
		return r, usagef("%q is no process", text).hintf("want PID or PID:START; in a hook $PPID often is the agent")
	}
	return r, nil
}
