package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/sessionbox/sessionbox/pkg/guard"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/spf13/cobra"
)

func (a *app) newGuard() *cobra.Command {
	var metrics string
	cmd := &cobra.Command{
		Use:   "guard [flags]",
		Short: "Watch owners, leases, idle times, time limits and memory, in front",
		Long: `Watch all sessions of this user until interrupted: when the owner of one has gone, or
its time is over, do what its record says. A line on stderr tells of each thing done;
` + "`sessionbox events`" + ` shows it, too.

It watches the memory of sessions that have a ceiling or ask for it, of the limits around
them and of the host, and warns before it runs out; ` + "`sessionbox open --help`" + ` says what
else it may do. As root it asks the kernel to take others first.

Nobody has to start this: a session that must be watched starts a guard of its own, in
the background, which ends ten seconds after the last such session. One that is started
here, or installed, takes over from it. There is one guard at a time.

With --metrics, or metrics in [guard] of the config file, it answers GET /metrics in the
format of Prometheus, on this machine's loopback or on a socket that only this user can
open. A stale socket is replaced. Asking is no activity in a session.

With SESSIONBOX_GUARD=off, or start = "never" in [guard] of the config file, no session
starts a guard: somebody has to run ` + "`sessionbox reconcile`" + `.

Exit status:
  0    ended by SIGTERM
  1    failed
  2    usage, or the config file is wrong
  7    another guard runs
  130  interrupted`,
		Example: `  sessionbox guard --metrics 127.0.0.1:9414
  sessionbox guard --metrics unix:/run/user/1000/sessionbox.sock`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              a.withSignals(func(ctx context.Context, _ []string) error { return a.guard(ctx, metrics) }),
	}
	cmd.Flags().StringVar(&metrics, "metrics", "", "`ADDR` to serve metrics at: 127.0.0.1:PORT or unix:/PATH")
	cmd.AddCommand(a.newGuardInstall())
	return cmd
}

func (a *app) guard(ctx context.Context, metrics string) error {
	cfg, err := guard.LoadConfig()
	if err != nil {
		return err
	}
	if metrics == "" {
		metrics = cfg.Metrics
	}
	guard.Frugal()
	guard.Defend()
	// Who asks twice (timeout(1) does: the process, then its group) must not cut short
	// how it ends.
	twice := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			signal.Notify(twice, s)
		}
	}
	defer signal.Stop(twice)
	level := slog.LevelInfo
	if a.debug {
		level = slog.LevelDebug
	}
	log := guard.StderrLog(level)
	m, err := session.New(session.Config{CgroupRoot: a.cgroupRoot, NoGuard: true, Log: log})
	if err != nil {
		return err
	}
	err = guard.Run(ctx, guard.Options{Manager: m, Metrics: metrics, Memory: cfg.Memory, Version: currentVersion().Version, Log: log, Ready: guard.NotifyReady})
	if err != nil {
		return err
	}
	// Whoever sends SIGTERM is a service manager, or means it as one does: well done.
	var i interrupted
	if errors.As(context.Cause(ctx), &i) && i.sig != syscall.SIGTERM {
		return errFollowed
	}
	return nil
}

type installOptions struct {
	metrics                  string
	system, uninstall, print bool
}

func (a *app) newGuardInstall() *cobra.Command {
	var o installOptions
	cmd := &cobra.Command{
		Use:   "install [flags]",
		Short: "Have a guard run as a service",
		Long: `Install the guard as a service of the user's systemd manager or, as root with --system,
of the system's: it is started now and with the manager. On macOS the property list for
launchd is written. Where no manager answers the commands that are left are shown. Done
twice it changes nothing; a config file that is wrong is found before anything is changed.

A guard that runs on demand is asked to end once the service is ready. --uninstall is the
reverse: sessions that must be watched get a guard on demand again.

Exit status:
  0  installed, or removed
  1  failed
  2  usage, or the config file is wrong
  6  permission
  7  a guard that was started by hand runs`,
		Example: `  sessionbox guard install --metrics 127.0.0.1:9414
  sudo sessionbox guard install --system
  sessionbox guard install --print`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              a.withSignals(func(ctx context.Context, _ []string) error { return a.guardInstall(ctx, &o) }),
	}
	f := cmd.Flags()
	f.StringVar(&o.metrics, "metrics", "", "`ADDR` to serve metrics at: 127.0.0.1:PORT or unix:/PATH")
	f.BoolVar(&o.system, "system", false, "root's, with the system")
	f.BoolVar(&o.uninstall, "uninstall", false, "remove it")
	f.BoolVar(&o.print, "print", false, "only print the file that would be written")
	return cmd
}

func (a *app) guardInstall(ctx context.Context, o *installOptions) error {
	if _, err := guard.LoadConfig(); err != nil && !o.uninstall {
		return err
	}
	s, err := guard.NewService(o.system, o.metrics)
	if err != nil {
		return err
	}
	if o.print {
		_, text := s.File()
		_, err := a.stdout.Write([]byte(text))
		return err
	}
	m, err := a.manager()
	if err != nil {
		return err
	}
	do := guard.Install
	if o.uninstall {
		do = guard.Uninstall
	}
	r, err := do(ctx, m, s)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(r)
	}
	running := ""
	if r.Running {
		running = ", running"
	}
	a.say("%s %s (%s)%s", r.Unit, r.Action, r.Path, running)
	for _, c := range r.Commands {
		a.say("hint: now run `%s`", c)
	}
	return nil
}
