package shim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/engines"
)

// Exit codes, as of a shell.
const (
	exitOwnFailure = 125
	exitCannotRun  = 126
	exitNotFound   = 127
)

// Is says whether a program that was started by this name is to be a shim.
func Is(arg0 string) bool { return slices.Contains(Names(), filepath.Base(arg0)) }

// Main is the shim: it executes the real command and returns only if that fails.
// arg0 is the name that it was called by.
func Main(arg0 string, args []string) int {
	name := filepath.Base(arg0)
	path, err := real(name)
	if err != nil {
		return fail(exitNotFound, name+": command not found", "it is in no directory of the PATH behind the session's shims")
	}
	d, ok := around()
	if !ok {
		return execute(path, args) // the session is over
	}
	c, err := d.Config()
	if err != nil {
		return fail(exitOwnFailure, err.Error(), path+" works without the shims")
	}
	if why := Refuse(name, args, c.Strict); why != "" {
		return fail(1, why, "run it outside of the session, or open one without --strict")
	}
	if keeps(name, args) {
		return execute(path, args)
	}
	s := shim{name: name, path: path, dir: d, c: c}
	args, code := s.rewrite(args)
	if code >= 0 {
		return code
	}
	return execute(path, args)
}

// envKeep says that something wants to outlive its session.
const envKeep = "SESSIONBOX_KEEP"

// keeps says whether what a call starts is to outlive the session, as its caller does: it is
// nobody's then. systemd-run gives a unit an environment of its own.
func keeps(name string, args []string) bool {
	return os.Getenv(envKeep) == "1" || name == "systemd-run" && parseUnit(args).keeps
}

func fail(code int, text, hint string) int {
	fmt.Fprintf(os.Stderr, "sessionbox: %s\n", text)
	if hint != "" {
		fmt.Fprintf(os.Stderr, "sessionbox: hint: %s\n", hint)
	}
	return code
}

// execute runs the real command in our place. It is told its whole path as its name:
// rootless podman (3.0) executes itself again by that name, and would meet the shim.
func execute(path string, args []string) int {
	err := syscall.Exec(path, append([]string{path}, args...), os.Environ())
	return fail(exitCannotRun, fmt.Sprintf("cannot run %s: %v", path, err), "")
}

// shim is one call.
type shim struct {
	name, path string
	dir        Dir
	c          Config
}

// rewrite gives the arguments of the real command; code is not negative if it was run
// already, or must not be.
func (s *shim) rewrite(args []string) ([]string, int) {
	if s.c.Strict {
		// The daemons of this machine are out of reach, and the records cannot be written:
		// what is left are engines elsewhere.
		return args, -1
	}
	var err error
	switch s.name {
	case "systemd-run":
		return s.unit(args), -1
	case "at", "batch":
		if queues(args) {
			return args, s.queue(args)
		}
	case "crontab":
		if rest, own := ownTable(args, userName()); own && installs(rest) {
			return args, s.crontab(args, rest)
		}
	case "docker-compose":
		args, err = s.compose("docker", nil, args, nil)
	default:
		args, err = s.engine(args)
	}
	if err != nil {
		return nil, s.unnoted(err)
	}
	return args, -1
}

// unnoted refuses a call of which nothing can be written down.
func (s *shim) unnoted(err error) int {
	return fail(exitOwnFailure, fmt.Sprintf("%s was not started, as it cannot be noted that the session did: %v", s.name, err),
		"free space in the state directory; "+s.path+" works without, and the session's close will not know of it")
}

// engine adds to a command line of an engine.
func (s *shim) engine(args []string) ([]string, error) {
	k := parse(s.name, args)
	switch k.what {
	case nothing:
		return args, nil
	case compose:
		return s.compose(s.name, args[:k.at], k.rest, k.engine)
	}
	e := s.asked(k.engine)
	named := k.what == container && !k.ownIDFile
	driver, err := s.note(e, named)
	if err != nil {
		return nil, err
	}
	labels, token := s.labels()
	var add []string
	for _, k := range []string{engines.LabelID, engines.LabelToken, engines.LabelBy} {
		if v, ok := labels[k]; ok {
			add = append(add, "--label", k+"="+v)
		}
	}
	if parent := s.parent(driver); parent != "" && !k.ownCgroup {
		add = append(add, "--cgroup-parent", parent)
	}
	if named {
		add = append(add, "--cidfile", s.dir.idFile(token, &e))
	}
	return k.with(args, add...), nil
}

// asked is the engine that a call is for.
func (s *shim) asked(options []string) engines.Engine {
	tool := s.name
	if tool == "docker-compose" {
		tool = "docker"
	}
	e := engines.Here(tool)
	e.Options = options
	return e
}

// note writes down which engine is called, before it is, and gives who makes its
// cgroups, nil if that cannot be told or is of no use here. That is asked until it answers. named
// says that there will be a file with the id of what is made: of what has none it must be known
// whether the engine was there at all.
func (s *shim) note(e engines.Engine, named bool) (*engines.Driver, error) {
	if !named {
		if err := writeFile(s.dir.blindFile(&e), nil); err != nil {
			return nil, err
		}
	}
	path, local := s.dir.engineFile(&e), s.local(&e)
	var c called
	if readJSON(path, &c) == nil { // another call may be about to write what it was told
		now := time.Now()
		if err := os.Chtimes(path, now, now); err != nil || c.Driver != nil {
			return driverFor(c.Driver, local), err
		}
	} else {
		c = called{Engine: e}
		if err := writeJSON(path, c); err != nil {
			return nil, err
		}
	}
	if named && !local {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), driverTime)
	defer cancel()
	d, err := e.Marked(s.c.Cookie).Driver(ctx)
	switch {
	case err == nil:
		c.Driver = &d
	case !e.Refused(err) && !c.Alive:
		c.Alive = true
	default:
		return nil, nil // the command itself will say what is wrong with it
	}
	return driverFor(c.Driver, local), writeJSON(path, c)
}

// driverFor is a driver that may have to do with cgroups of ours, nil for others.
func driverFor(d *engines.Driver, local bool) *engines.Driver {
	if !local || d == nil {
		return nil
	}
	return d
}

// driverTime bounds the question once for all: a command must not wait for long.
const driverTime = 30 * time.Second

// local says whether an engine may have to do with cgroups of ours at all.
func (s *shim) local(e *engines.Engine) bool {
	if s.c.Slice == "" && s.c.Cgroup == "" {
		return false
	}
	if e.Tool == "docker" {
		return engines.Near(e.Socket())
	}
	for _, o := range e.Options {
		switch name, _, _ := strings.Cut(o, "="); name {
		case "--remote", "--url", "--connection":
			return false
		}
	}
	return e.Env["CONTAINER_HOST"] == "" && e.Env["CONTAINER_CONNECTION"] == ""
}

// parent is the cgroup that a container is to be in, "" for where the engine puts it.
// It is legal only for the manager that has the session's slice; in a tree that the
// engine makes itself, only where the box is no unit.
func (s *shim) parent(d *engines.Driver) string {
	switch {
	case d == nil || !d.Unified:
		return ""
	case d.Systemd && s.c.Slice != "" && d.Rootless == s.c.User:
		return s.c.Slice
	case !d.Systemd && !d.Rootless && s.c.Slice == "" && s.c.Cgroup != "":
		return s.c.Cgroup
	}
	return ""
}

// labels are those of one call, with its token.
func (s *shim) labels() (map[string]string, string) {
	token := engines.Proof{Cookie: s.c.Cookie}.NewToken()
	labels := map[string]string{engines.LabelID: s.c.ID, engines.LabelToken: token}
	if by := caller(); by != "" {
		labels[engines.LabelBy] = by
	}
	return labels, token
}

// compose adds a file to a command line of compose. before is what stands before args,
// the verb compose of docker's included.
func (s *shim) compose(tool string, before, args, engine []string) ([]string, error) {
	all := func(args []string) []string { return slices.Concat(before, args) }
	k := parseCompose(args)
	if !k.makes {
		return all(args), nil
	}
	dir := k.dir
	if dir == "" {
		dir, _ = os.Getwd()
	}
	files := k.files
	var found []string
	if len(files) == 0 {
		files = findCompose(dir, composeFileEnv(dir), os.Getenv("COMPOSE_PATH_SEPARATOR"))
		found = files
	}
	if len(files) == 0 {
		return all(args), nil // compose will say so
	}
	e := s.asked(append(engine, k.engine...))
	e.Tool = tool
	services, foreign := s.project(all(args[:k.at]), &e)
	if len(services) == 0 || foreign {
		return all(args), nil
	}
	first := files[0]
	if !filepath.IsAbs(first) && k.dir == "" {
		first = filepath.Join(dir, first)
	}
	base, _ := os.ReadFile(first) // its version alone
	driver, err := s.note(e, false)
	if err != nil {
		return nil, err
	}
	text, err := override(base, services, s.composeLabels(), s.parent(driver))
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	path := s.dir.path("compose-" + hex.EncodeToString(sum[:8]) + ".yaml")
	if err := writeFile(path, text); err != nil {
		return nil, err
	}
	return all(k.with(args, append(slices.Clone(found), path)...)), nil
}

// composeLabels are the same in all calls of a session: compose makes every container anew
// whose labels are others than those that it has.
func (s *shim) composeLabels() map[string]string {
	return map[string]string{engines.LabelID: s.c.ID, engines.LabelToken: engines.Proof{Cookie: s.c.Cookie}.TokenFor("compose")}
}

// composeFileEnv is COMPOSE_FILE, from the environment or from the .env file that
// compose reads.
func composeFileEnv(dir string) string {
	if v := os.Getenv("COMPOSE_FILE"); v != "" {
		return v
	}
	b, _ := os.ReadFile(filepath.Join(dir, ".env"))
	for line := range strings.Lines(string(b)) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "export ")
		if v, ok := strings.CutPrefix(line, "COMPOSE_FILE="); ok {
			return strings.Trim(strings.TrimSpace(v), `"'`)
		}
	}
	return ""
}

// composeTime bounds asking compose what its project is.
const composeTime = time.Minute

// project gives the names of the services of a compose project, also of those that no
// active profile has, and whether it has containers already that are not the session's, or
// that cannot be told: labels would have compose make them anew, and the close end them. call
// is what stands before the verb.
func (s *shim) project(call []string, e *engines.Engine) (services []string, foreign bool) {
	ctx, cancel := context.WithTimeout(context.Background(), composeTime)
	defer cancel()
	ask := func(args ...string) ([]string, error) {
		cmd := exec.CommandContext(ctx, s.path, slices.Concat(call, args)...)
		cmd.WaitDelay = time.Second
		out, err := cmd.Output()
		if err != nil {
			return nil, err // compose itself will say what is wrong
		}
		return strings.Fields(string(out)), nil
	}
	var active, all, there []string
	var err error
	var wg sync.WaitGroup
	wg.Go(func() { active, _ = ask("config", "--services") })
	wg.Go(func() { all, _ = ask("--profile", "*", "config", "--services") }) // not known to old ones
	wg.Go(func() {
		if there, err = ask("ps", "-a", "-q"); err != nil {
			there, err = ask("ps", "-q") // of all, in old ones
		}
	})
	wg.Wait()
	services = slices.Compact(slices.Sorted(slices.Values(append(active, all...))))
	if err != nil || len(there) == 0 {
		return services, err != nil
	}
	ours, err := e.List(ctx, s.c.ID)
	if err != nil {
		return services, true
	}
	return services, slices.ContainsFunc(there, func(id string) bool {
		return !slices.ContainsFunc(ours, func(c engines.Container) bool { return c.ID == id })
	})
}

// unit adds to a command line of systemd-run.
func (s *shim) unit(args []string) []string {
	k := parseUnit(args)
	mine := s.c.Slice != "" && k.user == s.c.User
	if !k.understood || k.elsewhere || !k.user && os.Geteuid() != 0 {
		return args
	}
	var add []string
	if mine && !k.slice {
		add = append(add, "--slice="+s.c.Slice)
	}
	if !k.scope {
		add = append(add, s.marks()...)
	}
	return append(add, args...)
}

// marks have the manager write into a unit whose it is: proof of that, whatever the unit is
// called. Everybody can read a command line, so that where systemd-run takes a value from its
// own environment (since 248, and it says so) it has it from there.
func (s *shim) marks() []string {
	marks := [][2]string{{"SESSIONBOX_ID", s.c.ID}, {"SESSIONBOX_COOKIE", s.c.Cookie}}
	var add []string
	for _, m := range marks {
		if s.byName() && os.Setenv(m[0], m[1]) == nil {
			add = append(add, "--setenv="+m[0])
		} else {
			add = append(add, "--setenv="+m[0]+"="+m[1])
		}
	}
	return add
}

// byName says whether systemd-run takes values from its environment. It is asked once in a
// session.
func (s *shim) byName() bool {
	path := s.dir.path("setenv")
	if b, err := os.ReadFile(path); err == nil {
		return string(b) == "name"
	}
	ctx, cancel := context.WithTimeout(context.Background(), engines.AskTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, s.path, "--help").Output()
	if err != nil {
		return false
	}
	how := "value"
	if strings.Contains(string(out), "--setenv=NAME[=VALUE]") {
		how = "name"
	}
	_ = writeFile(path, []byte(how)) // else the next one asks again
	return how == "name"
}
