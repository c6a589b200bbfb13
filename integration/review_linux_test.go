package integration_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// These were found by reading the code as an adversary would.

// TestForeignProc: where /proc shows another pid namespace, nothing that it says may
// lead to a signal, and nothing may be called closed.
func TestForeignProc(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a pid namespace")
	}
	r := newRig(t)
	need(t, "unshare")
	c := r.canary()
	p := r.payloads("payload")
	id := r.open("foreign-proc")
	r.detach(id, p.argv("payload")...)
	p.await(1)
	if o := r.start("unshare", "--pid", "--fork", bin(), "close", "--now", id).wait(); o.code == 0 {
		t.Errorf("close succeeded where it cannot see the session's processes: %s", o.stdout)
	}
	if o := r.start("unshare", "--pid", "--fork", bin(), "exec", id, "--", "true").wait(); o.code == 0 {
		t.Error("exec succeeded where processes cannot be told apart")
	}
	c.lives()
	r.closed(id, graceFlags()...)
	p.stopped()
}

// TestOutOfSight: a box that cannot be seen is not one that is gone.
func TestOutOfSight(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a mount namespace")
	}
	r := newRig(t)
	need(t, "unshare")
	p := r.payloads("payload")
	id := r.open("out-of-sight")
	r.detach(id, p.argv("payload")...)
	p.await(1)
	i := r.inspect(id)
	mount, _, _ := strings.Cut(i.Box.Path, "/sbxtest-")
	if r.box == "systemd" {
		mount, _, _ = strings.Cut(i.Box.Path, "/sessionbox.slice")
	}
	for what, script := range map[string]string{
		"nothing mounted":   "mount -t tmpfs none " + mount,
		"another namespace": "unshare --cgroup sh -c 'mount -t cgroup2 none " + mount + ` && exec "$0" "$@"' "$0" "$@"; exit`,
	} {
		for _, verb := range [][]string{{"close", "--now", id}, {"kill", id}, {"wait", id, "--for", "empty", "--timeout", "1s"}} {
			argv := append([]string{"--mount", "sh", "-c", script + ` && exec "$0" "$@"`, bin()}, verb...)
			if o := r.start("unshare", argv...).wait(); o.code == 0 {
				t.Errorf("%s, %q: exit code 0 with the session alive: %s", what, verb, o.stdout)
			}
		}
	}
	p.ticking()
	r.closed(id, graceFlags()...)
	p.stopped()
}

// TestDirectoryOfAnothersName: a member makes a directory named as the box of another
// session would be inside its own. Closing or killing the first does not touch the
// other.
func TestDirectoryOfAnothersName(t *testing.T) {
	r := newRig(t)
	victim, p := r.payloads("victim"), r.payloads("payload")
	a, b := r.open("trickster"), r.open("victim")
	r.detach(b, victim.argv("payload")...)
	r.detach(a, p.argv("payload")...)
	victim.await(1)
	p.await(1)
	fake := filepath.Join(r.inspect(a).Box.Path, "sessionbox-"+a+"-"+b+".slice")
	if err := os.Mkdir(fake, 0o755); err != nil {
		t.Fatal(err)
	}
	r.run("kill", a).must(t, 0, "kill")
	p.stopped()
	victim.ticking()
	receipt := r.closed(a, graceFlags()...)
	if len(receipt.Nested) != 0 {
		t.Errorf("the receipt holds sessions that are not inside: %+v", receipt.Nested)
	}
	victim.ticking()
	r.closed(b, graceFlags()...)
}

// TestTimeoutEndsAll: a command that is out of time ends with all that it started,
// also what does not listen.
func TestTimeoutEndsAll(t *testing.T) {
	r := newRig(t)
	p := r.payloads("payload")
	id := r.open("timeout")
	script := strings.Join(p.argv("payload"), " ") + " & trap '' TERM; " + strings.Join(p.argv("E09"), " ") + "; sleep 600"
	r.run("exec", "--timeout", "2s", "--kill-after", "1s", id, "--", "/bin/sh", "-c", script).must(t, 124, "exec --timeout")
	p.stopped()
	if i := r.inspect(id); i.Processes != 0 {
		t.Errorf("%d processes are left", i.Processes)
	}
	r.closed(id, graceFlags()...)
}

// TestHiddenAmongHelpers: a member that moves to the leaf of our own processes is
// neither overlooked by kill nor by wait; nor, where there is no such leaf, is one that has
// the name and the arguments of a keeper of another session.
func TestHiddenAmongHelpers(t *testing.T) {
	r := newRig(t)
	p := r.payloads("payload")
	id := r.open("hidden")
	r.exec(id, "true").must(t, 0, "exec") // starts the anchor
	script := `d=$(sed -n 's/^0:://p' /proc/self/cgroup); m=$(awk '$9 == "cgroup2" || $10 == "cgroup2" {print $5; exit}' /proc/self/mountinfo)
		echo $$ > "$m${d%/*}/anchor/cgroup.procs" && exec ` + strings.Join(p.argv("payload"), " ")
	if r.box == "lineage" { // bash takes the first of the arguments for its script
		script = "cd " + r.home + ` && cp "$(command -v bash)" sessionbox && echo 'while :; do sleep 0.1; done' >__keeper &&
			{ setsid ./sessionbox __keeper keeper ` + r.open("other") + " task-1 3 & exec sleep 600; }"
	}
	r.detach(id, "/bin/sh", "-c", script)
	hidden := func() []ident { return livingIn(p.dir) }
	if r.box == "lineage" {
		hidden = func() []ident {
			return slices.DeleteFunc(everybody(), func(id ident) bool {
				exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", id.pid))
				return err != nil || exe != filepath.Join(r.home, "sessionbox") || !id.alive()
			})
		}
	}
	eventually(t, "the one that hides", func() bool { return len(hidden()) == 1 })
	if o := r.run("wait", id, "--for", "empty", "--timeout", "500ms"); o.code != 124 {
		t.Errorf("wait --for empty: exit code %d, want 124", o.code)
	}
	r.run("kill", id).must(t, 0, "kill")
	if left := hidden(); len(left) > 0 {
		t.Errorf("%v outlived the kill", left)
	}
	p.stopped()
	r.detach(id, "/bin/sh", "-c", script)
	eventually(t, "another that hides", func() bool { return len(hidden()) == 1 })
	r.closed(id, graceFlags()...)
	if left := hidden(); len(left) > 0 {
		t.Errorf("%v outlived the close", left)
	}
	p.stopped()
}

// TestForeignNotifySocket: a harness that is itself a service with a socket to its
// manager does not confuse the processes that stay in the box.
func TestForeignNotifySocket(t *testing.T) {
	r := newRig(t)
	r.env = append(r.env, "NOTIFY_SOCKET="+filepath.Join(r.home, "notify"))
	id := r.open("notified")
	r.exec(id, "true").must(t, 0, "exec")
	r.closed(id, graceFlags()...)
}

// TestClosersFromInside: several members close the session at once. None ends the
// other, each is told how it went.
func TestClosersFromInside(t *testing.T) {
	r := newRig(t)
	p := r.payloads("payload")
	id := r.open("closers")
	r.detach(id, p.argv("payload")...)
	p.await(1)
	var all []*running
	for range 3 {
		all = append(all, r.start(bin(), "exec", id, "--", bin(), "close", "--grace", "200ms", id))
	}
	for _, c := range all {
		c.wait() // killed with the session, or told of it
	}
	p.stopped()
	var receipts []session.Receipt
	if err := json.Unmarshal(r.run("history", "--json").must(t, 0, "history").stdout, &receipts); err != nil {
		t.Fatal(err)
	}
	for _, receipt := range receipts {
		if len(receipt.Strays) > 0 {
			t.Errorf("a closer was taken for a stray: %+v", receipt.Strays)
		}
	}
	if _, ok := r.listed(id); ok {
		t.Error("the session is still listed")
	}
}

// TestHopper: a stray that forks faster than it can be found is not called closed.
func TestHopper(t *testing.T) {
	r := newRig(t)
	out := outCgroup(t)
	p := r.payloads("hopper")
	id := r.open("hopper")
	script := "echo $$ > " + out + "/cgroup.procs && exec " + strings.Join(p.argv("E14"), " ")
	r.detach(id, "/bin/sh", "-c", script)
	eventually(t, "the hopper", func() bool { return ticksIn(p.dir) > 0 || len(recordedIn(p.dir)) > 0 })
	for range 20 {
		o := r.run("close", "--now", "--json", id)
		receipt, err := decodeReceipt(o.stdout)
		if err != nil {
			t.Fatalf("close: %v\n%s%s", err, o.stdout, o.stderr)
		}
		if o.code == 0 {
			if n := len(livingIn(p.dir)); n > 0 {
				t.Fatalf("close returned 0 with %d alive: %+v", n, receipt)
			}
			return
		}
		if len(receipt.Survivors) == 0 {
			t.Fatalf("exit code %d without a survivor: %+v", o.code, receipt)
		}
	}
	t.Log("it was never caught, and never called closed")
	r.endOutside(out)
	r.closed(id)
}

// endOutside ends what is in the cgroup outside of the boxes but for the suite's own.
func (r *rig) endOutside(dir string) {
	r.t.Helper()
	for _, pid := range members(dir) {
		if id, err := identify(pid); err == nil && pid != os.Getpid() && carriesCookie(pid) {
			_ = id.kill()
		}
	}
}

func carriesCookie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && strings.Contains(string(b), session.EnvCookie+"=")
}
