package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestPidReuse is H1: the record's pid belongs to a stranger by now. Neither a kill of
// the task nor a close may touch it, and nothing may call it alive as the task.
func TestPidReuse(t *testing.T) {
	for name, later := range map[string]uint64{
		"older start time": 1000,
		// Not reuse but a forged record: the identity is right, the process is in no box.
		"right start time": 0,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			stranger := r.canary()
			p := r.payloads("payload")
			id := r.open("h1")
			r.detach(id, p.argv("E05")...)
			p.await(1)
			forge(t, r.taskRecord(id, 1), map[string]any{
				"pid": stranger.id.pid, "start": stranger.id.start - later, "state": "running",
				"supervisor": map[string]any{"pid": stranger.id.pid, "start": stranger.id.start - later},
			})
			if s := task(t, r.inspect(id), 1).State; later != 0 && s == "running" {
				t.Errorf("task 1 is called %s by a pid that another process has", s)
			}
			r.run("kill", id+"/1")
			stranger.lives()
			receipt := r.closed(id, "--now")
			stranger.lives()
			if box, stray := names(receipt, stranger.id); box || stray {
				t.Errorf("the receipt names the stranger %v", stranger.id)
			}
			p.stopped()
		})
	}
}

// TestImpossiblePids is H4: 0, -1, 1 and nonsense in a record. As an argument of kill
// they reach a group, everybody, or init.
func TestImpossiblePids(t *testing.T) {
	for _, pid := range []any{0, -1, 1, 2, 1 << 31, -1 << 31, "", "-1", 1.5, nil, os.Getpid()} {
		t.Run(fmt.Sprintf("%T %v", pid, pid), func(t *testing.T) {
			r := newRig(t)
			c := r.canary()
			p := r.payloads("payload")
			id := r.open("h4")
			r.detach(id, p.argv("payload")...)
			p.await(1)
			forge(t, r.taskRecord(id, 1), map[string]any{"pid": pid, "start": 1, "state": "running"})
			forge(t, r.sessionRecord(id), map[string]any{"creator": map[string]any{"pid": pid, "start": 1}})
			r.run("kill", id+"/1")
			c.lives()
			r.closed(id, "--now")
			p.stopped()
		})
	}
}

// TestGroupReuse is H2: the command was reaped, and a group with its number has a
// stranger as its only member: out of the box, without the cookie.
func TestGroupReuse(t *testing.T) {
	r := newRig(t)
	if r.box == "lineage" {
		t.Skip("a descendant that was seen is the lineage box's, whatever it scrubbed")
	}
	out := outCgroup(t)
	stranger := r.payloads("stranger")
	id := r.open("h2")
	r.exec(id, stranger.argv("group-survivor", "--out-cgroup", out)...).must(t, 0, "exec")
	ids := stranger.await(1)
	r.run("kill", id+"/1")
	r.closed(id, graceFlags()...)
	for s := range ids {
		if !s.alive() {
			t.Errorf("the stranger %v in the group of a dead command was killed", s)
		}
	}
	stranger.ticking()
}

// TestOwnGroup is H3: the canary is in the process group of the command under test
// itself. A kill of "the group" of a child that has not left it yet would take both.
func TestOwnGroup(t *testing.T) {
	r := newRig(t)
	c := r.canaryWith("canary", syscall.SysProcAttr{Setpgid: true}, escape())
	inGroup := syscall.SysProcAttr{Setpgid: true, Pgid: c.id.pid}
	p := r.payloads("payload")
	id := r.open("h3")
	for i, tech := range []string{"E01", "E07", "E10"} {
		run := r.startWith(inGroup, nil, bin(), append([]string{"exec", id, "--"}, p.argv(tech)...)...)
		run.wait()
		p.await(i + 1)
		r.startWith(inGroup, nil, bin(), "kill", fmt.Sprintf("%s/%d", id, i+1)).wait()
		c.lives()
	}
	r.startWith(inGroup, nil, bin(), "close", "--grace", "1s", id).wait().must(t, 0, "close")
	c.lives()
	p.stopped()
}

// TestNoMatchByName is H6: strangers whose name and arguments are those of what runs
// in the session, the session's name among them.
func TestNoMatchByName(t *testing.T) {
	r := newRig(t)
	node := filepath.Join(r.home, "node")
	if err := os.Symlink(escape(), node); err != nil {
		t.Fatal(err)
	}
	sameName := r.canaryWith("canary", syscall.SysProcAttr{}, node, "--arg", "h6")
	p := r.payloads("payload")
	id := r.open("h6")
	sameID := r.canaryWith("canary", syscall.SysProcAttr{}, node, "--arg", id)
	r.detach("h6", append([]string{node}, p.argv("payload", "--arg", "h6")[1:]...)...)
	p.await(1)
	r.closed("h6", graceFlags()...)
	p.stopped()
	sameName.lives()
	sameID.lives()
}

// TestClientOfPort is H7: a stranger connected to a port of the session has that port
// in use as much as its listener. The browser tab is not the server.
func TestClientOfPort(t *testing.T) {
	r := newRig(t)
	p := r.payloads("server")
	id := r.open("h7")
	r.detach(id, p.argv("port-server")...)
	p.await(1)
	client := r.canaryWith("port-client", syscall.SysProcAttr{}, escape(), "--arg", filepath.Join(p.dir, "addr"))
	r.closed(id, graceFlags()...)
	p.stopped()
	client.lives()
	eventually(t, "free port", func() bool {
		l, err := listenOn(filepath.Join(p.dir, "addr"))
		if err == nil {
			l.Close()
		}
		return err == nil
	})
}

// TestNoForeignTools is H5: kill(1), ps and their like on PATH lie, or do worse. The
// command must not run them.
func TestNoForeignTools(t *testing.T) {
	r := newRig(t)
	tools, used := filepath.Join(r.home, "tools"), filepath.Join(r.home, "used")
	if err := os.Mkdir(tools, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kill", "pkill", "killall", "ps", "pgrep", "lsof", "fuser", "ss", "systemctl", "sh"} {
		script := "#!/bin/sh\necho " + name + " >> " + used + "\nexit 0\n"
		if err := os.WriteFile(filepath.Join(tools, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r.env = append(r.env, "PATH="+tools)
	p := r.payloads("payload")
	id := r.open("h5")
	r.detach(id, p.argv("E09")...)
	p.await(1)
	r.run("ls", "--json").must(t, 0, "ls")
	r.run("inspect", id).must(t, 0, "inspect")
	r.closed(id, graceFlags()...)
	p.stopped()
	if b, err := os.ReadFile(used); err == nil {
		t.Errorf("it ran %q", b)
	}
}

// TestOrphanIsNoOwnership is H14: pid 1 as parent says nothing. The canary is a daemon
// that was started outside of the session.
func TestOrphanIsNoOwnership(t *testing.T) {
	r := newRig(t)
	p := r.payloads("orphan")
	r.start(escape(), p.argv("E06")[1:]...).wait().must(t, 0, "start a daemon")
	ids := p.await(1)
	in := r.payloads("payload")
	id := r.open("h14")
	r.exec(id, in.argv("E06")...).must(t, 0, "exec")
	in.await(1)
	r.closed(id, graceFlags()...)
	in.stopped()
	for o := range ids {
		if !o.alive() {
			t.Errorf("the daemon %v of somebody else was killed", o)
		}
	}
	p.ticking()
}

// TestStarterEnds is H13: whoever started a task ends, thread or process. A task that
// was detached goes on.
func TestStarterEnds(t *testing.T) {
	r := newRig(t)
	p := r.payloads("payload")
	id := r.open("h13")
	r.detach(id, p.argv("payload")...)
	p.await(1)
	time.Sleep(2 * time.Second)
	p.ticking()
	if s := task(t, r.inspect(id), 1).State; s != "running" {
		t.Errorf("a detached task that runs is called %s", s)
	}
	r.closed(id, graceFlags()...)
	p.stopped()
}
