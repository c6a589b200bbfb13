package integration_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sessionbox/sessionbox/integration/hosts"
)

// ownGroup starts a program as the leader of a process group.
func ownGroup() syscall.SysProcAttr { return syscall.SysProcAttr{Setpgid: true} }

// killGroup kills the process group that the program leads. It has not been waited
// for, so its number is nobody else's.
func (p *running) killGroup() error { return syscall.Kill(-p.id.pid, syscall.SIGKILL) }

// smallState has the rig keep its records in a file system with this limit.
func (r *rig) smallState(limit string) (dir string) {
	r.t.Helper()
	if os.Geteuid() != 0 {
		r.t.Skip("needs root to mount a small file system")
	}
	dir = filepath.Join(r.home, "small")
	if err := os.Mkdir(dir, 0o700); err != nil {
		r.t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, limit+",mode=0700"); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			r.t.Error(err)
		}
	})
	r.env = append(r.env, "SESSIONBOX_STATE_DIR="+dir)
	return dir
}

// TestStateFull: with no room for records nothing new starts, and closing works.
func TestStateFull(t *testing.T) {
	r := newRig(t)
	state := r.smallState("size=256k")
	p, owned := r.payloads("payload"), r.payloads("owned")
	id := r.open("full")
	r.exec(id, p.argv("E05")...).must(t, 0, "exec")
	owner := r.owner()
	ownedID := r.open("owned", "--owner-pid", owner.pid(), "--grace", "0.2")
	r.exec(ownedID, owned.argv("E05")...).must(t, 0, "exec")
	p.await(1)
	owned.await(1)
	fill(t, filepath.Join(state, "filler"))

	if o := r.exec(id, "true"); o.code != 125 {
		t.Errorf("exec with a full state directory: exit code %d, want 125: %s", o.code, o.stderr)
	}
	if o := r.run("open", "--name", "more", "--backend", r.box); o.code == 0 {
		t.Error("open with a full state directory succeeded")
	}
	r.closed(id, graceFlags()...)
	p.stopped()
	fill(t, filepath.Join(state, "filler-2"))
	// A close by policy, too: the owner is gone.
	owner.die()
	if got := r.reconcile()[ownedID]; got.Action != "ended" {
		t.Errorf("the session of a dead owner: %s (%s) %s", got.Action, got.Reason, got.Error)
	}
	owned.stopped()
	if err := os.Remove(filepath.Join(state, "filler")); err != nil {
		t.Fatal(err)
	}
	if left := r.list(); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
}

// fill writes until there is no room.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 4096; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
}

// TestLeakedDescriptor: a harness that leaks a descriptor into sessionbox does not
// find it held by the processes that stay in the box.
func TestLeakedDescriptor(t *testing.T) {
	r := newRig(t)
	id := r.open("leaky")
	lock := filepath.Join(r.home, "lock")
	for _, how := range []string{"exec", "exec -d"} {
		script := fmt.Sprintf("exec 9>%s; flock -n 9 || exit 9; %s %s %s -- true", lock, bin(), how, id)
		r.start("/bin/sh", "-c", script).wait().must(t, 0, how+" with a leaked descriptor")
		eventually(t, "end of the hold on the descriptor after "+how, func() bool {
			return r.start("flock", "-n", lock, "true").wait().code == 0
		})
	}
	r.closed(id, graceFlags()...)
}

// TestBusGone: with the bus away after open, commands start where no manager is
// needed to place them, and closing ends everything.
func TestBusGone(t *testing.T) {
	r := newRig(t)
	if r.box != "systemd" {
		t.Skip("no manager makes the boxes here")
	}
	p := r.payloads("payload")
	id := r.open("busless")
	r.exec(id, p.argv("E05")...).must(t, 0, "exec")
	p.await(1)

	show := hideBus(t)
	receipt := r.closed(id, graceFlags()...)
	if len(receipt.Processes) != 1 {
		t.Errorf("the receipt names %d processes, want 1", len(receipt.Processes))
	}
	p.stopped()
	show()
	// What only the manager could clear away goes with the next session's close.
	r.closed(r.open("after"), graceFlags()...)
	r.nothing("with the bus back")
}

// hideBus takes every way to a manager away until show is called.
func hideBus(t *testing.T) (show func()) {
	t.Helper()
	dir := fmt.Sprintf("/run/user/%d", os.Geteuid())
	sockets := []string{dir + "/systemd/private", dir + "/bus"}
	if os.Geteuid() == 0 {
		sockets = append(sockets, "/run/systemd/private", "/run/dbus/system_bus_socket")
	}
	var hidden []string
	for _, s := range sockets {
		if err := os.Rename(s, s+".hidden"); err == nil {
			hidden = append(hidden, s)
		} else if !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	show = func() {
		for _, s := range hidden {
			if err := os.Rename(s+".hidden", s); err != nil {
				t.Error(err)
			}
		}
		hidden = nil
	}
	t.Cleanup(show)
	return show
}

// TestManagerReexec: the manager replaces itself while a session runs.
func TestManagerReexec(t *testing.T) {
	r := newRig(t)
	if r.box != "systemd" {
		t.Skip("no manager makes the boxes here")
	}
	p := r.payloads("payload")
	id := r.open("reexec")
	r.exec(id, p.argv("E05")...).must(t, 0, "exec")
	p.await(1)
	args := []string{"daemon-reexec"}
	if os.Geteuid() != 0 {
		args = append([]string{"--user"}, args...)
	}
	r.start("systemctl", args...).wait().must(t, 0, "daemon-reexec")
	r.exec(id, p.argv("E05")...).must(t, 0, "exec after the manager was replaced")
	p.await(2)
	p.ticking()
	r.closed(id, graceFlags()...)
	p.stopped()
	r.nothing("afterwards")
}

// TestCloseFrozen: a frozen session is closed like any other, with and without a grace:
// its processes are thawed to hear SIGTERM, and killed frozen.
func TestCloseFrozen(t *testing.T) {
	r := newRig(t)
	for _, flags := range [][]string{{"--now"}, {"--grace", "300ms"}} {
		p := r.payloads("p-" + tag())
		id := r.open("frozen-" + tag())
		r.detach(id, p.argv("E05")...)
		p.await(1)
		r.run("freeze", id).must(t, 0, "freeze")
		if o := r.exec(id, "true"); o.code != 125 {
			t.Errorf("exec in a frozen session: exit code %d, want 125", o.code)
		}
		receipt := r.closed(id, flags...)
		for l := range recordedIn(p.dir) {
			if box, _ := names(receipt, l); !box {
				t.Errorf("close %v: the receipt does not name %v", flags, l)
			}
		}
		p.stopped()
	}
	r.nothing("afterwards")
}

// TestNoBoxHere: where the kernel holds no box, who wants one is told with exit code 5 what
// is missing and what to do, and nothing is left. Others get the lineage box, by its name.
func TestNoBoxHere(t *testing.T) {
	if os.Geteuid() != 0 || backend() != "cgroup" {
		t.Skip("needs root, to take the cgroup tree away")
	}
	r := newRig(t)
	need(t, "unshare")
	mount, err := hosts.CgroupMount()
	if err != nil {
		t.Fatal(err)
	}
	for what, script := range map[string]string{
		"no cgroup v2": "mount -t tmpfs none " + mount,
		"read-only":    "mount -o remount,bind,ro " + mount,
	} {
		for _, root := range []string{os.Getenv("SESSIONBOX_CGROUP_ROOT"), ""} {
			open := func(flags ...string) output {
				argv := append([]string{"--mount", "sh", "-c", script + ` && SESSIONBOX_CGROUP_ROOT=` + root + ` exec "$0" "$@"`, bin(), "open", "--name", "nowhere"}, flags...)
				return r.start("unshare", argv...).wait()
			}
			kernel := [][]string{{"--require", "kernel"}, {"--backend", "cgroup"}}
			if root != "" { // who names a tree wants the kernel to hold it
				kernel = append(kernel, nil)
			}
			for _, flags := range kernel {
				if o := open(flags...); o.code != 5 || !strings.Contains(string(o.stderr), "hint:") {
					t.Errorf("%s, root %q, %v: exit code %d, want 5 and a hint: %s", what, root, flags, o.code, o.stderr)
				}
			}
			if root == "" {
				open().must(t, 0, "open where the kernel holds no box")
				if i := r.inspect("nowhere"); i.Box.Kind != "lineage" || i.Box.Containment != "best effort" || len(i.Box.MayEscape) == 0 {
					t.Errorf("%s: the box is %+v", what, i.Box)
				}
				r.closed("nowhere")
			}
		}
	}
	if o := r.run("open", "--backend", "systemd"); o.code != 5 {
		t.Errorf("no manager: exit code %d, want 5: %s", o.code, o.stderr)
	}
	r.nothing("afterwards")
}
