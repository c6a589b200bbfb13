package session

import (
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/oci"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/scope"
	"github.com/sessionbox/sessionbox/pkg/store"
	"golang.org/x/sys/unix"
)

// A session that is a container has one more directory in its box: the container's
// cgroup, which the runtime makes and limits, and which holds the leaves of the tasks.
//
//	sessionbox-<id>.slice[/sessionbox-<id>-main.service]
//	├── anchor       our own processes: the container's first one, and who waits for a command
//	└── container    linux.cgroupsPath
//	    ├── task-1   a command
//	    └── …
//
// All of it is in the box: the kill of the box ends the container whatever becomes of
// the runtime. As root the runtime sees no more of the cgroup tree than the box, see
// viewOf: it enables controllers in each directory from the root of what it sees.
const containerLeaf = "container"

// guestLeaf is where the container of another program goes, see [Session.Spec].
const guestLeaf = "guest"

// runtimeTime bounds one call of the runtime.
const runtimeTime = 30 * time.Second

// deleteTime bounds the call that has the runtime clear up after everything has ended,
// with the hooks of the bundle.
const deleteTime = 10 * time.Second

// cgroupOf is the tree of a box that the kernel enforces.
func cgroupOf(box Box) *cgroup.Box {
	switch b := box.(type) {
	case *cgroupBox:
		return b.Box
	case *scope.Box:
		return b.Box
	}
	return nil
}

// asContainer has the leaves of a container's tasks looked for where they are.
func asContainer(rec *store.Session, box Box) Box {
	if g := cgroupOf(box); g != nil && rec.Container != nil {
		g.Inner = containerLeaf
	}
	return box
}

// leafName is the name of a task's leaf for whoever looks for it below the anchor's unit.
func (s *Session) leafName(leaf string) string {
	if g := cgroupOf(s.box); g != nil {
		return g.LeafName(leaf)
	}
	return leaf
}

// cgroupsPath is where a container belongs, in words that its runtime knows.
func (s *Session) cgroupsPath(systemd bool) (string, error) {
	if systemd {
		if s.rec.Kind != store.KindSystemd {
			return "", &Error{Kind: ErrUnsupported, Session: s.Name(), Text: "its box is no systemd slice", Hint: "leave out --systemd-cgroup"}
		}
		return s.rec.Unit + ":sessionbox:" + s.rec.ID, nil
	}
	g := cgroupOf(s.box)
	if g.WorkDir() == nil { // the unit was collected: it is made again when it is needed
		ctx, cancel := context.WithTimeout(context.Background(), lockTime)
		defer cancel()
		if err := s.box.EnsureAnchor(ctx); err != nil {
			return "", err
		}
	}
	return inMount(g, guestLeaf)
}

// inMount is the path of a directory of the box as a runtime names it: from the mount.
func inMount(g *cgroup.Box, name string) (string, error) {
	mount, err := cgroup.FindMount()
	if err != nil {
		return "", err
	}
	path, ok := strings.CutPrefix(filepath.Join(g.WorkDir().Path(), name), strings.TrimSuffix(mount.Point, "/")+"/")
	if !ok {
		return "", fmt.Errorf("%s is not below %s", g.WorkDir().Path(), mount.Point)
	}
	return "/" + path, nil
}

// unifiedPoint is where every runtime looks for cgroup v2.
const unifiedPoint = "/sys/fs/cgroup"

// viewOf is the directory that a runtime is to take for the root of the cgroup tree, ""
// for what there is. Root's runtime enables controllers in every directory that it sees
// above the container; and on a hybrid host it would see the v1 tree. Another user's may
// write nowhere but in what is his, and makes no mounts before it is in the container.
func viewOf(g *cgroup.Box) (view, path string, err error) {
	if os.Geteuid() == 0 {
		return g.WorkDir().Path(), "/" + containerLeaf, nil
	}
	mount, err := cgroup.FindMount()
	if err == nil && mount.Point != unifiedPoint {
		return "", "", &Error{Kind: ErrUnsupported, Text: "runtimes look for cgroup v2 at " + unifiedPoint + ", and here it is at " + mount.Point + " (a hybrid host)",
			Hint: "boot with systemd.unified_cgroup_hierarchy=1, or open the session as root"}
	}
	if err != nil {
		return "", "", err
	}
	path, err = inMount(g, containerLeaf)
	return "", path, err
}

// viewNow is the view for a call that is made of a container that is there.
func viewNow(g *cgroup.Box) string {
	if os.Geteuid() != 0 {
		return ""
	}
	if work, err := g.FindWork(); err == nil && work != nil {
		return work.Path()
	}
	return g.Top.Path() // of which the container's cgroup was taken away
}

// startContainer makes the container and starts its first process, which then is in our
// own leaf: a process in the cgroup that is above the leaves keeps controllers out of them.
func (s *Session) startContainer(ctx context.Context, bundle *oci.Bundle) error {
	if err := s.box.EnsureAnchor(ctx); err != nil {
		return fmt.Errorf("start the session's anchor: %w", err)
	}
	view, path, err := viewOf(cgroupOf(s.box))
	if err != nil {
		return err
	}
	if err := s.writeContainer(bundle, path); err != nil {
		return err
	}
	dir := s.m.containerDir(&s.rec)
	pidFile := filepath.Join(dir, "init.pid")
	if err := s.callRuntime(ctx, view, "create", "--bundle", filepath.Join(dir, "bundle"), "--pid-file", pidFile, s.rec.Container.ID); err != nil {
		return err
	}
	if err := s.settleInit(ctx, pidFile); err != nil {
		return err
	}
	if err := s.callRuntime(ctx, view, "start", s.rec.Container.ID); err != nil {
		return err
	}
	return s.awaitInit(ctx)
}

// awaitInit waits until the container's first process is our init, and is ready to keep it:
// until then limits of the bundle, or a kernel that does not run it, may end it.
func (s *Session) awaitInit(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, runtimeTime)
	defer cancel()
	init := s.rec.Container.Init
	for {
		st, err := proc.ReadStat(init.PID)
		if err != nil || st.Start != init.Start || isZombie(&st) {
			return &Error{Kind: ErrUnsupported, Session: s.Name(), Text: "the container's first process, which is sessionbox's, ended at once",
				Hint: "do the bundle's limits (linux.resources), its seccomp filter or its user let a small program run?"}
		}
		if strings.HasPrefix(oci.InitName, st.Comm) && len(st.Comm) == commLength && ignoresHangup(init.PID) {
			return nil
		}
		if err := sleep(wait, 2*time.Millisecond); err != nil {
			s.m.log.Debug("the container's first process lives, and does not look as if it was ready")
			return ctx.Err()
		}
	}
}

// commLength is how much of a program's name the kernel keeps, in bytes.
const commLength = 15

// ignoresHangup says whether a process ignores SIGHUP, as our init does when it is ready.
func ignoresHangup(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if mask, ok := strings.CutPrefix(line, "SigIgn:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return err == nil && n&(1<<(unix.SIGHUP-1)) != 0
		}
	}
	return false
}

// writeContainer writes the private bundle, and what commands are made of.
func (s *Session) writeContainer(bundle *oci.Bundle, cgroupsPath string) error {
	helper, err := s.m.helper()
	if err == nil {
		err = isStatic(helper)
	}
	if err != nil {
		return err
	}
	patch := oci.Patch{CgroupsPath: cgroupsPath, Env: sessionEnv(&s.rec), Annotations: annotations(&s.rec)}
	config, err := bundle.Config(patch, helper, ContainerInitArg)
	if err != nil {
		return err
	}
	process, err := bundle.Process(patch.Env)
	if err != nil {
		return err
	}
	dir := s.m.containerDir(&s.rec)
	err = os.MkdirAll(filepath.Join(dir, "bundle"), 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "bundle", oci.ConfigFile), config, 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, processFile), process, 0o600)
	}
	return recordError(err)
}

// isStatic says why a program cannot run where its libraries are not.
func isStatic(program string) error {
	f, err := elf.Open(program)
	if err != nil {
		return err
	}
	defer f.Close()
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return &Error{Kind: ErrUnsupported, Text: program + " is linked dynamically and cannot run in a container",
			Hint: "build sessionbox with CGO_ENABLED=0, as `make build` does; Config.Helper names the program"}
	}
	return nil
}

const processFile = "process.json"

// runtimeArgs is the beginning of every command line of the runtime: what it notes is
// noted in the session's directory, and nowhere else.
func (m *Manager) runtimeArgs(rec *store.Session, global ...string) []string {
	return append([]string{rec.Container.Runtime, "--root", filepath.Join(m.containerDir(rec), "root")}, global...)
}

// callRuntime has the runtime do something in the box, and gives what it says when it
// fails. The container's first process gets the files of the call that makes it: none
// that anybody waits for.
func (s *Session) callRuntime(ctx context.Context, view string, args ...string) error {
	helper, err := s.m.helper()
	if err != nil {
		return err
	}
	said, err := os.OpenFile(filepath.Join(s.m.containerDir(&s.rec), args[0]+".log"), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil { // a full disk keeps nobody from clearing up
		said, err = memfile(args[0], nil)
	}
	if err != nil {
		return recordError(err)
	}
	ctx, cancel := context.WithTimeout(ctx, runtimeTime)
	defer cancel()
	cmd := exec.Command(helper, append([]string{ContainerArg, containerRun, view}, append(s.m.runtimeArgs(&s.rec), args...)...)...)
	cmd.Env = append(plainEnv(), sessionEnv(&s.rec)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	call := startCall(ctx, s.box, cmd)
	err = call.wait(ctx)
	if errors.Is(err, errCallLeft) {
		return s.runtimeError(args[0], nil, ctx.Err()) // the call has the file still
	}
	defer said.Close()
	if started := (*startError)(nil); err == nil || errors.As(err, &started) {
		return err
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	text, _ := io.ReadAll(io.LimitReader(io.NewSectionReader(said, 0, 1<<20), 4096))
	return s.runtimeError(args[0], text, err)
}

// call is a call of the runtime. It is waited for beside: a process that is born into a frozen
// box does not even count as started, and one in state D does not end.
type call struct {
	begun chan *os.Process
	ended chan error
}

func startCall(ctx context.Context, box Box, cmd *exec.Cmd) *call {
	c := &call{begun: make(chan *os.Process, 1), ended: make(chan error, 1)}
	go func() {
		if err := box.Start(ctx, helperLeaf, cmd); err != nil {
			c.ended <- &startError{err}
			return
		}
		c.begun <- cmd.Process
		c.ended <- cmd.Wait()
	}()
	return c
}

// startError is why the runtime was not started.
type startError struct{ err error }

func (e *startError) Error() string { return "start the runtime: " + e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// errCallLeft says that a call was left alone: the kill of the box ends it, or names it as a
// survivor.
var errCallLeft = errors.New("it does not end")

// wait waits until the call has ended; at the end of ctx it is killed.
func (c *call) wait(ctx context.Context) error {
	select {
	case err := <-c.ended:
		return err
	case <-ctx.Done():
	}
	select {
	case p := <-c.begun:
		p.Kill()
	default:
	}
	brief := time.NewTimer(endingTime)
	defer brief.Stop()
	select {
	case err := <-c.ended:
		return err
	case <-brief.C:
		return errCallLeft
	}
}

func (s *Session) runtimeError(what string, said []byte, err error) error {
	name := filepath.Base(s.rec.Container.Runtime)
	e := &Error{Kind: ErrUnsupported, Session: s.Name(), Text: name + " " + what + " failed", Err: err,
		Hint: "`" + name + " run --bundle " + s.rec.Container.Bundle + " NAME` shows whether the bundle runs by itself"}
	if text := strings.TrimSpace(string(said)); text != "" {
		e.Err = errors.New(text)
	}
	return e
}

// settleInit brings the container's first process into our leaf and notes who it is.
func (s *Session) settleInit(ctx context.Context, pidFile string) error {
	pid, err := readPID(pidFile)
	if err != nil {
		return &Error{Kind: ErrUnsupported, Session: s.Name(), Text: "the runtime does not say which the container's first process is", Err: err,
			Hint: "is " + s.rec.Container.Runtime + " one with the command line of crun and runc?"}
	}
	h, err := proc.OpenPID(pid)
	if err != nil {
		return fmt.Errorf("find the container's first process: %w", err)
	}
	defer h.Close()
	if !isMember(s.box, "", pid) { // of which its runtime has said nothing
		return &Error{Kind: ErrUnsupported, Session: s.Name(), Text: "the runtime did not put the container into the session's box",
			Hint: "is it one that knows linux.cgroupsPath? crun and runc do"}
	}
	if err := s.box.Move(ctx, helperLeaf, pid); err != nil {
		return fmt.Errorf("settle the container's first process: %w", err)
	}
	st, err := proc.ReadStat(pid)
	if err != nil {
		return err
	}
	self, err := proc.Self()
	if err != nil {
		return err
	}
	s.rec.Container.Init = store.ProcID{PID: pid, Start: st.Start, Boot: self.Boot, NS: self.NS}
	g := cgroupOf(s.box)
	inner, err := g.WorkDir().Child(containerLeaf)
	if err != nil {
		// Where a user may make no cgroups the runtime goes on without: then there is
		// nowhere to put a command.
		return &Error{Kind: ErrUnsupported, Session: s.Name(), Text: "the runtime made no cgroup for the container", Err: err}
	}
	defer inner.Close()
	if err := inner.EnableControllers(); err != nil {
		s.m.log.Debug("enable controllers in the container", "err", err)
	}
	return nil
}

func readPID(file string) (int, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

// containerReady says whether a command can be started in the container.
func (m *Manager) containerReady(rec *store.Session) error {
	if rec.Container == nil || rec.Container.Init.PID == 0 || proc.FateOf(proc.ID(rec.Container.Init)) != proc.Gone {
		return nil
	}
	return &Error{Kind: ErrBoxGone, Session: rec.ID, Text: fmt.Sprintf("its container has ended: its first process (%d) is gone", rec.Container.Init.PID),
		Hint: "`sessionbox close " + rec.ID + "`, then open a new one"}
}

func (m *Manager) containerInfo(rec *store.Session) *ContainerInfo {
	c := rec.Container
	if c == nil {
		return nil
	}
	return &ContainerInfo{ID: c.ID, Runtime: c.Runtime, Bundle: c.Bundle, Root: filepath.Join(m.containerDir(rec), "root"),
		Running: c.Init.PID != 0 && proc.FateOf(proc.ID(c.Init)) != proc.Gone}
}

// fillCommand completes a command that is to run in the container.
func (s *Session) fillCommand(cmd *exec.Cmd) error {
	process, err := os.ReadFile(filepath.Join(s.m.containerDir(&s.rec), processFile))
	if err != nil {
		return &Error{Kind: ErrBoxGone, Session: s.Name(), Text: "what its container's commands are made of is gone", Err: err,
			Hint: "`sessionbox close " + s.Name() + "`, then open a new one"}
	}
	p, _, err := oci.Command(process, cmd.Args, cmd.Env, cmd.Dir)
	if err != nil {
		return err
	}
	if len(p.Args) == 0 || p.Args[0] == "" {
		return &Error{Kind: ErrUsage, Text: "no command given, and the bundle has none", Hint: "write it last: sessionbox run --oci BUNDLE -- COMMAND…"}
	}
	cmd.Args, cmd.Path, cmd.Err, cmd.Dir = p.Args, p.Args[0], nil, p.Cwd
	return nil
}

// inside is a command made for the container's runtime.
type inside struct {
	args []string // of our helper
	env  []string
	// process is the runtime's --process, order a [watchOrder]: files without a name.
	process, order *os.File
}

func (i *inside) close() {
	i.process.Close()
	i.order.Close()
}

// memfile makes a file in memory that has no name.
func memfile(name string, data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.Write(data); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// insideOf makes it. The command's own descriptors are followed by those of the process,
// of the order, and of the pipe by which a failure is told.
func (s *Session) insideOf(cmd *exec.Cmd, leaf string) (*inside, error) {
	process, err := os.ReadFile(filepath.Join(s.m.containerDir(&s.rec), processFile))
	if err != nil {
		return nil, err
	}
	_, data, err := oci.Command(process, cmd.Args, cmd.Env, cmd.Dir)
	if err != nil {
		return nil, err
	}
	n := len(cmd.ExtraFiles)
	base := filepath.Join(s.m.containerDir(&s.rec), leaf)
	g := cgroupOf(s.box)
	work, err := g.FindWork()
	if err != nil || work == nil {
		return nil, errors.Join(err, errors.New("the box has no place for what waits for the command"))
	}
	o := watchOrder{View: viewNow(g), Home: filepath.Join(work.Path(), helperLeaf), PIDFile: base + ".pid", Log: base + ".log"}
	o.Argv = append(s.m.runtimeArgs(&s.rec, "--log", o.Log), "exec", "--detach", "--pid-file", o.PIDFile, "--cgroup", "/"+leaf,
		"--preserve-fds", strconv.Itoa(n), "--process", fmt.Sprintf("/proc/self/fd/%d", 3+n), s.rec.Container.ID)
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	i := &inside{args: []string{"sessionbox", ContainerArg, containerWatch, strconv.Itoa(n)}, env: append(plainEnv(), sessionEnv(&s.rec)...)}
	if i.process, err = memfile("process.json", data); err != nil {
		return nil, err
	}
	if i.order, err = memfile("order", text); err != nil {
		i.process.Close()
		return nil, err
	}
	return i, nil
}

// startInside starts a command in the container. A process of ours has the runtime start
// it, waits for it and ends as it did: in the command's leaf until that runs, so that a
// runtime that hangs is ended with it, and then in our own, where no signal, limit or list
// that is meant for the command takes it for one.
func (s *Session) startInside(ctx context.Context, cmd *exec.Cmd, leaf string) error {
	helper, err := s.m.helper()
	if err != nil {
		return err
	}
	in, err := s.insideOf(cmd, leaf)
	if err != nil {
		return err
	}
	defer in.close()
	failed, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer failed.Close()
	path, args, env, dir, extra := cmd.Path, cmd.Args, cmd.Env, cmd.Dir, cmd.ExtraFiles
	cmd.Path, cmd.Args, cmd.Env, cmd.Dir = helper, in.args, in.env, "/"
	cmd.ExtraFiles = append(slices.Clip(extra), in.process, in.order, w)
	err = s.box.Start(ctx, leaf, cmd)
	cmd.Path, cmd.Args, cmd.Env, cmd.Dir, cmd.ExtraFiles = path, args, env, dir, extra
	w.Close()
	if err != nil {
		return err
	}
	wait, done := context.WithTimeout(ctx, runtimeTime)
	defer done()
	stop := context.AfterFunc(wait, func() { failed.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	said, err := io.ReadAll(failed) // ends empty when the command runs
	if err == nil && len(said) == 0 {
		return nil
	}
	kill, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer cancel()
	cmd.Process.Kill() // it may be in our leaf by now; a child that nobody has waited for
	kerr := s.box.Kill(kill, leaf)
	ended := make(chan struct{})
	go func() { // in state D it does not end
		defer close(ended)
		cmd.Wait()
	}()
	select {
	case <-ended:
	case <-kill.Done():
	}
	if err != nil {
		return errors.Join(&Error{Kind: ErrTimeout, Session: s.Name(), Text: filepath.Base(s.rec.Container.Runtime) + " exec does not come to an end", Err: wait.Err(), Retry: true,
			Hint: "it was ended; a container in which everything is frozen, or a file server that does not answer, keep it"}, kerr)
	}
	var f insideFailure
	if err := json.Unmarshal(said, &f); err != nil {
		return fmt.Errorf("the runtime's failure: %w", err)
	}
	return &Error{Kind: ErrCommand, Session: s.Name(), Text: "cannot run " + cmd.Args[0] + " in the container", Err: &f}
}

// deleteContainer has the runtime clear up behind a container of which nothing lives, and
// run the hooks that are meant for that, in the box: whatever they leave, or a runtime that
// hangs, is ended with it, by us or by the next close. That it fails keeps nobody from
// closing: the runtime's notes are in the session's directory and go with it. The second
// error is that of the kill.
func (m *Manager) deleteContainer(ctx context.Context, rec *store.Session, box Box) (failed, left error) {
	if rec.Container == nil || box == nil {
		return nil, nil
	}
	if _, err := os.Stat(filepath.Join(m.containerDir(rec), "root", rec.Container.ID)); err != nil {
		return nil, nil // it knows nothing of it
	}
	if other := otherContainer(rec, box); other != "" {
		return fmt.Errorf("the container's runtime was not called: the record names %s, the box %s", rec.Container.Runtime, other), nil
	}
	s := &Session{m: m, rec: *rec, box: box}
	bound, cancel := context.WithTimeout(ctx, deleteTime)
	defer cancel()
	// What was frozen in it has ended with the rest. Around it is not ours to thaw.
	if err := box.Thaw(bound); err != nil {
		m.log.Debug("thaw the box of a container", "session", rec.ID, "err", err)
	}
	if frozen, err := box.Frozen(); err != nil || frozen {
		return errors.Join(errors.New("the container's runtime was not called, nor the hooks that it runs at the end: what the box is in is frozen"), err), nil
	}
	failed = s.callRuntime(bound, viewNow(cgroupOf(box)), "delete", "--force", rec.Container.ID)
	kill, done := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer done()
	return failed, box.Kill(kill, "")
}

// otherContainer says of a record that does not name the container that the box was made
// for, what the box names: what runs in it may have changed the one and not the other.
func otherContainer(rec *store.Session, box Box) string {
	meta, err := box.Meta()
	if err != nil || meta == "" {
		return "" // before Linux 5.7 the record alone must do
	}
	var made store.Session
	switch err := json.Unmarshal([]byte(meta), &made); {
	case err != nil:
		return err.Error()
	case made.Container == nil:
		return "no container"
	case made.Container.ID != rec.Container.ID || made.Container.Runtime != rec.Container.Runtime:
		return made.Container.Runtime
	}
	return ""
}
