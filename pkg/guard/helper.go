package guard

import (
	"context"
	"errors"

	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/coreos/go-systemd/v22/journal"

	"github.com/sessionbox/sessionbox/pkg/internal/config"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// Helper runs this process as a guard if it was started as one on demand; the program
// must then exit with the code. Call it in main before [session.Helper], with os.Args,
// in a program that names itself as [session.Config].Helper.
func Helper(args []string) (code int, done bool) {
	if len(args) < 2 || args[1] != session.GuardArg {
		return 0, false
	}
	log := StderrLog(slog.LevelInfo)
	err := onDemand(log, len(args) == 3 && args[2] == session.GuardByPipe)
	if err != nil && !errors.Is(err, session.ErrHeld) { // two were started, one is enough
		log.Error("guard", "err", err)
		return 1, true
	}
	return 0, true
}

func onDemand(log *slog.Logger, byPipe bool) error {
	Frugal()
	Defend()
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ready := NotifyReady
	if byPipe {
		if err := session.Detach(session.GuardReadyFD); err != nil {
			log.Warn("the guard ends with the session that it was started in", "err", err)
		}
		syscall.CloseOnExec(session.GuardReadyFD)
		ready = func() {
			f := os.NewFile(session.GuardReadyFD, "ready")
			f.Write([]byte{1})
			f.Close()
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	m, err := session.New(session.Config{Helper: self, NoGuard: true, Log: log})
	if err != nil {
		return err
	}
	// The config that the opener could read may be broken by the time that we are
	// started again. What it has for us are a place for metrics and rules: watch without.
	cfg, err := LoadConfig()
	if err != nil {
		log.Warn("go on without the config", "err", err)
		failed(m, "the config cannot be read: "+err.Error())
	}
	return Run(ctx, Options{Manager: m, OnDemand: true, Metrics: cfg.Metrics, Memory: cfg.Memory, Version: Version(), Log: log, Ready: ready})
}

func failed(m *session.Manager, why string) {
	if st, err := store.Open(m.Dirs()); err == nil {
		st.Append(context.Background(), store.Event{Event: "guard_failed", PID: os.Getpid(), Msg: why})
	}
}

// Config is what config.toml says of guards.
type Config struct {
	Metrics string
	Memory  memlimit.Rules
}

// LoadConfig reads it.
func LoadConfig() (Config, error) {
	home, _ := os.UserHomeDir()
	cfg, err := config.Load(config.Paths(os.LookupEnv, home)...)
	if err != nil {
		return Config{}, &session.Error{Kind: session.ErrUsage, Text: "the config file is wrong", Err: err}
	}
	return Config{Metrics: cfg.Guard.Metrics, Memory: rules(&cfg.Memory)}, nil
}

// rules are those of the memory ladder that the config file has.
func rules(c *config.Memory) memlimit.Rules {
	r := memlimit.Rules{Hold: c.Steps != nil && *c.Steps&memlimit.MayHold != 0}
	if c.IdleAfter != nil {
		r.IdleAfter = *c.IdleAfter
	}
	r.TakeAttached = c.TakeAttached != nil && *c.TakeAttached
	return r
}

// NotifyReady tells the service manager, if one started us, that we are ready.
func NotifyReady() { daemon.SdNotify(true, daemon.SdNotifyReady) } // if it fails the start times out and says so

// StderrLog logs to stderr, which may be the journal's.
func StderrLog(level slog.Level) *slog.Logger {
	isJournal, err := journal.StderrIsJournalStream()
	return NewLog(os.Stderr, err == nil && isJournal, level)
}

// Frugal makes the process give memory back rather than keep it: a guard sleeps most
// of the time. The limit has room for a thousand watched sessions: a collector that
// runs all the time would cost more than it gives back.
func Frugal() {
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(48 << 20)
}

// Version is that of the program.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
