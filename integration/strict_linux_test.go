package integration_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sessionbox/sessionbox/integration/hosts"
	"golang.org/x/sys/unix"
)

// attempt is one way to go through a door; it succeeds if that is open.
type attempt struct {
	door string
	argv []string
	env  []string
	// open: it is one that is left open.
	open bool
	// always: it can be tried everywhere.
	always bool
}

// attempts are made from inside of a session, each by what a session would do.
func (r *rig) attempts() []attempt {
	r.t.Helper()
	manager := []string{"--user"}
	if os.Geteuid() == 0 {
		manager = []string{"--system"}
	}
	outside := r.canary()
	_, socket := r.daemon()
	all := []attempt{
		{door: "container daemons", argv: r.payloads("hired").argv("E30", "--socket", socket), env: []string{"DOCKER_HOST=unix://" + socket}, always: true},
		{door: "other processes", argv: []string{"ls", fmt.Sprintf("/proc/%d/root/", outside.id.pid)}, always: true},
		{door: "sessionbox's records", argv: []string{"touch", filepath.Join(r.home, "state", "sessions", "written")}, always: true},
		{door: "set-user-id programs", argv: []string{"sh", "-c", "! grep -q 'NoNewPrivs:.1' /proc/self/status"}, always: true},
		{door: "kernel settings", argv: []string{"test", "-w", "/proc/sys/kernel/core_pattern"}},
	}
	if dir := os.Getenv(envOutside); dir != "" && os.Getenv("SESSIONBOX_TEST_ROUTE") != "ssh" {
		all = append(all, attempt{door: "other cgroups", argv: []string{"sh", "-c", "echo $$ >" + dir + "/cgroup.procs"}, always: true})
	}
	if r.box == "systemd" {
		if os.Geteuid() != 0 {
			all = append(all,
				attempt{door: "user bus", argv: []string{"busctl", "--user", "list"}, always: true},
				attempt{door: "user manager", argv: []string{"systemctl", "--user", "list-units"}, always: true},
				attempt{door: "set-user-id programs", argv: []string{"sudo", "-n", "true"}, always: true})
		}
		all = append(all,
			attempt{door: "system bus", argv: []string{"busctl", "--system", "list"}, always: true},
			attempt{door: "system manager", argv: []string{"systemctl", "--system", "list-units"}, always: true},
			attempt{door: "system manager", argv: append([]string{"systemd-run", "--quiet", "--collect", "--wait"}, append(manager, "true")...), always: true},
			attempt{door: "system manager", argv: append([]string{"systemd-run", "--quiet", "--scope"}, append(manager, "true")...), always: true},
			attempt{door: "at and cron", argv: []string{"sh", "-c", "echo true | at now"}, always: true},
			attempt{door: "ssh to this machine", argv: []string{"ssh", os.Getenv(envSSH), "true"}, open: true, always: true})
	}
	if _, err := exec.LookPath("tmux"); err == nil {
		_, socket := r.tmuxServer()
		all = append(all, attempt{door: "tmux and screen servers", argv: []string{"tmux", "-S", socket, "list-sessions"}, env: []string{"TMUX=" + socket + ",1,0"}, always: true})
	}
	return all
}

// TestStrict: each door that a session has is tried from inside, of one that is strict and
// of one that is not, and what is said of it is true.
func TestStrict(t *testing.T) {
	r := newRig(t)
	attempts := r.attempts()
	plain, strict := r.open("plain", graceFlags()...), r.open("strict", append(graceFlags(), "--strict")...)
	if r.inspect(plain).Strict != nil {
		t.Error("a plain session is said to be strict")
	}
	said := map[string]bool{}
	for _, d := range r.inspect(strict).Strict.Doors {
		said[d.Name] = d.Closed
		if d.Text == "" {
			t.Errorf("%s: nothing is said of it", d.Name)
		}
	}
	var table strings.Builder
	for _, a := range attempts {
		try := func(id string) output {
			args := []string{"exec"}
			for _, kv := range a.env {
				args = append(args, "-e", kv)
			}
			return r.run(append(append(args, "--timeout", "20s", id, "--"), a.argv...)...)
		}
		before, after := try(plain), try(strict)
		word := map[bool]string{true: "open", false: "closed"}
		fmt.Fprintf(&table, "%-24s %-7s %-7s %.70q\n", a.door, word[before.code == 0], word[after.code == 0], a.argv)
		if before.code != 0 {
			if a.always {
				t.Errorf("%s: %q fails in a plain session, too: exit code %d: %s%s", a.door, a.argv, before.code, before.stdout, before.stderr)
			}
			continue
		}
		if open := after.code == 0; open != a.open {
			t.Errorf("%s: %q: exit code %d: %s%s", a.door, a.argv, after.code, after.stdout, after.stderr)
		}
		if closed, ok := said[a.door]; !ok || closed == a.open {
			t.Errorf("%s is said to be closed: %v", a.door, closed)
		}
	}
	t.Logf("door                     plain   strict  tried by\n%s", &table)
	r.closed(plain)
	r.closed(strict)
}

// TestStrictCommands: what runs in a strict session is what would run in another, but for
// the doors, and is ended like that.
func TestStrictCommands(t *testing.T) {
	r := newRig(t)
	id := r.open("work", append(graceFlags(), "--strict")...)
	if got := r.exec(id, "id", "-u").must(t, 0, "id").text(); got != fmt.Sprint(os.Geteuid()) {
		t.Errorf("the user is %s", got)
	}
	r.exec(id, "sh", "-c", "exit 7").must(t, 7, "exit 7")
	r.exec(id, "sh", "-c", "kill -KILL $$").must(t, 137, "killed")
	r.exec(id, "no-such-program").must(t, 127, "a missing program")
	r.exec(id, r.home).must(t, 126, "a directory")
	script := filepath.Join(r.home, "script")
	if err := os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.exec(id, script).must(t, 127, "a missing interpreter")
	r.run("exec", "-w", r.home, id, "--", "sh", "-c", "echo x >written && test $SESSIONBOX_STRICT = 1").must(t, 0, "write")
	if o := r.run("exec", "--replace", id, "--", "true"); o.code != 125 || !bytes.Contains(o.stderr, []byte("is strict")) {
		t.Errorf("exec --replace: exit code %d: %s", o.code, o.stderr)
	}
	// What covers a door cannot be taken away, also not in namespaces of one's own.
	mount, err := hosts.CgroupMount()
	if err != nil {
		t.Fatal(err)
	}
	for _, undo := range []string{"umount", "unshare -Urm umount", "mount -o remount,bind,rw", "unshare -Urm mount -o remount,bind,rw"} {
		if o := r.exec(id, "sh", "-c", undo+" "+mount); o.code == 0 {
			t.Errorf("%s works", undo)
		}
	}
	r.run("open", "--name", "work", "--attach", "--strict", "--backend", r.box).must(t, 0, "open --attach --strict")
	other := r.open("other")
	r.run("open", "--name", "other", "--attach", "--strict", "--backend", r.box).must(t, 2, "open --attach --strict of one that is not")
	r.closed(other)
	p := r.payloads("payload")
	r.detach(id, p.argv("E06")...)
	r.detach(id, p.argv("payload")...)
	p.await(2)
	p.ticking()
	if receipt := r.closed(id); len(receipt.Processes) < 2 || len(receipt.Strays) > 0 {
		t.Errorf("the receipt has %d processes and %d strays", len(receipt.Processes), len(receipt.Strays))
	}
	p.stopped()
	r.run("run", "--strict", "--", "sh", "-c", "exit 5").must(t, 5, "run --strict")
	for _, c := range []struct {
		flags []string
		code  int
	}{{[]string{"--backend", "lineage"}, 5}, {[]string{"--oci", r.home}, 2}} {
		if o := r.run(append([]string{"open", "--strict"}, c.flags...)...); o.code != c.code || !bytes.Contains(o.stderr, []byte("hint: ")) {
			t.Errorf("open --strict %q: exit code %d, want %d: %s", c.flags, o.code, c.code, o.stderr)
		}
	}
	r.nothing("at the end")
}

// renamed moves a directory away, and back.
func renamed(dir string) []string {
	return []string{"sh", "-c", "mv " + dir + " " + dir + "-x && mv " + dir + "-x " + dir}
}

// TestStrictInside: a strict session without shims, in one that has some, runs what it is told
// to: the shims around it would have to note what it may not write.
func TestStrictInside(t *testing.T) {
	r := newRig(t)
	e := r.engine()
	outer := r.open("outer", "--shims")
	inner := r.exec(outer, bin(), "open", "--name", "inner", "--strict").must(t, 0, "open inside a session").text()
	container := r.exec(outer, bin(), "exec", inner, "--", "docker", "run", "-d", "bb").must(t, 0, "docker in the strict session").text()
	if labels := labelsIn(e.args(container)); len(labels) > 0 || !e.there(container) {
		t.Errorf("the container is there: %v, with the labels %v", e.there(container), labels)
	}
	within := r.exec(outer, "docker", "run", "-d", "bb").must(t, 0, "docker in the session around").text()
	r.closed(outer, graceFlags()...)
	if !e.there(container) || e.there(within) {
		t.Errorf("after the close: that of the strict session is there: %v, that of the session around: %v", e.there(container), e.there(within))
	}
}

// TestStrictHeld: no environment, no directory to begin in, no copy put elsewhere and no
// other file system of the same kind opens what was said to be closed.
func TestStrictHeld(t *testing.T) {
	r := newRig(t)
	_, socket := r.daemon()
	hidden := filepath.Join(r.home, ".docker", "run")
	if err := os.MkdirAll(filepath.Join(hidden, "deeper"), 0o755); err != nil {
		t.Fatal(err)
	}
	env := r.env
	r.env = append(slices.Clip(env), "DOCKER_HOST=unix://"+socket, "HOME="+r.home)
	plain, strict := r.open("plain"), r.open("strict", "--strict")
	r.env = append(slices.Clip(env), "HOME=/")
	state := filepath.Join(r.home, "state")
	p := r.payloads("hired")
	attempts := []struct {
		what, dir string
		argv      []string
	}{
		{"a door that only the opener's environment names", "", p.argv("E30", "--socket", socket)},
		{"a directory that only the opener's environment names", "", []string{"ls", filepath.Join(hidden, "deeper")}},
		{"begin in the records", filepath.Join(state, "sessions"), []string{"touch", "written"}},
		{"begin in what is hidden", filepath.Join(hidden, "deeper"), []string{"true"}},
		{"rename the records' directory", "", renamed(state)},
		{"rename what is above", "", renamed(r.home)},
		{"type into a terminal", "", []string{"perl", "-e", `$c = "x"; ioctl(STDIN, 0x5412, $c); exit($! + 0 == 1)`}},
	}
	if unix.Access("/proc/sys/kernel/core_pattern", unix.W_OK) == nil {
		attempts = append(attempts, struct {
			what, dir string
			argv      []string
		}{"begin in the kernel's settings", "/proc/sys/kernel", []string{"test", "-w", "core_pattern"}})
	}
	for _, a := range attempts {
		for _, id := range []string{plain, strict} {
			argv := a.argv
			if id == plain && strings.HasPrefix(a.what, "rename ") { // it could, and what is written meanwhile would be lost
				argv = renamed(hidden)
			}
			args := []string{"exec", "--timeout", "20s"}
			if a.dir != "" {
				args = append(args, "-w", a.dir)
			}
			o := r.run(append(append(args, id, "--"), argv...)...)
			if (o.code == 0) != (id == plain) {
				t.Errorf("%s: strict %v: exit code %d: %s%s", a.what, id == strict, o.code, o.stdout, o.stderr)
			}
			if id == strict && a.dir == filepath.Join(hidden, "deeper") && !bytes.Contains(o.stderr, []byte("cannot be used in a strict session")) {
				t.Errorf("%s: not said: %s", a.what, o.stderr)
			}
		}
	}
	os.Remove(filepath.Join(state, "sessions", "written"))
	if os.Geteuid() == 0 {
		at := filepath.Join(r.home, "proc")
		if err := os.Mkdir(at, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{plain, strict} {
			o := r.start("unshare", "-m", "sh", "-c", "mount -t proc proc "+at+" && exec "+bin()+" exec "+id+" -- test -w "+at+"/sys/kernel/core_pattern").wait()
			if (o.code == 0) != (id == plain) {
				t.Errorf("a second procfs: strict %v: exit code %d: %s", id == strict, o.code, o.stderr)
			}
		}
	}
	r.closed(plain)
	r.closed(strict)
	r.nothing("at the end")
}
