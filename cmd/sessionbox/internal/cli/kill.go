package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

type killOptions struct {
	signal     string
	generation int
}

func (a *app) newKill() *cobra.Command {
	var o killOptions
	cmd := &cobra.Command{
		Use:   "kill SESSION[/TASK]… [flags]",
		Short: "End the tasks of a session, or one of them; the session stays open",
		Long: `End a task, or all of a session, with everything it started: SIGKILL until the kernel
says that nothing is left. With -s a signal is sent once to each process instead.
The session stays open; ` + "`sessionbox close`" + ` ends it, and with it the containers, units and
jobs that it had others start: those are no task's.

Exit status:
  0  nothing of it is left, or the signal was sent
  1  failed
  2  usage
  3  no such session or task
  4  something survived
  6  not permitted
  7  another owner has taken the session over from the caller`,
		Example: `  sessionbox kill work/3
  sessionbox kill work -s HUP`,
		Args:              someArgs(1, -1),
		ValidArgsFunction: a.completeSessions(true, true),
		RunE:              a.withSignals(func(ctx context.Context, args []string) error { return a.kill(ctx, &o, args) }),
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if errors.Is(err, pflag.ErrHelp) {
			return err
		}
		return usagef("%v", err).hintf("a signal is given as -s 9 or -s KILL; `%s --help` lists the flags", cmd.CommandPath())
	})
	cmd.Flags().StringVarP(&o.signal, "signal", "s", "", "send this `SIGNAL` once, by name or number")
	generationFlag(cmd.Flags(), &o.generation)
	completeWords(cmd, "signal", "HUP", "INT", "QUIT", "USR1", "USR2", "TERM", "CONT", "STOP", "KILL")
	return cmd
}

// Killed is what kill did.
type Killed struct {
	Schema    int    `json:"schema"`
	Session   string `json:"session"` // id
	Name      string `json:"name,omitempty"`
	Task      int    `json:"task,omitempty"`
	Signal    string `json:"signal"`
	Processes int    `json:"processes"` // how many got it
}

func (a *app) kill(ctx context.Context, o *killOptions, args []string) error {
	var sig syscall.Signal
	if o.signal != "" {
		var err error
		if sig, err = parseSignal(o.signal); err != nil {
			return err
		}
	}
	m, err := a.manager()
	if err != nil {
		return err
	}
	done := []Killed{}
	errs := make([]error, 0, len(args)+1)
	for _, arg := range args {
		k, err := killOne(ctx, m, arg, sig, o.generation)
		if err == nil {
			done = append(done, k)
		}
		errs = append(errs, err)
	}
	if a.json {
		errs = append(errs, a.printJSON(done))
	}
	for _, k := range done {
		if k.Processes == 0 && !a.json {
			a.say("nothing ran in %s", k.ref())
		}
	}
	return several(errs)
}

func (k *Killed) ref() string {
	name := k.Name
	if name == "" {
		name = k.Session
	}
	if k.Task == 0 {
		return name
	}
	return fmt.Sprintf("%s/%d", name, k.Task)
}

// killOne ends, with sig 0, or signals what one argument names.
func killOne(ctx context.Context, m *session.Manager, arg string, sig syscall.Signal, generation int) (Killed, error) {
	ref, task, err := splitRef(arg)
	if err != nil {
		return Killed{}, err
	}
	s, err := m.Get(ctx, ref)
	if err != nil {
		return Killed{}, err
	}
	defer s.Release()
	s.ActFor(generation)
	k := Killed{Schema: session.Schema, Session: s.ID(), Task: task, Signal: "SIGKILL"}
	if s.Name() != s.ID() {
		k.Name = s.Name()
	}
	if sig != 0 {
		k.Signal = unix.SignalName(sig)
		k.Processes, err = s.SignalTask(ctx, task, sig)
		return k, err
	}
	if err := s.StepOut(ctx); err != nil {
		return k, err
	}
	if task == 0 {
		k.Processes, err = s.KillAll(ctx, "killed by sessionbox kill")
		return k, err
	}
	if list, err := m.Processes(ctx, s.ID(), session.ProcessOptions{Task: task}); err == nil {
		k.Processes = len(list)
	}
	return k, s.KillTask(ctx, task, "killed by sessionbox kill")
}

// parseSignal reads TERM, SIGTERM, sigterm or 15.
func parseSignal(text string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(text); err == nil {
		if n >= 1 && n <= 64 {
			return syscall.Signal(n), nil
		}
		return 0, usagef("--signal: no signal %d", n).hintf("signals are 1 to 64")
	}
	name := strings.ToUpper(text)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if sig := unix.SignalNum(name); sig != 0 {
		return sig, nil
	}
	return 0, usagef("--signal: no signal %q", text).hintf("e.g. TERM, HUP, USR1 or a number")
}
