package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"github.com/sessionbox/sessionbox/pkg/internal/config"
	"github.com/sessionbox/sessionbox/pkg/internal/park"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/scope"
	"github.com/sessionbox/sessionbox/pkg/store"
	"golang.org/x/sys/unix"
)

// Doctor says what this machine has of what sessionbox can use, which box it
// gives, and what would make it better. It looks at real things: where it may, it
// makes a cgroup for a moment and starts a process in it.
//
// kind is the box that a session would be opened with, "" for what the config file says.
func (m *Manager) Doctor(ctx context.Context, kind store.Kind) []Check {
	e := examination{m: m, kind: wanted(kind)}
	e.findMount()
	e.dial(ctx)
	defer e.hangUp()
	e.findRoot()
	defer e.endProbe(ctx)
	checks := []Check{e.mountCheck(), e.systemd(), e.box(), e.start(), e.kill(), e.freeze(), e.controllers(), e.together(), e.peak(), e.marks(), pressure(), pidfd()}
	if c, ok := e.linger(); ok {
		checks = append(checks, c)
	}
	dirs := m.store.Dirs()
	state := writableCheck("state", "records", dirs.State)
	state.Needed = true
	checks = append(checks, m.doorChecks(ctx)...)
	return append(checks, state, writableCheck("history", "history", dirs.History), configCheck(), e.helper(), m.guardCheck())
}

// examination is one run of the doctor.
type examination struct {
	m       *Manager
	kind    store.Kind // that is asked for, "" for auto
	mount   cgroup.Mount
	noMount error

	manager   *scope.Manager
	noManager error

	rootDir string
	noRoot  error
	probe   *cgroup.Group // made for a moment below the root
	noProbe error
}

func (e *examination) findMount() { e.mount, e.noMount = cgroup.FindMount() }

func (e *examination) dial(ctx context.Context) { e.manager, e.noManager = scope.Dial(ctx) }

func (e *examination) hangUp() {
	if e.manager != nil {
		e.manager.Close()
	}
}

// findRoot finds where the cgroup box would be made and tries to make a group
// there.
func (e *examination) findRoot() {
	e.noRoot, e.noProbe = e.noMount, e.noMount
	if e.noMount != nil {
		return
	}
	if e.rootDir, e.noRoot = e.m.cgroupRoot(e.mount); e.noRoot != nil {
		e.noProbe = e.noRoot
		return
	}
	root, err := cgroup.Open(e.rootDir)
	if err != nil {
		e.noRoot, e.noProbe = err, err
		return
	}
	defer root.Close()
	e.probe, e.noProbe = root.Make(fmt.Sprintf("sessionbox-doctor-%d", os.Getpid()))
	if e.noProbe != nil {
		e.noRoot = e.noProbe
	}
}

func (e *examination) endProbe(ctx context.Context) {
	if e.probe != nil {
		e.probe.Remove(ctx)
		e.probe.Close()
	}
}

func ok(name, format string, args ...any) Check {
	return Check{Name: name, Status: CheckOK, Text: fmt.Sprintf(format, args...)}
}

func missing(name, text, fix string) Check {
	return Check{Name: name, Status: CheckMissing, Text: text, Fix: fix}
}

func unknown(name, text string) Check { return Check{Name: name, Status: CheckUnknown, Text: text} }

func (e *examination) mountCheck() Check {
	const name = "cgroup v2"
	switch {
	case errors.Is(e.noMount, cgroup.ErrNoCgroup2):
		return missing(name, "no cgroup v2 is mounted", "boot with systemd.unified_cgroup_hierarchy=1, or `mount -t cgroup2 none /sys/fs/cgroup`")
	case e.noMount != nil:
		return unknown(name, e.noMount.Error())
	case e.mount.ReadOnly:
		return missing(name, e.mount.Point+" is mounted read-only",
			"in a container: `--cgroupns=private` with a writable /sys/fs/cgroup (docker: --privileged, or --security-opt writable-cgroups=true; podman does it with --security-opt unmask=/sys/fs/cgroup)")
	case hybrid():
		return ok(name, "at %s, beside cgroup v1, which has the controllers (a hybrid host)", e.mount.Point)
	}
	return ok(name, "at %s", e.mount.Point)
}

// hybrid says that controllers belong to cgroup v1 hierarchies.
func hybrid() bool {
	b, err := os.ReadFile("/proc/self/mountinfo")
	return err == nil && bytes.Contains(b, []byte(" - cgroup cgroup "))
}

func (e *examination) systemd() Check {
	const name = "systemd"
	if e.noManager != nil {
		c := missing(name, oneLine(e.noManager), "")
		switch {
		case os.Geteuid() == 0:
			c.Fix = "only where systemd is PID 1"
		default:
			c.Fix = "log in by a real login (su and sudo start no user manager): `machinectl shell $USER@`, or `loginctl enable-linger $USER` as root"
		}
		return c
	}
	who := "the system's manager"
	if e.manager.User() {
		who = "the user's manager"
	}
	return ok(name, "%s answers at %s", who, e.manager.Socket())
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// wanted is the kind of box that open is to make: the one asked for, else the config's.
func wanted(kind store.Kind) store.Kind {
	if kind == "" {
		home, _ := os.UserHomeDir()
		if cfg, err := config.Load(config.Paths(os.LookupEnv, home)...); err == nil { // else another check says so
			kind = store.Kind(cfg.Session.Backend)
		}
	}
	if kind == "auto" {
		return ""
	}
	return kind
}

// box says which one a session gets.
func (e *examination) box() Check {
	const name = "box"
	none := func(kind, fix string, err error) Check {
		c := missing(name, kind+" is asked for, and cannot be made: "+oneLine(err), fix)
		c.Needed = true
		return c
	}
	switch {
	case e.kind == store.KindSystemd && e.noManager != nil:
		return none("systemd", "see the fix of systemd, or ask for auto", e.noManager)
	case e.kind == store.KindSystemd:
		return ok(name, "systemd, as asked for: a manager answers")
	case e.kind == store.KindCgroup && e.noRoot != nil:
		return none("cgroup", "see the fix of cgroup v2, or ask for auto", e.noRoot)
	case e.kind == store.KindCgroup:
		return ok(name, "cgroup, as asked for, made below %s", e.rootDir)
	case e.kind == store.KindLineage:
		if _, err := darwinjob.System(); err != nil {
			return none("lineage", "make /proc readable", err)
		}
		return ok(name, "lineage, as asked for: best effort")
	case e.noManager == nil:
		return ok(name, "auto gives systemd: a manager answers")
	case e.noRoot == nil:
		return ok(name, "auto gives cgroup, made below %s: no systemd manager, and that directory may be written", e.rootDir)
	}
	c := missing(name, "auto gives lineage, best effort: no systemd manager, and "+oneLine(e.noRoot), "see the fixes of systemd and cgroup v2 for a box that the kernel enforces")
	if _, err := darwinjob.System(); err != nil {
		c = missing(name, "none can be made: no systemd manager, "+oneLine(e.noRoot)+", and the process table cannot be read: "+oneLine(err), "see the fixes of systemd and cgroup v2")
		c.Needed = true
	}
	return c
}

// start says how a command gets into its leaf.
func (e *examination) start() Check {
	const name = "start in the box"
	switch {
	case e.noMount != nil:
		return unknown(name, "there is no cgroup v2")
	case e.probe == nil && e.manager == nil:
		return unknown(name, "no cgroup can be made to try it")
	case e.probe == nil:
		return unknown(name, "tried with each command: clone3 where the kernel lets us, else the manager moves it")
	case !e.probe.MayEnter():
		return ok(name, "by a stub that is moved there: clone3 into it is not allowed from here (slower, as safe)")
	}
	helper, err := e.m.helper()
	if err != nil {
		return unknown(name, "no program to try it with")
	}
	cmd := exec.Command(helper, park.Arg) // which, told nothing more, ends at once
	if err := e.probe.Start(cmd); err != nil {
		if cgroup.Refused(err) {
			return ok(name, "by a stub that is moved there: clone3 says %v (slower, as safe)", err)
		}
		return unknown(name, err.Error())
	}
	cmd.Wait()
	return ok(name, "clone3 puts a command there before its first instruction")
}

// has looks for a control file in the probe or, without one, in the nearest
// directory around us that is not the root: the root has few of them.
func (e *examination) has(file string) (has, known bool) {
	if e.probe != nil {
		return e.probe.Has(file), true
	}
	if e.noMount != nil {
		return false, false
	}
	own, err := cgroup.Own(e.mount)
	if err != nil || own == e.mount.Point {
		return false, false
	}
	g, err := cgroup.Open(own)
	if err != nil {
		return false, false
	}
	defer g.Close()
	return g.Has(file), true
}

func (e *examination) kill() Check {
	const name = "cgroup.kill"
	switch has, known := e.has("cgroup.kill"); {
	case !known:
		return unknown(name, "there is no cgroup to look at")
	case !has:
		return missing(name, "not in this kernel: sessions are frozen and each process is killed by its pidfd instead (slower, as safe)", "Linux 5.14")
	}
	return ok(name, "ends a whole session in one step")
}

func (e *examination) freeze() Check {
	const name = "freeze"
	switch has, known := e.has("cgroup.freeze"); {
	case !known:
		return unknown(name, "there is no cgroup to look at")
	case !has:
		return missing(name, "sessions cannot be frozen", "Linux 5.2")
	}
	return ok(name, "sessions can be frozen")
}

func (e *examination) controllers() Check {
	const name = "ceilings"
	have, err := e.controllersHere()
	if err != nil {
		return unknown(name, oneLine(err))
	}
	var here, not []string
	for _, c := range []string{"memory", "pids"} {
		if slices.Contains(have, c) {
			here = append(here, c)
		} else {
			not = append(not, c)
		}
	}
	if len(not) == 0 {
		return ok(name, "memory and pids can be limited")
	}
	text := "no ceiling for " + strings.Join(not, " and ")
	if len(here) > 0 {
		text += "; there is one for " + strings.Join(here, " and ")
	}
	return missing(name, text, controllerFix(e.manager != nil, e.rootDir, not...))
}

// together says which ceilings the config file sets for all sessions together, and
// whether they hold.
func (e *examination) together() Check {
	const name = "all sessions"
	home, _ := os.UserHomeDir()
	cfg, err := config.Load(config.Paths(os.LookupEnv, home)...)
	if err != nil {
		return unknown(name, "the config file is wrong")
	}
	if !cfg.Slice.IsSet() {
		return ok(name, "no ceiling for all of them together; [slice] in the config file sets one")
	}
	want, err := cfg.Slice.Resolve(hostTotals())
	if err == nil {
		err = want.Validate()
	}
	if err != nil {
		return missing(name, "the ceilings for all of them together are wrong: "+oneLine(err), "correct [slice] in the config file")
	}
	dir, err := e.base()
	if err != nil {
		return unknown(name, oneLine(err))
	}
	g, err := cgroup.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return unknown(name, "their ceilings are set with the first session")
	}
	if err != nil {
		return unknown(name, oneLine(err))
	}
	defer g.Close()
	all, err := g.Ceilings(want)
	if err != nil {
		return unknown(name, oneLine(err))
	}
	return e.judge(name, dir, all)
}

// base is the directory of all boxes.
func (e *examination) base() (string, error) {
	if e.manager != nil {
		dir, err := e.mount.Dir(e.manager.ControlGroup())
		return filepath.Join(dir, cgroup.Base), err
	}
	return filepath.Join(e.rootDir, cgroup.Base), e.noRoot
}

// judge tells of ceilings that were read back.
func (e *examination) judge(name, dir string, all []memlimit.Ceiling) Check {
	var holds, not, missed []string
	why := ""
	for _, c := range all {
		text := fmt.Sprintf("%s %v", c.File, c.Want)
		switch {
		case !c.Want.IsSet():
		case c.InForce:
			holds = append(holds, text)
		default:
			not, why = append(not, text), c.Why
			if c.Missing() && !slices.Contains(missed, c.Controller()) {
				missed = append(missed, c.Controller())
			}
		}
	}
	if len(not) == 0 {
		return ok(name, "together below %s", strings.Join(holds, ", "))
	}
	text := fmt.Sprintf("not in force for all of them together: %s (%s)", strings.Join(not, ", "), why)
	if len(missed) == 0 {
		return missing(name, text, "the next session that is opened sets them again")
	}
	return missing(name, text, controllerFix(e.manager != nil, dir, missed...))
}

// controllersHere names what a box made here could limit.
func (e *examination) controllersHere() ([]string, error) {
	dir := e.rootDir
	if e.manager != nil {
		var err error
		if dir, err = e.mount.Dir(e.manager.ControlGroup()); err != nil {
			return nil, err
		}
	} else if e.noRoot != nil {
		return nil, e.noRoot
	}
	g, err := cgroup.Open(dir)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	return g.Controllers()
}

func (e *examination) peak() Check {
	const name = "memory.peak"
	have, err := e.controllersHere()
	if err != nil || !slices.Contains(have, "memory") {
		return missing(name, "without the memory controller memory is added up over the processes, and no peak is known", "see ceilings")
	}
	// The directory in which boxes are made may have the controller while the
	// probe in it does not: it is turned on with the first session.
	dir := e.rootDir
	if e.manager != nil {
		dir, _ = e.mount.Dir(e.manager.ControlGroup())
	}
	found, _ := filepath.Glob(filepath.Join(dir, "*", "memory.current"))
	if len(found) == 0 {
		return unknown(name, "shows with the first session")
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(found[0]), "memory.peak")); err != nil {
		return missing(name, "not in this kernel: no peak is known", "Linux 5.19")
	}
	return ok(name, "the kernel records the peak of a session")
}

// marks says whether a box can carry its own record.
func (e *examination) marks() Check {
	const name = "marks"
	if e.probe == nil {
		return unknown(name, "no cgroup can be made to try it")
	}
	if err := e.probe.SetXattr(cgroup.MetaXattr, "{}"); err != nil {
		return missing(name, "a box cannot carry its own record ("+err.Error()+"): without the state directory only its id is known", "Linux 5.7")
	}
	return ok(name, "a box carries its own record: lost state costs nothing")
}

func pressure() Check {
	const name = "pressure"
	b, err := os.ReadFile("/proc/pressure/memory")
	switch {
	case err == nil && len(b) > 0:
		return ok(name, "the kernel tells of memory pressure (PSI)")
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EOPNOTSUPP):
		return missing(name, "the kernel does not tell of memory pressure (PSI)", "boot with psi=1")
	}
	return unknown(name, fmt.Sprint("/proc/pressure/memory: ", err))
}

func pidfd() Check {
	const name = "pidfd"
	h, err := proc.OpenPID(os.Getpid())
	switch {
	case err == nil:
		h.Close()
		return ok(name, "processes are named so that no other one can be meant")
	case errors.Is(err, unix.ENOSYS):
		return missing(name, "not in this kernel: nothing can be signalled safely", "Linux 5.3")
	case errors.Is(err, proc.ErrForbidden):
		return unknown(name, "not tried: we are pid 1")
	case errors.Is(err, unix.EPERM):
		return missing(name, err.Error(), "allow pidfd_open and pidfd_send_signal in the container's seccomp profile")
	}
	return unknown(name, err.Error())
}

// linger says whether a user's sessions outlive the last login.
func (e *examination) linger() (Check, bool) {
	const name = "linger"
	if e.manager == nil || !e.manager.User() {
		return Check{}, false
	}
	who, lingers, err := lingering()
	switch {
	case err != nil:
		return unknown(name, err.Error()), true
	case lingers:
		return ok(name, "sessions outlive the last login"), true
	}
	return missing(name, "all sessions end with the last login of "+who, lingerFix(who)), true
}

// lingering says who we are, and whether our user manager stays when we log out.
func lingering() (who string, lingers bool, err error) {
	u, err := user.Current()
	if err != nil {
		return "", false, err
	}
	_, err = os.Stat(filepath.Join("/var/lib/systemd/linger", u.Username))
	return u.Username, err == nil, nil
}

func lingerFix(who string) string { return "loginctl enable-linger " + who }

// EndsWithLogin says how to have the session outlive the last login of its user, ""
// if it does.
func (s *Session) EndsWithLogin() string {
	if s.rec.Kind != store.KindSystemd || os.Geteuid() == 0 {
		return ""
	}
	who, lingers, err := lingering()
	if err != nil || lingers {
		return ""
	}
	return lingerFix(who)
}

// writableCheck tries to write below dir, or to where it would be made.
func writableCheck(name, what, dir string) Check {
	at := dir
	for {
		_, err := os.Stat(at)
		if err == nil || !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at) {
			break
		}
		at = filepath.Dir(at)
	}
	err := unix.Access(at, unix.W_OK|unix.X_OK)
	if err == nil && at == dir {
		var f *os.File
		if f, err = os.CreateTemp(dir, ".tmp-doctor-"); err == nil {
			_, err = f.WriteString("doctor\n")
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}
	if err != nil {
		return missing(name, fmt.Sprintf("%s cannot be kept in %s: %v", what, dir, err), "free space or get access; SESSIONBOX_STATE_DIR names another directory")
	}
	return ok(name, "%s in %s", what, dir)
}

func configCheck() Check {
	const name = "config"
	home, _ := os.UserHomeDir()
	paths := config.Paths(os.LookupEnv, home)
	cfg, err := config.Load(paths...)
	switch {
	case err != nil:
		return missing(name, oneLine(err), "correct it: until then no session can be opened")
	case len(cfg.Files) == 0:
		return ok(name, "none; it could be %s", strings.Join(paths, " or "))
	}
	return ok(name, "%s", strings.Join(cfg.Files, ", "))
}

func (e *examination) helper() Check {
	const name = "helper"
	h, err := e.m.helper()
	if err == nil {
		if _, err = exec.LookPath(h); err == nil {
			return ok(name, "%s", h)
		}
	}
	c := missing(name, oneLine(err), "install sessionbox in PATH, or set Config.Helper")
	c.Needed = true
	return c
}
