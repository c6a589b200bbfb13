package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/render"
	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/supervise"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/spf13/cobra"
)

type runOptions struct {
	openOptions
	commandOptions
	quiet bool
}

func (a *app) newRun() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [flags] [--] COMMAND [ARG…]",
		Short: "Run a command in a session of its own and end all it started with it",
		Long: `Open a session, run a command in it, close the session. What the command left
running is ended; one line on stderr says what that was (-q hides it). So it does when a guard
warns of the session's memory, or does something about it.

With --oci it is a container, and without COMMAND what its bundle says is run (see
` + "`sessionbox open --help`" + `).

What the command has docker, podman, systemd-run, at or crontab start ends with the
session, too (see ` + "`sessionbox open --help`" + `); --no-shims leaves that out, as --oci does.

SIGTERM and SIGHUP close the session: the processes are asked to end, then killed.
The first Ctrl-C is the command's; the second one ends everything at once.

Exit status:
  the command's, or
  125    sessionbox failed, or something survived the close
  126    the command cannot be run
  127    the command was not found
  128+n  signal n ended the command, or sessionbox was told to end by it`,
		Example: `  sessionbox run -- claude
  sessionbox run --name build --memory-max 75% -- make -j8
  sessionbox run -e CI=1 -w /src -- npm test`,
		Args:              func(*cobra.Command, []string) error { return nil },
		ValidArgsFunction: a.completeCommand,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.oci != "" && !cmd.Flags().Changed("shims") {
				o.shims = false // which a container's commands would not see
			}
			return a.run(cmd.Context(), &o, args)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	o.shims = true
	o.openOptions.flags(f)
	f.BoolVar(&o.noShims, "no-shims", false, "as --shims=false: put nothing before docker and others in the PATH")
	o.commandOptions.flags(f)
	f.BoolVarP(&o.quiet, "quiet", "q", false, "do not say what was ended, nor that memory is short")
	for _, name := range []string{"attach", "take-over", "owner-pid", "lease", "on-owner-exit"} {
		f.MarkHidden(name)
	}
	completeBackend(cmd)
	completeLife(cmd)
	cmd.MarkFlagDirname("oci")
	return cmd
}

func (a *app) run(ctx context.Context, o *runOptions, argv []string) error {
	if o.attach || o.takeOver {
		return usagef("run closes the session it opened, --attach would close another's").hintf("`sessionbox exec %s -- …` runs a command in an open one", o.name)
	}
	if o.ownerPID != nil || o.lease != nil || o.onOwnerExit != "" {
		return usagef("run is itself the owner of its session").hintf("`sessionbox open` takes --owner-pid, --lease and --on-owner-exit")
	}
	so, err := o.options()
	if err != nil {
		return err
	}
	so.Owner = &session.OwnerOptions{PID: os.Getpid()}
	cmd, err := a.commandIn(so.Container != nil, &o.commandOptions, argv)
	if err != nil {
		return err
	}
	// A guard would cost as much as the rest of a short run. If this process is killed
	// the box's anchor ends the command; idle times and memory need one.
	a.cgroupRoot, a.ownerSees = o.cgroupRoot, true
	m, err := a.manager()
	if err != nil {
		return err
	}
	sup := supervise.Begin()
	open, cancel := sup.UntilSignal(ctx)
	defer cancel()
	s, err := m.Open(open, so)
	if err != nil {
		return early(sup, err)
	}
	defer s.Release()
	if !a.json {
		a.warnCeilings(s.Ceilings())
		a.warnOOM(s.OOM())
	}
	if s.WatchesMemory() && !o.quiet {
		warned, cancel := context.WithCancel(ctx)
		defer cancel()
		go a.sayWarnings(warned, m, s)
	}
	r := &running{a: a, m: m, s: s, sup: sup, cmd: cmd, quiet: o.quiet}
	return r.run(ctx, open)
}

// early is the error of what a signal may have broken off.
func early(sup *supervise.Supervisor, err error) error {
	if sig := sup.Caught(); sig != 0 {
		return &codeError{code: exitSignal + int(sig), err: interrupted{sig}}
	}
	return err
}

// running is one run under way.
type running struct {
	a     *app
	m     *session.Manager
	s     *session.Session
	sup   *supervise.Supervisor
	cmd   *exec.Cmd
	task  *session.Task
	quiet bool

	mu sync.Mutex
	// told is the signal that told us to end, 0 while none did.
	told  syscall.Signal
	ints  int           // SIGINTs so far
	ended bool          // the command has ended
	hurry chan struct{} // closed when the close is to kill at once
	once  sync.Once
	stop  chan struct{} // closed when the session is to be closed before its command ended
}

func (r *running) run(ctx, starting context.Context) error {
	r.hurry, r.stop = make(chan struct{}), make(chan struct{})
	r.cmd.SysProcAttr = r.sup.Attr()
	t, err := r.s.Start(starting, r.cmd, session.StartOptions{Tie: true})
	if err != nil {
		return several([]error{early(r.sup, err), r.close(ctx)})
	}
	r.task = t
	r.sup.Forward(r.signal)

	type end struct {
		result session.Result
		err    error
	}
	done := make(chan end, 1)
	go func() {
		result, err := t.Wait()
		r.mu.Lock()
		r.ended = true
		r.mu.Unlock()
		done <- end{result, err}
	}()
	var e end
	var failed error
	select {
	case e = <-done:
		failed = r.close(ctx)
	case <-r.stop: // a signal
		failed = r.close(ctx)
		if failed == nil {
			e = <-done
		}
	}
	if failed != nil {
		return &codeError{code: exitOwnFailure, err: failed}
	}
	if sig := r.toldBy(); sig != 0 {
		return result(exitSignal + int(sig))
	}
	if e.err != nil {
		return e.err
	}
	return r.a.ended(ctx, r.s, t.N(), e.result)
}

func (r *running) toldBy() syscall.Signal {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told
}

// signal decides what a signal means: the first INT is the command's, TERM and
// HUP close, and whatever asks to end once more closes at once.
func (r *running) signal(sig syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch sig {
	case syscall.SIGINT:
		r.ints++
		if r.ints == 1 && r.told == 0 && !r.ended {
			if !r.sup.FromTerminal(sig) {
				r.a.pass(r.sup, r.task, r.cmd, sig)
			}
			return
		}
		r.end(sig, true)
	case syscall.SIGTERM, syscall.SIGHUP:
		r.end(sig, r.told != 0)
	default:
		if !r.sup.FromTerminal(sig) && !r.ended {
			r.a.pass(r.sup, r.task, r.cmd, sig)
		}
	}
}

// end has the session closed. r.mu is held.
func (r *running) end(sig syscall.Signal, now bool) {
	first := r.told == 0 && !r.ended
	if now || !first { // not the first: it is being closed already
		r.once.Do(func() { close(r.hurry) })
	}
	if first { // last: whoever hears it looks at once whether to hurry
		r.told = sig
		close(r.stop)
	}
}

// close closes the session and says what was left in it. When hurried it begins
// again, killing at once: a close can be broken off and repeated at any point.
func (r *running) close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	soft, cancel := context.WithCancel(ctx)
	defer cancel()
	now := r.hurried()
	if !now {
		over := make(chan struct{})
		defer close(over)
		go func() {
			select {
			case <-r.hurry:
				cancel()
			case <-over:
			}
		}()
	}
	receipt, err := r.m.Close(soft, r.s.ID(), session.CloseOptions{Now: now})
	if err != nil && soft.Err() != nil {
		receipt, err = r.m.Close(ctx, r.s.ID(), session.CloseOptions{Now: true}) // with what the first one did
	}
	if errors.Is(err, session.ErrClosed) || errors.Is(err, session.ErrNotFound) {
		return nil // somebody else was quicker
	}
	if receipt.Swept()+len(receipt.Kept) > 0 && !r.quiet && !receipt.AlreadyClosed {
		if r.a.json {
			r.a.jsonLine(receipt)
		} else {
			fmt.Fprintf(r.a.stderr, "sessionbox: %s\n", render.ReceiptLine(&receipt))
		}
	}
	return err
}

func (r *running) hurried() bool {
	select {
	case <-r.hurry:
		return true
	default:
		return false
	}
}
