package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/render"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// app is what the verbs share: the streams and the flags that all of them have.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer

	json  bool
	color string
	debug bool

	cgroupRoot string
	// ownerSees: the verb sees to its session itself.
	ownerSees bool
	// runLike says that the verb hands on the exit status of a command.
	runLike bool
	// code is the exit code of a verb that did not fail, if not 0.
	code int
}

// Run runs the command line args (without the program's name) and gives the
// exit code.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	root := a.root(args)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return a.code
	}
	a.runLike = handsOn(cmd)
	// A command line that could not be parsed has not set the flag.
	a.json = a.json || wantsJSON(args)
	return a.report(err)
}

// handsOn says whether a verb hands on the exit status of a command.
func handsOn(cmd *cobra.Command) bool { return cmd.Name() == "run" || cmd.Name() == "exec" }

// verbs are the constructors of all verbs, in the order of the help.
func (a *app) verbs() []verb {
	return []verb{
		{"run", a.newRun}, {"open", a.newOpen}, {"exec", a.newExec}, {"close", a.newClose},
		{"ls", a.newLs}, {"ps", a.newPs}, {"tree", a.newTree}, {"inspect", a.newInspect},
		{"kill", a.newKill}, {"freeze", a.newFreeze}, {"thaw", a.newThaw}, {"hibernate", a.newHibernate}, {"limit", a.newLimit}, {"wait", a.newWait}, {"stats", a.newStats}, {"top", a.newTop},
		{"adopt", a.newAdopt}, {"keep", a.newKeep}, {"touch", a.newTouch}, {"reconcile", a.newReconcile}, {"guard", a.newGuard},
		{"spec", a.newSpec}, {"logs", a.newLogs}, {"events", a.newEvents}, {"history", a.newHistory}, {"doctor", a.newDoctor},
		{"version", a.newVersion}, {"completion", a.newCompletion},
	}
}

type verb struct {
	name string
	make func() *cobra.Command
}

// root makes the command tree; of it, only the verb that args name, if they
// name one: making all costs as much as starting the program.
func (a *app) root(args []string) *cobra.Command {
	root := &cobra.Command{
		Use:   "sessionbox",
		Short: "Run the commands of a session in a box and end all of them with it",
		Long: `sessionbox gives a session of commands its own box, a boundary kept by the kernel
(a systemd slice or a cgroup v2 directory). Whatever the commands start stays in
it, also what calls setsid, forks twice or outlives its shell, and closing the
session ends all of it and says what it was.

SESSION is a name, an id, a unique prefix of one, or "." inside a session;
SESSION/TASK is one command of it.

Environment:
  SESSIONBOX_STATE_DIR     where records and history are kept
  SESSIONBOX_CGROUP_ROOT   where the cgroup box makes its tree
  SESSIONBOX_BACKEND, SESSIONBOX_LINEAGE_MODE, SESSIONBOX_REQUIRE,
  SESSIONBOX_MEMORY_MAX, SESSIONBOX_MEMORY_HIGH, SESSIONBOX_SWAP_MAX,
  SESSIONBOX_PIDS_MAX, SESSIONBOX_MEMORY_WARN, SESSIONBOX_ON_WARN,
  SESSIONBOX_NOTIFY, SESSIONBOX_MEMORY_STEPS, SESSIONBOX_GRACE, SESSIONBOX_SHIMS,
  SESSIONBOX_COLOR
                           stand for the flags of these names
  SESSIONBOX_GUARD=off     starts no guard for sessions with an owner or a time limit
  NO_COLOR, CLICOLOR_FORCE as everywhere
  Commands in a session have SESSIONBOX_ID, SESSIONBOX_SESSION (its name) and
  SESSIONBOX_COOKIE, with shims also SESSIONBOX_SHIM_DIR. With SESSIONBOX_KEEP=1 a
  process asks to outlive its session: a close moves it to a session of its own.

Exit status:
  run, exec  the command's; 124 timed out; 125 sessionbox failed; 126 the command
             cannot be run; 127 it was not found; 128+n signal n ended it
  others     0 done; 1 failed; 2 usage; 3 no such session; 4 something survived;
             5 not supported here; 6 permission; 7 name held by an open session;
             130 interrupted`,
		Example: `  sessionbox run -- claude
  sessionbox open --name work && sessionbox exec work -- npm test
  sessionbox ls
  sessionbox close work`,
		Args:              a.noSuchVerb,
		RunE:              func(cmd *cobra.Command, _ []string) error { return a.noVerb(cmd) },
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		PersistentPreRunE: a.before,
	}
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(&cobra.Command{Use: "help [VERB]", Short: "Show help", Args: cobra.ArbitraryArgs, RunE: help, ValidArgsFunction: cobra.NoFileCompletions})
	f := root.PersistentFlags()
	f.BoolVar(&a.json, "json", false, "answer in JSON, errors too")
	f.StringVar(&a.color, "color", "auto", "`WHEN` to colour: auto, always or never")
	f.BoolVar(&a.debug, "debug", false, "say on stderr what is done")
	mirror(f, "color")
	verbs := a.verbs()
	if i := slices.IndexFunc(verbs, func(v verb) bool { return len(args) > 0 && v.name == args[0] }); i >= 0 && args[0] != "completion" {
		verbs = verbs[i : i+1]
	}
	for _, v := range verbs {
		root.AddCommand(v.make())
	}
	return root
}

func help(cmd *cobra.Command, args []string) error {
	found, rest, err := cmd.Root().Find(args)
	if err != nil || len(rest) > 0 {
		return usagef("no verb %q", strings.Join(args, " ")).hintf("`sessionbox help` lists them")
	}
	found.InitDefaultHelpFlag()
	return found.Help()
}

func (a *app) noVerb(cmd *cobra.Command) error {
	cmd.SetOut(a.stderr)
	cmd.Help()
	return usagef("no verb given")
}

func (a *app) noSuchVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	names := make([]string, 0, 20)
	for _, v := range a.verbs() {
		names = append(names, v.name)
	}
	e := usagef("no verb %q", args[0])
	if meant, ok := map[string]string{"list": "ls", "ps-a": "ls", "rm": "close", "stop": "close", "remove": "close", "delete": "close",
		"status": "inspect", "show": "inspect", "start": "open", "new": "open", "create": "open", "log": "logs"}[args[0]]; ok {
		return e.hintf("did you mean `sessionbox %s`?", meant)
	}
	if near := nearest(args[0], names); near != "" {
		return e.hintf("did you mean `sessionbox %s`?", near)
	}
	return e.hintf("`sessionbox help` lists them")
}

// before runs ahead of every verb, when its flags are known.
func (a *app) before(cmd *cobra.Command, _ []string) error {
	a.runLike = handsOn(cmd)
	if err := fromEnv(cmd.Flags()); err != nil {
		return err
	}
	switch a.color {
	case "auto", "always", "never":
		return nil
	}
	return usagef("--color (or SESSIONBOX_COLOR): not %q", a.color).hintf("want auto, always or never")
}

// manager makes the front door.
func (a *app) manager() (*session.Manager, error) {
	level := slog.LevelWarn
	switch {
	case a.debug:
		level = slog.LevelDebug
	case a.runLike:
		level = slog.LevelError // stderr is the command's
	}
	return session.New(session.Config{CgroupRoot: a.cgroupRoot, OwnerSees: a.ownerSees, Log: slog.New(&logHandler{w: a.stderr, level: level})})
}

// session opens the one that a reference names.
func (a *app) session(ctx context.Context, ref string) (*session.Session, error) {
	m, err := a.manager()
	if err != nil {
		return nil, err
	}
	return m.Get(ctx, ref)
}

// interruptible gives a context that ends with the first signal that asks us to
// stop; the second one then ends us at once.
func (a *app) interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) { // by nohup, or a shell's &
			signal.Notify(c, s)
		}
	}
	go func() {
		select {
		case s := <-c:
			signal.Stop(c)
			cancel(interrupted{s.(syscall.Signal)})
		case <-ctx.Done():
		}
	}()
	return ctx, func() { signal.Stop(c); cancel(nil) }
}

// interrupted is the cause of a context that a signal ended.
type interrupted struct{ sig syscall.Signal }

func (i interrupted) Error() string { return "interrupted (" + i.sig.String() + ")" }

// withSignals makes the RunE of a verb that a signal interrupts.
func (a *app) withSignals(fn func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, stop := a.interruptible(cmd.Context())
		defer stop()
		err := fn(ctx, args)
		var i interrupted
		if err != nil && errors.As(context.Cause(ctx), &i) {
			code := exitSignal + int(i.sig)
			if errors.Is(err, errFollowed) {
				return &codeError{code: code}
			}
			return &codeError{code: code, err: i}
		}
		return err
	}
}

// printJSON writes one answer. Lists are never null.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// style is how tables on a stream look: cut to a terminal's width, whole and
// plain for programs.
func (a *app) style(w io.Writer) render.Style {
	st := render.Style{Now: time.Now()}
	tty := false
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		tty = true
		st.Width = 80
		if cols, _, err := term.GetSize(int(f.Fd())); err == nil && cols > 0 {
			st.Width = cols
		}
	}
	st.Color = colored(a.color, tty, os.LookupEnv)
	return st
}

// colored decides in the order: flag, NO_COLOR, CLICOLOR_FORCE or FORCE_COLOR,
// whether a terminal that can do it is there.
func colored(flag string, tty bool, env func(string) (string, bool)) bool {
	get := func(k string) string { v, _ := env(k); return v }
	forced := func(k string) bool { v := get(k); return v != "" && v != "0" }
	switch {
	case flag == "always":
		return true
	case flag == "never", get("NO_COLOR") != "":
		return false
	case forced("CLICOLOR_FORCE"), forced("FORCE_COLOR"):
		return true
	}
	return tty && get("TERM") != "dumb"
}

// say writes a line of talk.
func (a *app) say(format string, args ...any) {
	fmt.Fprintf(a.stderr, "sessionbox: "+format+"\n", args...)
}

// jsonLine writes one line of JSON to stderr: what is said beside the output of
// a command.
func (a *app) jsonLine(v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Fprintf(a.stderr, "%s\n", b)
	}
	return err
}

// Root is the whole command tree, for man pages and completion scripts.
func Root() *cobra.Command {
	a := &app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard}
	return a.root(nil)
}
