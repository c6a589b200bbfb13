package integration_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// TestKeep: a task that is kept, with all it started and while it forks, is in one of
// two boxes at any time, outlives its session and ends with its own.
func TestKeep(t *testing.T) {
	r := newRig(t)
	for _, what := range []string{"payload", "E05", "E06", "E09", "E12"} {
		t.Run(what, func(t *testing.T) {
			p, other := r.payloads("kept-"+what), r.payloads("other-"+what)
			id := r.open("work", "--grace", "1s")
			r.detach(id, p.argv(what)...)
			r.detach(id, other.argv("payload")...)
			p.await(1)
			other.await(1)
			kept := r.run("keep", "work/1").must(t, 0, "keep").text()
			if kept != "work.kept-1/1" {
				t.Errorf("kept as %q", kept)
			}
			if got := r.inspect(id); len(got.Tasks) != 1 || got.Tasks[0].N != 2 {
				t.Errorf("the session has the tasks %+v", got.Tasks)
			}
			name, _, _ := strings.Cut(kept, "/")
			if got := r.inspect(name); got.Processes == 0 || len(got.KeptFrom) != 1 || got.KeptFrom[0] != id || got.Owner != nil {
				t.Errorf("kept: %d processes, from %v, owner %v", got.Processes, got.KeptFrom, got.Owner)
			}
			r.run("kill", "work/1").must(t, 3, "kill what was kept")
			r.closed(id)
			p.ticking()
			other.stopped()
			r.closed(name, "--now")
			p.stopped()
		})
	}
}

// TestKeepForking keeps a process that forks and ends all the time (E14 hops to a new
// pid every 2 ms), and breaks the move off.
func TestKeepForking(t *testing.T) {
	r := newRig(t)
	r.technique("E14").need(t)
	p := r.payloads("payload")
	id := r.open("work", "--pids-max", "200")
	r.detach(id, p.argv("E14")...)
	p.await(1)
	for range 5 {
		k := r.start(bin(), "keep", "work/1")
		time.Sleep(somewhere(15 * time.Millisecond))
		k.die()
	}
	o := r.run("keep", "work/1")
	if o.code != 0 && o.code != 3 { // the one that was killed may have been through
		t.Errorf("keep: exit code %d: %s", o.code, o.stderr)
	}
	if got := r.inspect(id); got.Processes != 0 {
		t.Errorf("%d processes are left in the session", got.Processes)
	}
	r.closed(id, "--now")
	eventually(t, "the one that hops to be kept, alone", func() bool { // it is two while it does
		kept := 0
		for _, i := range r.list() {
			kept += i.Processes
		}
		return kept == 1
	})
	r.sweep("at the end")
	p.stopped()
	r.nothing("at the end")
}

// TestExecKeep: a command that is to be kept from the start.
func TestExecKeep(t *testing.T) {
	r := newRig(t)
	p := r.payloads("payload")
	id := r.open("work")
	ref := r.run(append([]string{"exec", "-d", "--keep", id, "--"}, p.argv("payload")...)...).must(t, 0, "exec -d --keep").text()
	if ref != "work.kept-1/1" {
		t.Errorf("it runs as %q", ref)
	}
	p.await(1)
	if o := r.run("exec", "--keep", id, "--", "sh", "-c", "echo out; exit 3"); o.code != 3 || o.text() != "out" {
		t.Errorf("exec --keep: %d, %s", o.code, o.stdout)
	}
	r.run("exec", "--keep", id, "--", "no-such-command").must(t, 127, "exec --keep of nothing")
	r.closed(id)
	p.ticking()
	r.closed("work.kept-1", graceFlags()...)
	p.stopped()
	if _, ok := r.listed("work.kept-3"); ok {
		t.Error("a session is left of the command that was not found")
	}
}

// TestKeepSupervised: whoever waits for a task that is kept meanwhile gets its status,
// also when its first session was closed before.
func TestKeepSupervised(t *testing.T) {
	r := newRig(t)
	p := r.payloads("payload")
	id := r.open("work")
	waiting := r.start(bin(), append([]string{"exec", "--timeout", "20s", id, "--"}, p.argv("payload")...)...)
	ids := p.await(1)
	kept := r.run("keep", "work/1").must(t, 0, "keep").text()
	r.closed(id)
	p.ticking()
	for member := range ids {
		if err := member.kill(); err != nil {
			t.Fatal(err)
		}
	}
	if o := waiting.wait(); o.code != 128+9 {
		t.Errorf("exec ended with %d: %s", o.code, o.stderr)
	}
	name, _, _ := strings.Cut(kept, "/")
	if s := task(t, r.inspect(name), 1); s.State != "signaled" {
		t.Errorf("the task is %s (%s)", s.State, s.Reason)
	}
	r.closed(name)
}

// TestKeepMarkInside: SESSIONBOX_KEEP=1 in the environment of a process keeps it, and what
// it starts, from ending with its session, in the box as outside of it.
func TestKeepMarkInside(t *testing.T) {
	r := newRig(t)
	need(t, "bash")
	p, q := r.payloads("marked"), r.payloads("unmarked")
	id := r.open("work", "--grace", "1s")
	script := `SESSIONBOX_KEEP=1 setsid "$@" --dir "$M" & setsid "$@" --dir "$U" & wait`
	r.detach(id, "env", "M="+p.dir, "U="+q.dir, "bash", "-c", script, "harness", escape(), "payload")
	p.await(1)
	q.await(1)
	receipt := r.closed(id)
	if len(receipt.Kept) != 1 {
		t.Errorf("the receipt names as kept %+v", receipt.Kept)
	}
	p.ticking()
	q.stopped()
	var kept session.Info
	for _, i := range r.list() {
		kept = i
	}
	if kept.Name != "work.kept-1" || kept.Processes != 1 || kept.Running != 1 {
		t.Errorf("kept as %q: %d processes, %d running", kept.Name, kept.Processes, kept.Running)
	}
	r.closed("work.kept-1", "--now")
	p.stopped()
	r.nothing("at the end")
}

// TestKeepLogged: of a detached task that is kept, who waits for it and who keeps its log
// go with it.
func TestKeepLogged(t *testing.T) {
	r := newRig(t)
	id := r.open("work")
	gate := filepath.Join(r.home, "gate")
	r.run("exec", "-d", "--log", id, "--", "sh", "-c", "echo before; until [ -e "+gate+" ]; do sleep 0.05; done; echo after; exit 7").must(t, 0, "exec -d --log")
	eventually(t, "its first words", func() bool { return strings.Contains(r.run("logs", "work/1").text(), "before") })
	ref := r.run("keep", "work/1").must(t, 0, "keep").text()
	r.closed(id)
	write(t, gate)
	if o := r.run("wait", "--timeout", "30", ref).must(t, 0, "wait"); !strings.Contains(o.text(), "7") {
		t.Errorf("wait says %q", o.text())
	}
	name, _, _ := strings.Cut(ref, "/")
	if s := task(t, r.inspect(name), 1); s.State != "failed" || s.Exit == nil || *s.Exit != 7 {
		t.Errorf("the task is %s (%s), status %v", s.State, s.Reason, s.Exit)
	}
	eventually(t, "its last words", func() bool { return r.run("logs", ref).must(t, 0, "logs").text() == "before\nafter" })
	r.closed(name)
	if got := r.run("logs", ref).must(t, 0, "logs").text(); got != "before\nafter" {
		t.Errorf("its log after the close is %q", got)
	}
}

// TestKeepInsideFrozen: what is kept of a session that lies in a frozen one would lie in
// that as well. It is said, rather than waited for.
func TestKeepInsideFrozen(t *testing.T) {
	r := newRig(t)
	parent, child, outer, inner := nested(r, "frozen")
	p := r.payloads("payload")
	r.detach(child, p.argv("payload")...)
	p.await(1)
	r.run("freeze", parent).must(t, 0, "freeze")
	r.run("keep", child+"/2").must(t, 1, "keep in a frozen session")
	r.run("exec", "--keep", child, "--", "true").must(t, 125, "exec --keep in a frozen session")
	r.run("exec", child, "--", "true").must(t, 125, "exec in a frozen session")
	r.run("thaw", parent).must(t, 0, "thaw")
	kept := r.run("keep", child+"/2").must(t, 0, "keep").text()
	r.closed(child, graceFlags()...)
	inner.stopped()
	p.ticking()
	name, _, _ := strings.Cut(kept, "/")
	r.closed(name, graceFlags()...)
	p.stopped()
	outer.ticking()
	r.closed(parent, graceFlags()...)
}

// TestHalfFrozen: a box in which somebody cannot be stopped (the parent of a vfork) is
// frozen all the same: a command that was started in it would wait for ever.
func TestHalfFrozen(t *testing.T) {
	r := newRig(t)
	r.technique("E18")
	p := r.payloads("payload")
	id := r.open("half")
	r.exec(id, p.argv("E18")...).must(t, 0, "exec")
	p.await(2)
	o := r.run("freeze", id)
	if o.code == 0 {
		t.Log("the kernel called it frozen")
	}
	if !r.inspect(id).Box.Frozen {
		t.Error("it is not shown as frozen")
	}
	r.exec(id, "true").must(t, 125, "exec in a session that is frozen by half")
	r.run("thaw", id).must(t, 0, "thaw")
	r.exec(id, "true").must(t, 0, "exec")
	r.closed(id, graceFlags()...)
	p.stopped()
}

// TestKeepMarkNested: who carries the mark in a session inside another outlives that one,
// too: the session it is kept in lies beside the outermost one that is closed.
func TestKeepMarkNested(t *testing.T) {
	for _, shims := range []string{"false", "true"} { // with them, the inner one is closed last
		t.Run("shims="+shims, func(t *testing.T) {
			r := newRig(t)
			r.env = append(r.env, "SESSIONBOX_SHIMS="+shims)
			parent, child, outer, inner := nested(r, "marks")
			p := r.payloads("marked")
			r.detach(child, append([]string{"env", "SESSIONBOX_KEEP=1"}, p.argv("payload")...)...)
			p.await(1)
			if got := r.inspect(child).Shims; fmt.Sprint(got) != shims {
				t.Fatalf("shims: %t", got)
			}
			r.closed(parent, graceFlags()...)
			outer.stopped()
			inner.stopped()
			p.ticking()
			kept, ok := r.listed("marks-child.kept-1")
			if !ok || kept.Parent != "" || kept.Processes != 1 || len(kept.KeptFrom) != 1 || kept.KeptFrom[0] != child {
				t.Errorf("kept in %+v", kept)
			}
			r.closed("marks-child.kept-1", "--now")
			p.stopped()
			r.nothing("at the end")
		})
	}
}

// TestKeepCrashes: a keep that is killed at any moment leaves the task in one of the two
// sessions, and no session for nothing.
func TestKeepCrashes(t *testing.T) {
	r := newRig(t)
	for n := range moments() {
		p := r.payloads(fmt.Sprintf("p%d", n))
		id := r.open("work")
		r.exec(id, p.argv("E05")...).must(t, 0, "exec")
		p.await(1)
		what := []string{"keep", "work/1"}
		if n%2 == 1 {
			what = []string{"exec", "--keep", "-d", "work", "--", "true"}
		}
		k := r.start(bin(), what...)
		time.Sleep(somewhere(25 * time.Millisecond))
		k.die()
		if len(livingIn(p.dir)) != 1 {
			t.Fatalf("moment %d: the task was ended by a keep that was killed", n)
		}
		// A command that is on its way comes, or nothing stays of it.
		eventually(t, fmt.Sprintf("moment %d: every session to have a task", n), func() bool {
			for id, s := range r.reconcile() {
				if s.Error != "" {
					t.Errorf("moment %d: %s: %s", n, id, s.Error)
				}
			}
			return !slices.ContainsFunc(r.list(), func(i session.Info) bool { return len(i.KeptFrom) > 0 && len(i.Tasks) == 0 })
		})
		r.sweep("after it")
		if left := len(livingIn(p.dir)); left > 0 {
			t.Errorf("moment %d: %d payloads live after all was closed", n, left)
		}
		if t.Failed() {
			return
		}
	}
	r.nothing("at the end")
}

// TestKeepMarkHopper: one that asks to be kept and gets a new pid faster than it can be
// moved holds up no close. It is kept or it ends.
func TestKeepMarkHopper(t *testing.T) {
	r := newRig(t)
	r.technique("E14").need(t)
	p := r.payloads("payload")
	id := r.open("work", "--pids-max", "200")
	r.exec(id, append([]string{"env", session.EnvKeep + "=1"}, p.argv("E14")...)...).must(t, 0, "exec")
	p.await(1)
	r.closed(id, "--now")
	if _, ok := r.listed(id); ok {
		t.Error("it is still listed")
	}
	r.sweep("at the end")
	p.stopped()
	r.nothing("at the end")
}

// TestKeepMarkCrashes kills a close while it moves who asks to be kept: the next close
// goes on, a marked process lives in a session that is listed, and nothing leaks.
func TestKeepMarkCrashes(t *testing.T) {
	r := newRig(t)
	for n := range moments() {
		p, q := r.payloads("marked-"+tag()), r.payloads("unmarked-"+tag())
		id := r.open("work", "--grace", "0.05")
		r.detach(id, append([]string{"env", session.EnvKeep + "=1"}, p.argv("payload")...)...)
		r.detach(id, q.argv("payload")...)
		p.await(1)
		q.await(1)
		c := r.start(bin(), "close", id)
		after := somewhere(60 * time.Millisecond)
		time.Sleep(after) // the moment is what varies
		c.die()
		r.run("close", id).must(t, 0, "close again")
		if living := livingIn(q.dir); len(living) > 0 {
			t.Errorf("moment %d, close killed after %v: unmarked %v lives", n, after, living)
		}
		if living := livingIn(p.dir); len(living) != 1 {
			t.Errorf("moment %d, close killed after %v: of the marked %v lives", n, after, living)
		}
		// Our helper in the new session has, for a moment, the arguments of who starts it.
		eventually(t, "the marked process alone in listed sessions", func() bool {
			held := 0
			for _, i := range r.list() {
				held += i.Processes
			}
			return held == 1
		})
		r.sweep("after a crash")
	}
	r.nothing("at the end")
}

// TestKeepMarkFrozenAround: who is to be kept of a session that lies in a frozen one is kept
// there, standing still, where a box can be made without starting anything; a manager would
// wait for what it starts, and the close says that it could not be kept.
func TestKeepMarkFrozenAround(t *testing.T) {
	r := newRig(t)
	parent, child, outer, inner := nested(r, "frozen")
	p := r.payloads("marked")
	r.detach(child, append([]string{"env", session.EnvKeep + "=1"}, p.argv("payload")...)...)
	p.await(1)
	r.run("freeze", parent).must(t, 0, "freeze")
	receipt := r.closed(child, "--now")
	inner.stopped()
	told := slices.ContainsFunc(receipt.Notes, func(n string) bool {
		return strings.Contains(n, "could not all be") && strings.Contains(n, "is frozen")
	})
	if manager := r.box == "systemd"; told != manager || len(receipt.Kept) == 0 != manager {
		t.Errorf("the notes are %q, kept was %+v", receipt.Notes, receipt.Kept)
	}
	r.run("thaw", parent).must(t, 0, "thaw")
	outer.ticking()
	if len(receipt.Kept) > 0 {
		p.ticking()
	}
	r.closed(parent, graceFlags()...)
	p.stopped()
	r.nothing("at the end")
}

// TestKeepMarkContainer: what is in the cgroup of an engine's container is ended by the engine,
// wherever it is moved. It is not told to be kept.
func TestKeepMarkContainer(t *testing.T) {
	r := newRig(t)
	p := r.payloads("marked")
	id := r.open("work", graceFlags()...)
	dir := filepath.Join(r.inspect(id).Box.Path, "docker-"+strings.Repeat("0123456789abcdef", 4)+".scope")
	script := `mkdir "$D" && echo $$ >"$D/cgroup.procs" && exec "$@"`
	r.detach(id, append([]string{"env", session.EnvKeep + "=1", "D=" + dir, "sh", "-c", script, "engine"}, p.argv("payload")...)...)
	p.await(1)
	receipt := r.closed(id)
	p.stopped()
	if len(receipt.Kept) > 0 {
		t.Errorf("the receipt says that %+v was kept", receipt.Kept)
	}
	r.nothing("at the end")
}
