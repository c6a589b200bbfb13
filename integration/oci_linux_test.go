package integration_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sessionbox/sessionbox/pkg/session"
	"golang.org/x/sys/unix"
)

// runtimes are those that this machine has. Where they are installed for these tests, and
// where the cgroup tier is required, both are.
func runtimes(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, name := range []string{"crun", "runc", "busybox"} {
		path, err := exec.LookPath(name)
		if err != nil {
			if os.Getenv("SESSIONBOX_TEST_OCI") != "" || tierName() == "cgroup" && required("cgroup") {
				t.Fatalf("there is no %s", name)
			}
			t.Skipf("there is no %s", name)
		}
		if name != "busybox" {
			found = append(found, path)
		}
	}
	return found
}

// rootlessProc says whether a proc file system can be mounted for a pid namespace of its
// own: without privileges only where nothing is mounted over parts of the one that is there.
func rootlessProc() bool {
	b, err := os.ReadFile("/proc/self/mountinfo")
	return os.Geteuid() == 0 || err == nil && !bytes.Contains(b, []byte(" /proc/"))
}

// bundle is a bundle of busybox; edit, if given, changes its configuration.
func (r *rig) bundle(name string, edit func(*specs.Spec)) string {
	r.t.Helper()
	dir := filepath.Join(r.home, name)
	bin := filepath.Join(dir, "rootfs", "bin")
	for _, d := range []string{bin, filepath.Join(dir, "rootfs", "proc"), filepath.Join(dir, "rootfs", "dev"), filepath.Join(dir, "rootfs", "tmp")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			r.t.Fatal(err)
		}
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		r.t.Fatal(err)
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "busybox"), program, 0o755); err != nil {
		r.t.Fatal(err)
	}
	for _, applet := range []string{"sh", "cat", "sleep", "env", "setsid", "true", "echo", "pwd"} {
		if err := os.Symlink("busybox", filepath.Join(bin, applet)); err != nil {
			r.t.Fatal(err)
		}
	}
	spec := specs.Spec{
		Version: "1.0.2",
		Root:    &specs.Root{Path: "rootfs"},
		Process: &specs.Process{Args: []string{"/bin/echo", "the bundle's own"}, Cwd: "/tmp", Env: []string{"PATH=/bin", "OF_BUNDLE=1"}},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755"}},
		},
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{{Type: specs.MountNamespace}, {Type: specs.IPCNamespace}}},
	}
	if rootlessProc() {
		spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.PIDNamespace})
	} else {
		spec.Mounts[0] = specs.Mount{Destination: "/proc", Type: "bind", Source: "/proc", Options: []string{"rbind"}}
	}
	if uid := os.Geteuid(); uid != 0 {
		spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
		spec.Linux.UIDMappings = []specs.LinuxIDMapping{{HostID: uint32(uid), Size: 1}}
		spec.Linux.GIDMappings = []specs.LinuxIDMapping{{HostID: uint32(os.Getegid()), Size: 1}}
	}
	if edit != nil {
		edit(&spec)
	}
	b, err := json.Marshal(spec)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), b, 0o644); err != nil {
		r.t.Fatal(err)
	}
	return dir
}

// outcome is what a receipt tells of a session, without what no two sessions share.
func outcome(r session.Receipt) string {
	var b strings.Builder
	for _, t := range r.Tasks {
		exit := "-"
		if t.Exit != nil {
			exit = fmt.Sprint(*t.Exit)
		}
		fmt.Fprintf(&b, "task %d %s exit %s leftovers %d %q\n", t.N, t.State, exit, t.Leftovers, t.Argv)
	}
	for _, p := range r.Processes {
		fmt.Fprintf(&b, "process of task %d %s %q %s\n", p.Task, p.Fate, p.Argv, p.Escaped)
	}
	fmt.Fprintf(&b, "strays %d survivors %d suspects %d nested %d", len(r.Strays), len(r.Survivors), len(r.Suspects), len(r.Nested))
	return b.String()
}

// threeTasks runs one that is well, one that fails and one that leaves a process behind
// which does all that it can to be nobody's, closes the session and gives the outcome.
func (r *rig) threeTasks(name string, flags ...string) string {
	r.t.Helper()
	id := r.open(name, flags...)
	r.exec(id, "/bin/busybox", "true").must(r.t, 0, "exec true")
	r.exec(id, "/bin/busybox", "sh", "-c", "exit 3").must(r.t, 3, "exec exit 3")
	r.exec(id, "/bin/busybox", "sh", "-c", "(/bin/busybox setsid /bin/busybox sleep 600 </dev/null >/dev/null 2>&1 &); exit 0").must(r.t, 0, "exec the escape")
	eventually(r.t, "the escaped process", func() bool {
		i := r.inspect(id)
		return i.Leftovers == 1 && i.Processes == 1 && slices.Equal(task(r.t, i, 3).Processes[0].Argv, []string{"/bin/busybox", "sleep", "600"})
	})
	return outcome(r.closed(id, graceFlags()...))
}

// TestOCISession: a session that is a container has the receipt of one that is none.
func TestOCISession(t *testing.T) {
	all := runtimes(t)
	plain := newRig(t).threeTasks("plain")
	for _, rt := range all {
		t.Run(filepath.Base(rt), func(t *testing.T) {
			r := newRig(t)
			dir := r.bundle("bundle", nil)
			before, err := os.ReadFile(filepath.Join(dir, "config.json"))
			if err != nil {
				t.Fatal(err)
			}
			if got := r.threeTasks("contained", "--oci", dir, "--runtime", rt); got != plain {
				t.Errorf("the receipt is\n%s\nthat of a plain session\n%s", got, plain)
			}
			after, err := os.ReadFile(filepath.Join(dir, "config.json"))
			if err != nil || !bytes.Equal(before, after) {
				t.Errorf("the bundle was written to: %v", err)
			}
			r.nothing("after a container")
		})
	}
}

// TestOCICommands: what a command in a container sees, and how it ends.
func TestOCICommands(t *testing.T) {
	for _, rt := range runtimes(t) {
		t.Run(filepath.Base(rt), func(t *testing.T) {
			r := newRig(t)
			dir := r.bundle("bundle", nil)
			id := r.open("work", "--oci", dir, "--runtime", filepath.Base(rt), "--label", "a=b", "--grace", "1s")
			env := r.run("exec", "-e", "ADDED=7", id, "--", "env").must(t, 0, "env").text()
			for _, want := range []string{"SESSIONBOX_ID=" + id, "OF_BUNDLE=1", "ADDED=7", "PATH=/bin"} {
				if !slices.Contains(strings.Split(env, "\n"), want) {
					t.Errorf("no %s in the environment:\n%s", want, env)
				}
			}
			if strings.Contains(env, "SESSIONBOX_STATE_DIR") {
				t.Errorf("our own environment inside:\n%s", env)
			}
			if got := r.exec(id, "pwd").must(t, 0, "pwd").text(); got != "/tmp" {
				t.Errorf("the directory is %s", got)
			}
			if got := r.run("exec", "-w", "/bin", id, "--", "pwd").must(t, 0, "pwd").text(); got != "/bin" {
				t.Errorf("with -w /bin the directory is %s", got)
			}
			o := r.exec(id, "no-such-program").must(t, 127, "a missing program")
			if !bytes.Contains(o.stderr, []byte("no-such-program")) {
				t.Errorf("the runtime's reason is not shown: %s", o.stderr)
			}
			r.exec(id, "sh", "-c", "kill -KILL $$").must(t, 137, "killed")
			r.run("exec", "--timeout", "300ms", "--kill-after", "1s", id, "--", "sleep", "600").must(t, 124, "timed out")
			if o := r.run("exec", "--replace", id, "--", "true"); o.code != 125 || !bytes.Contains(o.stderr, []byte("is a container")) {
				t.Errorf("exec --replace: exit code %d: %s", o.code, o.stderr)
			}
			if got := task(t, r.inspect(id), 5); got.State != "signaled" || got.Signal != "SIGKILL" {
				t.Errorf("who was killed is %s (%s)", got.State, got.Signal)
			}
			// One task is ended with all that it started, the others are not.
			r.detach(id, "sleep", "601")
			r.detach(id, "sh", "-c", "setsid sleep 602 & sleep 603")
			eventually(t, "three sleeping", func() bool { return len(sleeping(r.inspect(id))) == 3 })
			r.run("kill", id+"/8").must(t, 0, "kill")
			eventually(t, "one sleeping", func() bool { return slices.Equal(sleeping(r.inspect(id)), []string{"601"}) })
			// What is tied to a caller ends with the caller.
			p := r.start(bin(), "exec", id, "--", "sleep", "604")
			eventually(t, "the tied one", func() bool { return slices.Contains(sleeping(r.inspect(id)), "604") })
			if err := p.id.kill(); err != nil {
				t.Fatal(err)
			}
			p.wait()
			eventually(t, "the end of the tied one", func() bool { return slices.Equal(sleeping(r.inspect(id)), []string{"601"}) })
			r.run("keep", id+"/7").must(t, 5, "keep")
			if i := r.inspect(id); i.Container == nil || !i.Container.Running || i.Container.Bundle != dir {
				t.Errorf("the container is %+v", i.Container)
			}
			r.closed(id)
			r.nothing("after the close")
			if got := r.run("run", "--oci", dir, "--runtime", rt).must(t, 0, "run").text(); got != "the bundle's own" {
				t.Errorf("run without a command ran %q", got)
			}
			r.nothing("after the run")
		})
	}
}

// sleeping are what the sleeps of a session sleep for.
func sleeping(i session.Info) []string {
	var all []string
	for _, t := range i.Tasks {
		for _, p := range t.Processes {
			if n := len(p.Argv); n > 1 && p.Argv[n-2] == "sleep" {
				all = append(all, p.Argv[n-1])
			}
		}
	}
	return all
}

// TestOCIEnds: a container whose first process is gone takes no command, and is closed.
func TestOCIEnds(t *testing.T) {
	rt := runtimes(t)[0]
	r := newRig(t)
	id := r.open("work", "--oci", r.bundle("bundle", nil), "--runtime", rt)
	r.detach(id, "sleep", "600")
	var rec struct {
		Container struct{ Init struct{ PID int } }
	}
	b, err := os.ReadFile(r.sessionRecord(id))
	if err == nil {
		err = json.Unmarshal(b, &rec)
	}
	if err != nil {
		t.Fatal(err)
	}
	init, err := identify(rec.Container.Init.PID)
	if err != nil {
		t.Fatal(err)
	}
	if err := init.kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the container", func() bool { return !r.inspect(id).Container.Running })
	if o := r.exec(id, "true"); o.code != 125 || !bytes.Contains(o.stderr, []byte("has ended")) {
		t.Errorf("exec in it: exit code %d: %s", o.code, o.stderr)
	}
	r.closed(id)
	r.nothing("after the close")
}

// TestOCIKilled: whatever open had done when it was killed is ended, by reconcile or by
// close, and no runtime keeps a note of it.
func TestOCIKilled(t *testing.T) {
	for _, rt := range runtimes(t) {
		t.Run(filepath.Base(rt), func(t *testing.T) {
			r := newRig(t)
			dir := r.bundle("bundle", nil)
			for _, step := range []string{"", "process.json", "create.log", "root/sessionbox-*", "init.pid", "start.log"} {
				p := r.start(bin(), "open", "--name", "victim", "--backend", r.box, "--oci", dir, "--runtime", rt)
				eventually(t, "step "+step, func() bool {
					found, _ := filepath.Glob(filepath.Join(r.home, "state", "sessions", "*", "container", step))
					return step == "" || len(found) > 0
				})
				if err := p.id.kill(); err != nil && p.id.alive() {
					t.Fatal(err)
				}
				p.wait()
				if step == "init.pid" {
					r.run("close", "victim").must(t, 0, "close")
				}
				r.run("reconcile").must(t, 0, "reconcile")
				r.sweep("killed at " + step)
				r.nothing("killed at " + step)
			}
			id := r.open("work", "--oci", dir, "--runtime", rt)
			r.detach(id, "sh", "-c", "setsid sleep 600 & sleep 600")
			c := r.start(bin(), "close", "--now", id)
			eventually(t, "the end of its processes", func() bool { i, ok := r.listed(id); return !ok || i.Processes == 0 })
			if err := c.id.kill(); err != nil && c.id.alive() {
				t.Fatal(err)
			}
			c.wait()
			r.run("reconcile").must(t, 0, "reconcile")
			r.sweep("a close that was killed")
			r.nothing("a close that was killed")
		})
	}
}

// TestOCIBad: what is no bundle for a session is said to be none, with what to do.
func TestOCIBad(t *testing.T) {
	rt := runtimes(t)[0]
	r := newRig(t)
	good := r.bundle("good", nil)
	broken := r.bundle("broken", nil)
	if err := os.WriteFile(filepath.Join(broken, "config.json"), []byte(`{"ociVersion": "1.0.2", "process": {`), 0o644); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name  string
		flags []string
		code  int
		says  string
	}{
		{"no configuration", []string{"--oci", r.home}, 2, "no config.json"},
		{"no directory", []string{"--oci", filepath.Join(r.home, "nowhere")}, 2, "no config.json"},
		{"broken", []string{"--oci", broken}, 2, "no configuration"},
		{"a cgroupsPath", []string{"--oci", r.bundle("path", func(s *specs.Spec) { s.Linux.CgroupsPath = "/mine" })}, 2, "cgroupsPath of its own (/mine)"},
		{"too new", []string{"--oci", r.bundle("new", func(s *specs.Spec) { s.Version = "1.99.0" })}, 2, "1.99.0 is not known"},
		{"no version", []string{"--oci", r.bundle("none", func(s *specs.Spec) { s.Version = "" })}, 2, "is no version"},
		{"no process", []string{"--oci", r.bundle("process", func(s *specs.Spec) { s.Process = nil })}, 2, "no process"},
		{"no root", []string{"--oci", r.bundle("root", func(s *specs.Spec) { s.Root.Path = "gone" })}, 2, "gone is not there"},
		{"no tmpfs", []string{"--oci", r.bundle("tmpfs", func(s *specs.Spec) { s.Mounts = s.Mounts[:1] })}, 2, "no tmpfs"},
		{"no runtime", []string{"--oci", good, "--runtime", "no-such-runtime"}, 5, "no-such-runtime is not there"},
		{"a runtime that fails", []string{"--oci", good, "--runtime", "false"}, 5, "false create failed"},
		{"a runtime that does nothing", []string{"--oci", good, "--runtime", "true"}, 5, "first process"},
		{"cgroups of others", []string{"--oci", r.bundle("cgroups", func(s *specs.Spec) {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/c", Type: "bind", Source: "/sys/fs/cgroup", Options: []string{"rbind"}})
		})}, 2, "mounts cgroups at /c"},
		{"shims", []string{"--oci", good, "--shims"}, 2, "no shims"},
		{"a bundle that does not run", []string{"--oci", r.bundle("mount", func(s *specs.Spec) {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/x", Type: "bind", Source: "/no/such/source", Options: []string{"bind"}})
		}), "--runtime", rt}, 5, "/no/such/source"},
		{"private tmp", []string{"--oci", good, "--private-tmp"}, 2, "temporary files"},
		{"lineage", []string{"--oci", good, "--backend", "lineage"}, 5, "lineage box"},
		{"a runtime alone", []string{"--runtime", rt}, 2, "--runtime without --oci"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			flags := c.flags
			if !slices.Contains(flags, "--backend") {
				flags = append([]string{"--backend", r.box}, flags...)
			}
			o := r.run(append([]string{"open"}, flags...)...)
			if o.code != c.code || !bytes.Contains(o.stderr, []byte(c.says)) {
				t.Errorf("exit code %d, want %d with %q: %s", o.code, c.code, c.says, o.stderr)
			}
			if !bytes.Contains(o.stderr, []byte("hint: ")) {
				t.Errorf("no hint: %s", o.stderr)
			}
			r.nothing(c.name)
		})
	}
}

// TestSpec: the patch makes a container that somebody else starts one of the session.
func TestSpec(t *testing.T) {
	rts := runtimes(t)
	r := newRig(t)
	id := r.open("work", "--label", "a=b", "--pids-max", "300", "--grace", "1s")
	dir := r.bundle("bundle", func(s *specs.Spec) { s.Process.Args = []string{"sleep", "600"} })
	out := r.run("spec", id, dir).must(t, 0, "spec").stdout
	var patch specs.Spec
	if err := json.Unmarshal(out, &patch); err != nil {
		t.Fatal(err)
	}
	if l := patch.Linux; l == nil || !strings.Contains(l.CgroupsPath, id) || l.Resources.Pids == nil || *l.Resources.Pids.Limit != 300 {
		t.Errorf("the patch is\n%s", out)
	}
	if patch.Annotations["org.sessionbox.id"] != id || patch.Annotations["org.sessionbox.label.a"] != "b" || !slices.Contains(patch.Process.Env, "OF_BUNDLE=1") || !slices.Contains(patch.Process.Env, "SESSIONBOX_ID="+id) {
		t.Errorf("the patch is\n%s", out)
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); errors.Is(err, fs.ErrNotExist) {
		return // a hybrid host: these runtimes use the v1 tree
	}
	// The runtime can only enforce what the controllers here are for.
	for i, rt := range rts {
		at := r.bundle(fmt.Sprintf("mine-%d", i), func(s *specs.Spec) {
			s.Process.Args, s.Process.Env = []string{"sleep", "600"}, patch.Process.Env
			s.Annotations, s.Linux.CgroupsPath = patch.Annotations, patch.Linux.CgroupsPath+fmt.Sprint(i)
		})
		argv := []string{rt, "--root", filepath.Join(r.home, "root-"+filepath.Base(rt)), "run", "--detach", "--bundle", at, "mine"}
		if os.Getenv("SESSIONBOX_TEST_ROUTE") == "ssh" {
			// From a login the kernel lets nobody but root put a process into the box:
			// the runtime has to be in it itself.
			argv = append([]string{bin(), "exec", id, "--"}, argv...)
		}
		if o := r.start(argv[0], argv[1:]...).wait(); o.code != 0 {
			t.Errorf("%s run: exit code %d: %s%s", rt, o.code, o.stdout, o.stderr)
		}
	}
	eventually(t, "the containers", func() bool { return r.inspect(id).Processes == len(rts) })
	r.closed(id)
	for _, rt := range rts { // its notes are ours to delete
		r.start(rt, "--root", filepath.Join(r.home, "root-"+filepath.Base(rt)), "delete", "--force", "mine").wait()
	}
	r.nothing("after the close")
}

// TestOCICloseHangs: a runtime that hangs delays a close and keeps nobody from it.
func TestOCICloseHangs(t *testing.T) {
	rt := runtimes(t)[0]
	r := newRig(t)
	// As the runtime, but that it never comes to delete anything.
	slow := filepath.Join(r.home, "slow")
	script := "#!/bin/sh\nfor a; do [ \"$a\" = delete ] && exec sleep 600; done\nexec " + rt + " \"$@\"\n"
	if err := os.WriteFile(slow, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	id := r.open("work", "--oci", r.bundle("bundle", nil), "--runtime", slow)
	r.detach(id, "sleep", "600")
	began := time.Now()
	receipt := r.closed(id, "--now")
	if took := time.Since(began); took > patience() {
		t.Errorf("the close took %v", took)
	}
	if !slices.ContainsFunc(receipt.Notes, func(n string) bool { return strings.Contains(n, "slow delete") }) {
		t.Errorf("the receipt says nothing of it: %q", receipt.Notes)
	}
	if err := unix.Access(filepath.Dir(r.sessionRecord(id)), unix.F_OK); !errors.Is(err, unix.ENOENT) {
		t.Errorf("the runtime's notes are left: %v", err)
	}
	r.nothing("after the close")
}

// TestOCIHooks: what the hooks of a bundle leave after the end is ended, too, whatever
// their environment is, and also when one of them never ends.
func TestOCIHooks(t *testing.T) {
	for _, rt := range runtimes(t) {
		t.Run(filepath.Base(rt), func(t *testing.T) {
			r := newRig(t)
			for name, last := range map[string]string{"ends": "exit 0", "hangs": "sleep 602"} {
				noted := filepath.Join(r.home, name)
				script := fmt.Sprintf("setsid sh -c 'echo $$ >%[1]s; exec sleep 601' </dev/null >/dev/null 2>&1 & while ! test -s %[1]s; do :; done; %[2]s", noted, last)
				id := r.open(name, "--runtime", rt, "--oci", r.bundle("bundle-"+name, func(s *specs.Spec) {
					s.Hooks = &specs.Hooks{Poststop: []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}}}}
				}))
				r.exec(id, "true").must(t, 0, "exec")
				receipt := r.closed(id)
				pid, err := os.ReadFile(noted)
				if err != nil {
					t.Fatalf("%s: the hook did not run: %v (%q)", name, err, receipt.Notes)
				}
				argv, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/cmdline")
				if err == nil && bytes.Contains(argv, []byte("sleep")) {
					t.Errorf("%s: %q of the hook is left", name, argv)
				}
				if told := slices.ContainsFunc(receipt.Notes, func(n string) bool { return strings.Contains(n, filepath.Base(rt)+" delete failed") }); told != (name == "hangs") {
					t.Errorf("%s: the notes are %q", name, receipt.Notes)
				}
			}
			r.nothing("after the close")
		})
	}
}

// TestOCIWatched: of who waits for a command in a container nothing is seen or counted, no
// signal comes twice, and what a command is limited to does not limit the session's own.
func TestOCIWatched(t *testing.T) {
	for _, rt := range runtimes(t) {
		t.Run(filepath.Base(rt), func(t *testing.T) {
			r := newRig(t)
			// runc sets them before it becomes the command, and a program in Go may need more than the first leaves.
			kind, flag, want := "RLIMIT_AS", "-v", "204800"
			if filepath.Base(rt) == "runc" {
				kind, flag, want = "RLIMIT_FSIZE", "-f", "409600"
			}
			dir := r.bundle("bundle", func(s *specs.Spec) {
				s.Process.Rlimits = []specs.POSIXRlimit{{Type: kind, Soft: 200 << 20, Hard: 200 << 20}}
			})
			link := filepath.Join(r.home, "link")
			if err := os.Symlink(dir, link); err != nil {
				t.Fatal(err)
			}
			id := r.open("work", "--oci", link, "--runtime", rt, "--grace", "1s")
			if limit := r.exec(id, "sh", "-c", "ulimit "+flag).must(t, 0, "ulimit").text(); limit != want {
				t.Errorf("the command's limit is %s", limit)
			}
			r.run("open", "--name", "work", "--attach", "--oci", link, "--backend", r.box).must(t, 0, "open --attach")
			r.run("open", "--name", "work", "--attach", "--oci", link, "--runtime", "busybox", "--backend", r.box).must(t, 2, "open --attach with another runtime")
			noted := filepath.Join(r.home, "noted")
			out, err := os.OpenFile(noted, os.O_WRONLY|os.O_CREATE, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			// Each signal is noted once. A shell waits for sleep in vain: it is in the way.
			script := "trap 'echo got' USR1; trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done"
			p := r.startWith(syscall.SysProcAttr{}, out, bin(), "exec", id, "--", "sh", "-c", script)
			lines := func(word string) int {
				b, _ := os.ReadFile(noted)
				return strings.Count(string(b), word)
			}
			t.Cleanup(func() {
				if b, _ := os.ReadFile(noted); t.Failed() {
					t.Logf("the command and who waits for it said:\n%s", b)
				}
			})
			eventually(t, "the command", func() bool { return lines("ready") == 1 })
			// It leaves when the command runs, which may have said so before.
			eventually(t, "only the command and what it started", func() bool {
				procs := task(t, r.inspect(id), 2).Processes
				return len(procs) > 0 && !slices.ContainsFunc(procs, func(p session.Process) bool { return slices.Contains(p.Argv, "__container") })
			})
			if o := r.run("kill", "--signal", "USR1", id+"/2"); o.code != 0 {
				t.Errorf("kill: %s", o.stderr)
			}
			eventually(t, "the signal", func() bool { return lines("got") > 0 })
			// What comes by way of who waits is later than what came directly.
			if err := p.id.signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if o := p.wait(); o.code != 7 || lines("got") != 1 {
				t.Errorf("exit code %d after %d signals", o.code, lines("got"))
			}
			r.closed(id)
			r.nothing("after the close")
		})
	}
}

// TestOCIExecHangs: a runtime that never starts the command holds up nobody for ever, and a
// container in which everything is frozen is said to be.
func TestOCIExecHangs(t *testing.T) {
	rt := runtimes(t)[0]
	r := newRig(t)
	slow := filepath.Join(r.home, "slow")
	script := "#!/bin/sh\nfor a; do [ \"$a\" = exec ] && { sleep 600 & wait; }; done\nexec " + rt + " \"$@\"\n"
	if err := os.WriteFile(slow, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	id := r.open("work", "--oci", r.bundle("bundle", nil), "--runtime", slow)
	o := r.exec(id, "true")
	if o.code == 0 || !bytes.Contains(o.stderr, []byte("slow exec does not come to an end")) {
		t.Errorf("exit code %d: %s", o.code, o.stderr)
	}
	if i := r.inspect(id); i.Processes != 0 {
		t.Errorf("%d processes are left of it", i.Processes)
	}
	freeze, err := filepath.Glob(filepath.Join(r.inspect(id).Box.Path, "*", "container", "cgroup.freeze"))
	if len(freeze) == 0 && err == nil {
		freeze, err = filepath.Glob(filepath.Join(r.inspect(id).Box.Path, "container", "cgroup.freeze"))
	}
	if err != nil || len(freeze) != 1 {
		t.Fatalf("the container's cgroup is not found: %q, %v", freeze, err)
	}
	if err := os.WriteFile(freeze[0], []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	if o := r.exec(id, "true"); o.code == 0 || !bytes.Contains(o.stderr, []byte("is frozen")) {
		t.Errorf("in a frozen container: exit code %d: %s", o.code, o.stderr)
	}
	r.run("thaw", id).must(t, 0, "thaw")
	if b, err := os.ReadFile(freeze[0]); err != nil || string(b) != "0\n" {
		t.Errorf("after the thaw: %q, %v", b, err)
	}
	r.closed(id)
	r.nothing("after the close")
}

// TestOCICloseKilled: a close that is killed while a hook runs leaves the hook to the next.
func TestOCICloseKilled(t *testing.T) {
	rt := runtimes(t)[0]
	r := newRig(t)
	noted := filepath.Join(r.home, "noted")
	id := r.open("work", "--runtime", rt, "--oci", r.bundle("bundle", func(s *specs.Spec) {
		s.Hooks = &specs.Hooks{Poststop: []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", "echo $$ >>" + noted + "; exec sleep 601"}, Env: []string{"PATH=/usr/bin:/bin"}}}}
	}))
	c := r.start(bin(), "close", "--now", id)
	var hook ident
	eventually(t, "the hook", func() bool {
		pid, err := os.ReadFile(noted)
		if err != nil || !bytes.HasSuffix(pid, []byte("\n")) {
			return false
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(pid)))
		if err == nil {
			hook, err = identify(n)
		}
		return err == nil
	})
	if err := c.id.kill(); err != nil {
		t.Fatal(err)
	}
	c.wait()
	r.closed(id, "--now")
	if hook.alive() {
		t.Error("the hook is left")
	}
	r.nothing("after the second close")
}

// TestOCIForged: a close runs no other runtime than the one that the box was made for,
// whatever the record says.
func TestOCIForged(t *testing.T) {
	rt := runtimes(t)[0]
	r := newRig(t)
	ran, forged := filepath.Join(r.home, "ran"), filepath.Join(r.home, "forged")
	if err := os.WriteFile(forged, []byte("#!/bin/sh\necho x >"+ran+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	id := r.open("work", "--runtime", rt, "--oci", r.bundle("bundle", nil))
	record := r.sessionRecord(id)
	b, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Replace(b, []byte(`"`+rt+`"`), []byte(`"`+forged+`"`), 1)
	if bytes.Equal(b, changed) {
		t.Fatalf("the record does not name %s", rt)
	}
	if err := os.WriteFile(record, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	receipt := r.closed(id)
	if _, err := os.Stat(ran); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what the record names was run: %v", err)
	}
	if !slices.ContainsFunc(receipt.Notes, func(n string) bool { return strings.Contains(n, "was not called") }) {
		t.Errorf("the receipt says nothing of it: %q", receipt.Notes)
	}
	r.nothing("after the close")
}

// noting gives a bundle whose poststop hook notes that it ran.
func (r *rig) noting(name string) (bundle, noted string) {
	r.t.Helper()
	noted = filepath.Join(r.home, name+"-noted")
	return r.bundle("bundle-"+name, func(s *specs.Spec) {
		s.Hooks = &specs.Hooks{Poststop: []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", "echo x >" + noted}, Env: []string{"PATH=/usr/bin:/bin"}}}}
	}), noted
}

// TestOCIFrozen: a container that stands still, or lies in a session that does, is cleared up
// behind by its runtime as any other: when nothing stands still any more.
func TestOCIFrozen(t *testing.T) {
	rt := runtimes(t)[0]
	for _, how := range []string{"freeze", "hibernate", "idle"} {
		for _, inside := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,inside=%v", how, inside), func(t *testing.T) {
				r := newRig(t)
				var flags []string
				if how == "idle" {
					flags = []string{"--idle-timeout", "1s", "--idle-action", "freeze"}
				}
				dir, noted := r.noting("frozen")
				oci := []string{"--oci", dir, "--runtime", rt}
				if !inside {
					flags = append(flags, oci...)
				}
				id := r.open("around", flags...)
				if inside {
					r.exec(id, append([]string{bin(), "open", "--name", "container"}, oci...)...).must(t, 0, "open inside a session")
				}
				switch how {
				case "idle":
					eventually(t, "it to be frozen", func() bool { return r.reconcile()[id].Action == "frozen" })
				default:
					r.run(how, id).must(t, 0, how)
				}
				if !r.inspect(id).Box.Frozen {
					t.Fatal("it is not frozen")
				}
				receipt := r.closed(id, "--now")
				if _, err := os.Stat(noted); err != nil {
					t.Errorf("the hook did not run: %v (%q, %+v)", err, receipt.Notes, receipt.Nested)
				}
				r.nothing("after the close")
			})
		}
	}
}

// TestOCIFrozenAround: of a container in a session that stands still, and is not closed, no
// runtime is called: it would stand still as well. The close says so.
func TestOCIFrozenAround(t *testing.T) {
	rt := runtimes(t)[0]
	r := newRig(t)
	dir, noted := r.noting("frozen")
	outer := r.open("around")
	inner := r.exec(outer, bin(), "open", "--name", "container", "--oci", dir, "--runtime", rt).must(t, 0, "open inside a session").text()
	r.run("freeze", outer).must(t, 0, "freeze")
	receipt := r.closed(inner, "--now")
	if !slices.ContainsFunc(receipt.Notes, func(n string) bool { return strings.Contains(n, "was not called") && strings.Contains(n, "is frozen") }) {
		t.Errorf("the receipt says nothing of it: %q", receipt.Notes)
	}
	if _, err := os.Stat(noted); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the hook ran: %v", err)
	}
	r.closed(outer)
	r.nothing("after the close")
}

// TestOCIServes: a daemon in a container serves others, and nothing in a container outlives
// it: it is not told to be spared, whatever was asked for.
func TestOCIServes(t *testing.T) {
	rt := runtimes(t)[0]
	for _, flag := range []string{"", "--spare"} {
		t.Run("close"+flag, func(t *testing.T) {
			r := newRig(t)
			dir := r.bundle("bundle", nil)
			program, err := os.ReadFile(escape())
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, "rootfs", "bin", "escape"), program, 0o755)
			}
			work := filepath.Join(dir, "rootfs", "tmp", "work")
			if err == nil {
				err = os.Mkdir(work, 0o777)
			}
			if err != nil {
				t.Fatal(err)
			}
			id := r.open("work", "--oci", dir, "--runtime", rt)
			r.detach(id, "/bin/escape", "daemon", "--dir", "/tmp/work", "--socket", "/tmp/s")
			socket := filepath.Join(dir, "rootfs", "tmp", "s")
			eventually(t, "socket", func() bool { _, err := os.Stat(socket); return err == nil })
			r.canaryWith("client", syscall.SysProcAttr{}, escape(), "--socket", socket)
			eventually(t, "the connection", func() bool { return len(r.inspect(id).Served) == 1 })
			if s := r.inspect(id).Served[0]; s.Spared {
				t.Error("inspect says that a close would spare it")
			}
			flags := []string{"--now"}
			if flag != "" {
				flags = append(flags, flag)
			}
			receipt := r.closed(id, flags...)
			if len(receipt.Served) != 1 || receipt.Served[0].Spared || len(receipt.Kept) > 0 {
				t.Errorf("the receipt says %+v, kept %+v", receipt.Served, receipt.Kept)
			}
			r.nothing("after the close")
		})
	}
}
