package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/render"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// openOptions are the flags that say what session is wanted.
type openOptions struct {
	name       string
	labels     map[string]string
	backend    string
	lineage    string
	require    string
	cgroupRoot string
	limits     memlimit.Limits
	grace      *time.Duration
	attach     bool
	takeOver   bool
	noParent   bool
	privateTmp bool
	strict     bool
	oci        string
	runtime    string
	shims      bool
	noShims    bool

	ownerPID    *int
	lease       *time.Duration
	onOwnerExit string
	oom         string
	idleTimeout *time.Duration
	idleAction  string
	memory      memoryOptions
}

func (o *openOptions) flags(f *pflag.FlagSet) {
	f.VarP(name{&o.name}, "name", "n", "of the session; free again once it is closed")
	f.VarP(labels{&o.labels}, "label", "l", "label, can be given several times")
	backendFlag(f, &o.backend)
	f.StringVar(&o.lineage, "lineage-mode", "", "`HOW` a lineage box holds on macOS: auto, direct or job (default auto)")
	f.StringVar(&o.require, "require", "", "`kernel` refuses a box that the kernel does not enforce")
	f.StringVar(&o.cgroupRoot, "cgroup-root", "", "`DIR` below which the cgroup box makes its tree")
	limitFlags(f, &o.limits)
	memoryFlags(f, &o.memory)
	oomFlag(f, &o.oom)
	f.Var(duration{&o.grace}, "grace", "how long a close waits from SIGTERM to SIGKILL (default 5s; 0: kill)")
	f.Var(pid{&o.ownerPID}, "owner-pid", "the process that the session belongs to")
	f.Var(duration{&o.lease}, "lease", "it belongs to whoever renews this (verb touch)")
	f.StringVar(&o.onOwnerExit, "on-owner-exit", "", "`DO` when the owner is gone: close (default) or keep")
	f.BoolVar(&o.attach, "attach", false, "use the open session of that name, if no other owner lives")
	f.BoolVar(&o.takeOver, "take-over", false, "likewise, also from an owner that lives")
	f.Var(duration{&o.idleTimeout}, "idle-timeout", "how long it may be idle (default: for ever)")
	f.StringVar(&o.idleAction, "idle-action", "", "`DO` with an idle one: warn (default), freeze or close")
	f.BoolVar(&o.noParent, "no-parent", false, "be independent of the session this is called from")
	f.BoolVar(&o.privateTmp, "private-tmp", false, "make the session's SESSIONBOX_TMPDIR the TMPDIR of its commands, too")
	f.BoolVar(&o.strict, "strict", false, "close the ways to have something started outside of the session")
	f.StringVar(&o.oci, "oci", "", "make the session a container of the OCI bundle in this `DIR`")
	f.StringVar(&o.runtime, "runtime", "", "its `RUNTIME`: crun or runc (default: the first in PATH)")
	f.BoolVar(&o.shims, "shims", o.shims, "also end what docker, podman, systemd-run, at start")
	mirror(f, "shims", "on-owner-exit", "idle-timeout", "idle-action", "lineage-mode", "require", "cgroup-root", "memory-max", "memory-high", "swap-max", "pids-max", "oom", "memory-warn", "on-warn", "notify", "memory-steps", "grace", "private-tmp", "runtime", "strict")
}

// options checks the words among the flags.
func (o *openOptions) options() (session.OpenOptions, error) {
	so := session.OpenOptions{Name: o.name, Labels: o.labels, Limits: o.limits, Grace: o.grace, NoParent: o.noParent, Attach: o.attach, TakeOver: o.takeOver,
		OnOwnerExit: store.OwnerExit(o.onOwnerExit), IdleTimeout: value(o.idleTimeout), IdleAction: store.IdleAction(o.idleAction), OOM: store.OOMPolicy(o.oom),
		PrivateTmp: o.privateTmp, Strict: o.strict, Shims: o.shims && !o.noShims}
	switch {
	case o.oci != "":
		so.Container = &session.ContainerOptions{Bundle: o.oci, Runtime: o.runtime}
	case o.runtime != "":
		return so, usagef("--runtime without --oci").hintf("--oci DIR names the bundle")
	}
	var err error
	if so.Memory, err = o.memory.options(); err != nil {
		return so, err
	}
	if so.Kind, err = backendKind(o.backend); err != nil {
		return so, err
	}
	switch o.lineage {
	case "", "auto":
	case "direct", "job":
		so.LineageMode = session.LineageMode(o.lineage)
	default:
		return so, usagef("--lineage-mode: not %q", o.lineage).hintf("want auto, direct or job")
	}
	switch o.require {
	case "":
	case "kernel":
		so.RequireKernel = true
	default:
		return so, usagef("--require: not %q", o.require).hintf("want kernel")
	}
	if (o.attach || o.takeOver) && o.name == "" {
		return so, usagef("--attach and --take-over need --name").hintf("`sessionbox ls` lists the names; an id will do, too")
	}
	switch {
	case o.ownerPID != nil && o.lease != nil:
		return so, usagef("--owner-pid and --lease: a session has one owner").hintf("give one of them")
	case o.ownerPID != nil && *o.ownerPID <= 0:
		return so, usagef("--owner-pid: no process is %d", *o.ownerPID).hintf("in a shell, $$ is the shell itself and $PPID who started it")
	case o.ownerPID != nil:
		so.Owner = &session.OwnerOptions{PID: *o.ownerPID}
	case o.lease != nil && *o.lease <= 0:
		return so, usagef("--lease: a lease of %v ends before it begins", *o.lease).hintf("e.g. --lease 60s, renewed by `sessionbox touch` every 20s")
	case o.lease != nil:
		so.Owner = &session.OwnerOptions{Lease: *o.lease}
	}
	if so.OnOwnerExit != "" && so.Owner == nil && !o.attach && !o.takeOver {
		return so, usagef("--on-owner-exit without an owner").hintf("give --owner-pid or --lease")
	}
	return so, nil
}

func (a *app) newOpen() *cobra.Command {
	var o openOptions
	cmd := &cobra.Command{
		Use:   "open [flags]",
		Short: "Open a session and print its id",
		Long: `Open a session: make its box and set its ceilings. It stays open, with or without
processes in it, until it is closed. Its id is printed.

Its commands find a directory for temporary files in SESSIONBOX_TMPDIR. It is made
below TMPDIR or /tmp, only this user can enter it, and it is removed, with all that is
in it, when the session is closed.

With --owner-pid or --lease it has an owner, and is closed, or kept, when that process
ends or the lease is not renewed: a guard sees to it at once (see
` + "`sessionbox guard --help`" + `), and every ` + "`sessionbox reconcile`" + `. Both times and leases
are measured by a clock that nobody can set and that stands still while the machine
sleeps. With --json the answer has owner.generation, which tells later calls
(--generation) for which owner they are made.

With --shims, which run has by default, its commands find docker, podman, nerdctl,
docker-compose, systemd-run, at, batch and crontab in a directory of the session, first
in their PATH. These add what lets the close find what is started: labels to containers,
the session's slice to units and, where that is legal, to containers, which then count
against its ceilings. Then they run the real command. The close stops and removes the
containers, stops the units, and takes back jobs and the lines of crontab that are proven
to be its own. What calls them by their full path goes past that: such units are told as
suspects, and left alone.

A session is idle when no command is started in it or waited for, nobody touches it
and its processes use less than 1 % of a processor; looking at it is no use of it.
A session frozen for being idle is thawed by the next exec.

The memory of a session with a ceiling, --memory-warn on, --on-warn, --notify or
--memory-steps is watched by a guard: when it runs out, of its own ceiling, of a limit
around it or of the host's, an event memory_warning says whose limit it is, what takes
it and when it is full (verb events). --on-warn runs a command with each warning, as
this user, outside of the session, for 30 s at most; its environment says what it is
about:
  SESSIONBOX_WARN_TEXT                   the warning, for people
  SESSIONBOX_WARN_LEVEL, _CHANGE, _CAUSE notice, warn, critical, emergency, ok; raised,
                                         repeated, eased, cleared; size, slope, pressure,
                                         events, stall (at memory.high)
  SESSIONBOX_WARN_SESSION, _NAME         the session, by id and name
  SESSIONBOX_WARN_HARD_BYTES, _LIMIT_BYTES, _LIMIT_OF
                                         what is used, of what limit, whose that is
  SESSIONBOX_WARN_FULL_SECONDS           until it is full, if that is foreseen
  SESSIONBOX_WARN_TIER                   how it was measured: cgroup, cgroup1, processes
With --memory-steps more is done than to warn, in this order: hold (new sessions wait),
hibernate (idle for ten minutes, it is put into swap, and woken by the next command),
brake (memory.high is kept at 90 % of a ceiling of its own, and taken away from who stands
at it for 10 s, as is one that --memory-high asks for, until less than 90 % of it is in
use), freeze (it stands still and is thawed when there is memory again), close. Defaults are
in [memory] of the config file.

On macOS no kernel object holds a session by itself. With --lineage-mode direct its
processes are known by their ancestry, which is best effort; with job they are below a
launchd job of the session's own, whose coalition nothing forked in it can leave. macOS
then asks for consent to files and devices (TCC) in the name of sessionbox and not of
the terminal. auto is job if nobody is at a terminal, or with --on-owner-exit keep, and
direct where launchd takes no job. See docs/macos.md; ` + "`sessionbox doctor`" + ` says what is here.

What a command asks somebody else to start was never in the box: a service manager, a
docker daemon, a tmux server. With --strict the kernel keeps it from asking, without
privileges: in namespaces of its own the sockets of those are hidden, cgroups and
sessionbox's records are read-only, nothing can be typed into the terminal (TIOCSTI), and
no_new_privs is set, so sudo does nothing. Root becomes one without CAP_SYS_ADMIN. What
is hidden is what the environments of open, of exec and of the command name. Each door,
closed or not and why, is listed by inspect and doctor; some stay open, such as ssh to
this machine, and the socket of a daemon that starts again while the command runs: those
that start later do not see it. Sessions cannot be opened from inside, and exec --replace is
refused: a process that runs cannot close its own doors.

With --oci the session is a container of crun or runc, made of a bundle that is only
read. Its commands run inside, as the user, in the directory and with the environment
of the bundle's process; -e adds to it, -w is a directory of the container. Its first
process is one of sessionbox, its cgroup is in the session's box: close ends it with all
that is in it and removes what the runtime has noted. It needs a box that the kernel
enforces. ` + "`sessionbox spec`" + ` makes containers of other runtimes part of a session.

A ceiling that this machine cannot enforce is said on stderr, and in JSON. When memory
runs out at one, the kernel kills the process that holds most, and the session lives;
with --oom task it kills all of that one's task.

Exit status:
  0  open
  1  failed
  2  usage, or the config file is wrong
  5  no box of the wanted kind can be made here (` + "`sessionbox doctor`" + ` says why)
  6  not permitted
  7  the name is held by an open session (--attach uses that one) or by a living owner
     (--take-over takes it from that one)`,
		Example: `  sessionbox open --name work --memory-max 4G --pids-max 500
  sessionbox open --name work --owner-pid $$ --attach
  sessionbox open --name ci --lease 60s --on-owner-exit keep
  id=$(sessionbox open --oci ./bundle --label agent=claude)`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              a.withSignals(func(ctx context.Context, _ []string) error { return a.open(ctx, &o) }),
	}
	o.flags(cmd.Flags())
	completeBackend(cmd)
	completeLife(cmd)
	cmd.MarkFlagDirname("oci")
	return cmd
}

// completeLife completes the words of the flags that run and open share.
func completeLife(cmd *cobra.Command) {
	completeWords(cmd, "oom", "process", "task")
	completeWords(cmd, "lineage-mode", "auto", "direct", "job")
	completeWords(cmd, "require", "kernel")
	completeWords(cmd, "on-owner-exit", "close", "keep")
	completeWords(cmd, "idle-action", "warn", "freeze", "close")
	completeWords(cmd, "memory-warn", "on", "off")
	completeWords(cmd, "notify", "desktop", "none")
}

func (a *app) open(ctx context.Context, o *openOptions) error {
	so, err := o.options()
	if err != nil {
		return err
	}
	so.Detached = o.onOwnerExit == string(store.OwnerExitKeep) || !atTerminal()
	a.cgroupRoot = o.cgroupRoot
	m, err := a.manager()
	if err != nil {
		return err
	}
	s, err := m.Open(ctx, so)
	if err != nil {
		return err
	}
	defer s.Release()
	if a.json {
		info, err := m.Inspect(ctx, s.ID(), session.InspectOptions{})
		if err != nil {
			return err
		}
		return a.printJSON(info)
	}
	a.warnCeilings(s.Ceilings())
	a.warnOOM(s.OOM())
	if o.onOwnerExit == string(store.OwnerExitKeep) {
		a.warnLogin(s)
	}
	_, err = fmt.Fprintln(a.stdout, s.ID())
	return err
}

// atTerminal says whether we have a controlling terminal: somebody sits there, and what is started
// for him is to have his consent.
func atTerminal() bool {
	f, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// warnLogin says that what is to stay ends with the last login all the same.
func (a *app) warnLogin(s *session.Session) {
	if fix := s.EndsWithLogin(); fix != "" {
		a.say("%s ends with your last login; `%s` lets it stay", s.Name(), fix)
	}
}

// warnCeilings says which ceilings do not hold.
func (a *app) warnCeilings(all []memlimit.Ceiling) {
	for _, line := range render.NotInForceLines(all) {
		a.say("%s", line)
	}
	a.hintCeilings(all)
}

// warnOOM says that what is to die together does not.
func (a *app) warnOOM(o *session.OOMInfo) {
	if o == nil || o.InForce {
		return
	}
	a.say("%s", render.OOMNotInForce(o))
	if o.Fix != "" {
		a.say("hint: %s", o.Fix)
	}
}

// hintCeilings says what would put ceilings in force, and which of them never act here.
func (a *app) hintCeilings(all []memlimit.Ceiling) {
	var said []string
	for _, c := range all {
		if c.Fix != "" && !slices.Contains(said, c.Fix) {
			said = append(said, c.Fix)
			a.say("hint: %s", c.Fix)
		}
		if c.Note != "" && !c.Missing() {
			a.say("%s", c.Note)
		}
	}
}
