package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/supervise"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commandOptions are the flags that say how a command is run.
type commandOptions struct {
	env []string
	dir string
}

func (o *commandOptions) flags(f *pflag.FlagSet) {
	f.StringArrayVarP(&o.env, "env", "e", nil, "`KEY=VALUE` for the command's environment, can be given several times")
	f.StringVarP(&o.dir, "workdir", "w", "", "`DIR` to run it in")
}

// command makes the command, with our own streams: real files, so that nothing
// waits for a child in the background which keeps a pipe.
func (a *app) command(o *commandOptions, argv []string) (*exec.Cmd, error) {
	if len(argv) == 0 || argv[0] == "" {
		return nil, usagef("no command given").hintf("write it last: `sessionbox run -- COMMAND…`, `sessionbox exec SESSION -- COMMAND…`")
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.stdin, a.stdout, a.stderr
	var err error
	if cmd.Dir, err = workdir(o.dir); err != nil {
		return nil, err
	}
	if len(o.env) > 0 {
		cmd.Env = os.Environ()
		for _, kv := range o.env {
			k, _, ok := strings.Cut(kv, "=")
			if k == "" {
				return nil, usagef("--env: no name in %q", kv).hintf("want KEY=VALUE")
			}
			if ok { // KEY alone is what we have ourselves
				cmd.Env = append(cmd.Env, kv)
			}
		}
	}
	return cmd, nil
}

// commandIn is command, or one for a container: its directory, its program and all of its
// environment but what is added are in there. Without arguments it is the container's own.
func (a *app) commandIn(container bool, o *commandOptions, argv []string) (*exec.Cmd, error) {
	if !container {
		return a.command(o, argv)
	}
	cmd := &exec.Cmd{Args: argv, Dir: o.dir, Stdin: a.stdin, Stdout: a.stdout, Stderr: a.stderr}
	for _, kv := range o.env {
		k, _, ok := strings.Cut(kv, "=")
		if k == "" {
			return nil, usagef("--env: no name in %q", kv).hintf("want KEY=VALUE")
		}
		if v, have := os.LookupEnv(k); !ok && have {
			kv, ok = k+"="+v, true
		}
		if ok {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	if o.dir != "" && !path.IsAbs(o.dir) {
		return nil, usagef("-w %s: a directory in a container is named from its root", o.dir).hintf("want e.g. -w /src")
	}
	return cmd, nil
}

// workdir is the directory that was given, "" when none was: absolute, as not
// every command is started by a process in ours.
func workdir(dir string) (string, error) {
	if dir == "" {
		return "", nil
	}
	fi, err := os.Stat(dir)
	if err == nil && !fi.IsDir() {
		err = syscall.ENOTDIR
	}
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return "", badDir(dir, err)
	}
	return dir, nil
}

// badDir does not wrap its cause: that a directory is missing must not look as
// if the command were.
func badDir(dir string, err error) error {
	return &session.Error{Kind: session.ErrCommand, Text: fmt.Sprintf("the directory %s cannot be used: %v", dir, err),
		Hint: "it may have been removed meanwhile; -w DIR names another one"}
}

type execOptions struct {
	commandOptions
	replace, detach    bool
	keep               bool
	timeout, killAfter *time.Duration
	generation         int
	log                bool
	logMax             memlimit.Size
}

func (a *app) newExec() *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec SESSION [flags] [--] COMMAND [ARG…]",
		Short: "Run a command in an open session",
		Long: `Run a command as a new task of an open session and wait for it. What it leaves
running stays in the session (column LEFT of ` + "`sessionbox ls`" + `) and does not keep
exec from returning.

In the foreground of a terminal the command shares the process group of exec, so
that Ctrl-C and Ctrl-Z reach it as they always do; otherwise exec hands on the
signals it gets. If exec itself is killed, its command is ended too.

In a session that is a container (open --oci) the command runs in there. The runtime
starts it and sessionbox waits for it: --replace is refused. It gets no terminal of its own.

With -d the command runs in the background; its name SESSION/TASK is printed. Its
standard input is empty; its output goes where stdout and stderr go if these are
files, otherwise nowhere.

With --keep it runs in a session of its own, SESSION.kept-N, which has no owner, is
listed as any other and ends with its own close. ` + "`sessionbox keep`" + ` does the same to a
task that runs already.

With --log the command's output is kept as well, for ` + "`sessionbox logs SESSION/TASK`" + `. A
process of ours takes it, so that what the command leaves running in the background
holds neither stdout nor stderr and goes on writing, to the log, when exec and whoever
reads from it have ended. All that the command wrote is shown before exec returns; that
nobody reads it does not end the command. With -d it goes to the log alone. A log keeps
its newest 16M, or --log-max; on a full disk output is lost and the command runs on.

Exit status:
  the command's, or
  124    --timeout ended it
  125    sessionbox failed, e.g. no such session
  126    the command cannot be run
  127    the command was not found
  128+n  signal n ended the command`,
		Example: `  sessionbox exec work -- npm test
  sessionbox exec work --timeout 5m --kill-after 10s -- make check
  sessionbox exec work -d --log -- npm run dev`,
		Args:              func(*cobra.Command, []string) error { return nil }, // SESSION and flags may come in any order
		ValidArgsFunction: a.completeExec,
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.BoolVar(&o.replace, "replace", false, "enter the session and become the command: no process of ours stays")
	f.BoolVarP(&o.detach, "detach", "d", false, "do not wait for it")
	f.BoolVar(&o.keep, "keep", false, "run it in a session of its own, which stays when SESSION is closed")
	f.Var(duration{&o.timeout}, "timeout", "end it, with all it started, after this time (0: never)")
	f.Var(duration{&o.killAfter}, "kill-after", "SIGKILL this long after SIGTERM (default: the session's grace)")
	f.BoolVar(&o.log, "log", false, "keep its output, for sessionbox logs")
	f.Var(size{&o.logMax}, "log-max", "most that the log may take, of its newest (default 16M)")
	generationFlag(f, &o.generation)
	o.commandOptions.flags(f)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ref, argv, err := a.splitExec(cmd, args)
		if err != nil || argv == nil && ref == "" {
			return err
		}
		return a.exec(cmd.Context(), &o, ref, argv)
	}
	return cmd
}

// splitExec finds SESSION and the command. Flags end at the first word that is
// none, which is SESSION; those between it and the command are parsed here. An
// empty ref means that help was asked for and given.
func (a *app) splitExec(cmd *cobra.Command, args []string) (ref string, argv []string, err error) {
	if len(args) == 0 {
		return "", nil, usagef("exec: which session?").hintf("usage: %s", cmd.UseLine())
	}
	ref, rest := args[0], args[1:]
	if err := cmd.Flags().Parse(rest); err != nil {
		return "", nil, flagError(cmd, err)
	}
	if h, err := cmd.Flags().GetBool("help"); err == nil && h {
		return "", nil, cmd.Help()
	}
	if err := a.before(cmd, nil); err != nil {
		return "", nil, err
	}
	return ref, cmd.Flags().Args(), sessionRef(ref)
}

func (a *app) exec(ctx context.Context, o *execOptions, ref string, argv []string) error {
	if o.replace && (o.detach || o.keep || o.timeout != nil || o.killAfter != nil) {
		return usagef("--replace leaves nobody to detach from, or to watch the time").hintf("leave out --detach, --keep, --timeout and --kill-after, or --replace")
	}
	if o.killAfter != nil && *o.killAfter == 0 {
		// For timeout(1) that is never: then what does not listen to SIGTERM stays.
		return usagef("--kill-after 0: the time between SIGTERM and SIGKILL must be some").hintf("leave it out for the session's grace; 1ms is next to none")
	}
	if o.killAfter != nil && o.timeout == nil {
		return usagef("--kill-after without --timeout").hintf("give --timeout too")
	}
	logMax, err := o.logSize()
	if err != nil {
		return err
	}
	cmd, bad := a.command(&o.commandOptions, argv)
	if errors.Is(bad, session.ErrUsage) {
		return bad
	}
	// Catching signals takes the runtime as long as finding the session does.
	begun := make(chan *supervise.Supervisor, 1)
	if !o.replace && !o.detach {
		go func() { begun <- supervise.Begin() }()
	}
	s, err := a.session(ctx, ref)
	if err != nil {
		return err
	}
	defer s.Release()
	if s.IsContainer() {
		cmd, bad = a.commandIn(true, &o.commandOptions, argv)
	}
	if bad != nil {
		return bad
	}
	s.ActFor(o.generation)
	so := session.StartOptions{Timeout: value(o.timeout), KillAfter: value(o.killAfter), Keep: o.keep, Log: o.log, LogMax: logMax}
	switch {
	case o.replace:
		return s.Exec(ctx, cmd)
	case o.detach:
		return a.execDetached(ctx, s, cmd, so)
	}
	so.Tie = true
	return a.execSupervised(ctx, <-begun, s, cmd, so)
}

// logSize is the most that the log may take, 0 when that was not said.
func (o *execOptions) logSize() (int64, error) {
	switch {
	case o.log && o.replace:
		return 0, usagef("--replace leaves nobody to keep a log").hintf("leave out --log or --replace")
	case !o.logMax.IsSet():
		return 0, nil
	case !o.log:
		return 0, usagef("--log-max without --log").hintf("give --log too")
	}
	n, ok := o.logMax.Value()
	if !ok || o.logMax.IsMax() {
		return 0, usagef("--log-max: %s is no amount", o.logMax).hintf("want e.g. 64M")
	}
	if n < session.LeastLogMax {
		return 0, usagef("--log-max: %s is too small", o.logMax).hintf("the least is %v", memlimit.Bytes(session.LeastLogMax))
	}
	return int64(n), nil
}

// Task names a task that was started in the background.
type Task struct {
	Schema  int    `json:"schema"`
	Session string `json:"session"` // id
	Name    string `json:"name,omitempty"`
	Ref     string `json:"ref"` // SESSION/TASK
	session.TaskInfo
	// LostBytes of its output are neither in its log nor shown.
	LostBytes int64 `json:"lost_bytes,omitempty"`
}

func (a *app) execDetached(ctx context.Context, s *session.Session, cmd *exec.Cmd, so session.StartOptions) error {
	so.Detached = true
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	cmd.Stdin = null
	for _, w := range []*io.Writer{&cmd.Stdout, &cmd.Stderr} {
		if !isFile(*w) { // a pipe or terminal would be held open
			*w = null
		}
	}
	if cmd.Dir == "" && !s.IsContainer() {
		if cmd.Dir, err = os.Getwd(); err != nil {
			return badDir(".", err)
		}
	}
	s, n, err := s.StartDetached(ctx, cmd, so)
	if err != nil {
		return err
	}
	defer s.Release()
	if a.json {
		return a.printJSON(a.task(ctx, s, n))
	}
	if so.Keep {
		a.warnLogin(s)
	}
	if _, err = fmt.Fprintf(a.stdout, "%s/%d\n", s.Name(), n); err != nil {
		return fmt.Errorf("%s/%d was started, but that could not be printed: %w", s.Name(), n, err)
	}
	return nil
}

// task looks at a task that was just started or has just ended.
func (a *app) task(ctx context.Context, s *session.Session, n int) Task {
	t := Task{Schema: session.Schema, Session: s.ID(), Ref: fmt.Sprintf("%s/%d", s.Name(), n)}
	var err error
	if t.TaskInfo, err = s.TaskInfo(ctx, n); err != nil { // its record is gone; what we know ourselves follows
		t.TaskInfo = session.TaskInfo{N: n, Processes: []session.Process{}, Argv: []string{}}
	}
	if s.Name() != s.ID() {
		t.Name = s.Name()
	}
	return t
}

func isFile(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	fi, err := f.Stat()
	return err == nil && fi.Mode().IsRegular()
}

// execSupervised runs the command in front of us and takes over its status.
func (a *app) execSupervised(ctx context.Context, sup *supervise.Supervisor, s *session.Session, cmd *exec.Cmd, so session.StartOptions) error {
	cmd.SysProcAttr = sup.Attr()
	start, cancel := sup.UntilSignal(ctx)
	t, err := s.Start(start, cmd, so)
	cancel()
	if err != nil {
		if sig := sup.Caught(); sig != 0 {
			return &codeError{code: exitSignal + int(sig), err: err}
		}
		return err
	}
	sup.Forward(func(sig syscall.Signal) {
		if !sup.FromTerminal(sig) {
			a.pass(sup, t, cmd, sig)
		}
		switch sig {
		case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
			t.Hide() // who reads the output may have stopped
		}
	})
	r, err := t.Wait()
	if err != nil {
		return err
	}
	return a.ended(ctx, t.Session(), t.N(), r)
}

// pass hands a signal on that came to us alone.
func (a *app) pass(sup *supervise.Supervisor, t *session.Task, cmd *exec.Cmd, sig syscall.Signal) {
	if sup.Shared() {
		// The command's group is ours: only the command itself is meant.
		cmd.Process.Signal(sig)
		return
	}
	t.Signal(sig)
}

// ended gives the exit code for the end of a command, and says what the code
// does not tell.
func (a *app) ended(ctx context.Context, s *session.Session, n int, r session.Result) error {
	ref := fmt.Sprintf("%s/%d", s.Name(), n)
	if a.json {
		line := a.task(ctx, s, n)
		line.fill(r)
		if err := a.jsonLine(line); err != nil {
			return err
		}
	} else {
		if r.LostBytes > 0 {
			a.say("%s: %d bytes of its output are lost: %s", ref, r.LostBytes, cmp.Or(r.LostWhy, "they came faster than they were read"))
		}
		switch {
		case r.State == store.TaskKilled:
			a.say("%s was ended: %s", ref, r.Reason)
		case r.State == store.TaskOOMKilled:
			a.say("%s ran out of memory: %s%s", ref, r.Reason, raise(s, &r))
		case r.OOM != nil:
			a.say("%s: %s%s", ref, r.OOM, raise(s, &r))
		}
	}
	code := r.Exit
	switch {
	case r.State == store.TaskTimedOut:
		code = exitTimedOut
		if !a.json {
			a.say("%s %s", ref, r.Reason)
		}
	case r.Signal != 0:
		code = exitSignal + int(r.Signal)
	}
	return result(code)
}

// raise says how to give a session more memory, if it was its own ceiling that was too
// low for a command.
func raise(s *session.Session, r *session.Result) string {
	if r.OOM == nil || r.OOM.Limit.Session != s.ID() {
		return ""
	}
	all, err := s.Limits()
	if err != nil {
		return ""
	}
	for _, c := range all {
		if n, ok := c.Value.Value(); ok && c.File == "memory.max" && !c.Value.IsMax() {
			return fmt.Sprintf("; `sessionbox limit %s --memory-max %v` gives it more", s.Name(), memlimit.Suggest(n))
		}
	}
	return ""
}

// fill puts what the supervisor knows above what the records say: a session
// that was closed has none.
func (t *Task) fill(r session.Result) {
	t.LostBytes = r.LostBytes
	t.State, t.Reason, t.Leftovers, t.PeakBytes, t.OOM = string(r.State), r.Reason, r.Leftovers, r.PeakBytes, r.OOM
	if r.Signal == 0 {
		exit := r.Exit
		t.Exit = &exit
	}
}

// result is nil for 0: the exit code of a command is no failure of ours.
func result(code int) error {
	if code == 0 {
		return nil
	}
	return &codeError{code: code}
}
