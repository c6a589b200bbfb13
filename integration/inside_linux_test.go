package integration_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// inside is a shell in a session that first runs sessionbox with these arguments, one call
// after the other, and then lives on.
func (r *rig) inside(id string, calls ...[]string) *running {
	r.t.Helper()
	var script strings.Builder
	for _, c := range calls {
		script.WriteString(shellWords(append([]string{bin()}, c...)) + " || exit 9; ")
	}
	script.WriteString("sleep 600")
	return r.start(bin(), "exec", id, "--", "/bin/sh", "-c", script.String())
}

// TestUsedFromInside: a command of one session starts commands in another, in one that is
// kept, and in a task of its own. When its caller dies it ends, and none of those.
func TestUsedFromInside(t *testing.T) {
	r := newRig(t)
	a, b := r.open("a"), r.open("b")
	other, kept, own := r.payloads("other"), r.payloads("kept"), r.payloads("own")
	c := r.inside(a, append([]string{"exec", "-d", b, "--"}, other.argv("payload")...),
		append([]string{"exec", "-d", "--keep", a, "--"}, kept.argv("payload")...),
		append([]string{"exec", "-d", ".", "--"}, own.argv("payload")...))
	for _, p := range []payloads{other, kept, own} {
		p.await(1)
	}
	c.die()
	eventually(t, "the end of the command", func() bool { return task(t, r.inspect(a), 1).Ended != nil })
	for _, p := range []payloads{other, kept, own} {
		p.ticking()
	}
	r.closed(a, graceFlags()...)
	own.stopped()
	other.ticking()
	kept.ticking()
	r.closed("a.kept-1", graceFlags()...)
	kept.stopped()
	r.closed(b, graceFlags()...)
	other.stopped()
}

// TestCloseSparesUsed: who is closed had started commands in another session. They go on, as
// do those who wait for them and who keep their output.
func TestCloseSparesUsed(t *testing.T) {
	for _, flags := range [][]string{{"--now"}, graceFlags()} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			r := newRig(t)
			a, b := r.open("a"), r.open("b")
			p, q := r.payloads("plain"), r.payloads("logged")
			c := r.inside(a, append([]string{"exec", "-d", b, "--"}, p.argv("payload")...),
				append([]string{"exec", "-d", "--log", b, "--"}, q.argv("payload", "--noisy")...))
			p.await(1)
			q.await(1)
			if receipt := r.closed(a, flags...); len(receipt.Strays) > 0 {
				t.Errorf("strays: %+v", receipt.Strays)
			}
			c.wait()
			p.ticking()
			q.ticking()
			for n := 1; n <= 2; n++ {
				if k := task(t, r.inspect(b), n); k.State != "running" {
					t.Errorf("task %d is %s (%s)", n, k.State, k.Reason)
				}
			}
			r.closed(b, graceFlags()...)
			p.stopped()
			q.stopped()
		})
	}
}

// TestKillTaskInside: a task that another task of its session started is one of its own: a
// kill, or the end of its time, ends it and not the other, and the other way round.
func TestKillTaskInside(t *testing.T) {
	r := newRig(t)
	id := r.open("a")
	first, second := r.payloads("first"), r.payloads("second")
	c := r.inside(id, append([]string{"exec", "-d", ".", "--"}, first.argv("payload")...),
		append([]string{"exec", "-d", ".", "--"}, second.argv("payload")...))
	first.await(1)
	second.await(1)
	r.run("kill", id+"/2").must(t, 0, "kill of the first that was started inside")
	first.stopped()
	second.ticking()
	if k := task(t, r.inspect(id), 1); k.State != "running" {
		t.Errorf("task 1 is %s (%s)", k.State, k.Reason)
	}
	r.run("kill", id+"/1").must(t, 0, "kill of the one that started it")
	c.wait()
	second.ticking()
	if k := task(t, r.inspect(id), 3); k.State != "running" {
		t.Errorf("task 3 is %s (%s)", k.State, k.Reason)
	}
	late := r.payloads("late")
	script := shellWords(append([]string{bin(), "exec", "--timeout", "1s", "--kill-after", "1s", ".", "--"}, late.argv("payload")...)) + "; test $? = 124"
	r.exec(id, "/bin/sh", "-c", script).must(t, 0, "a time limit inside")
	late.stopped()
	r.closed(id, graceFlags()...)
	second.stopped()
}

// TestKeptTwo: of two that are kept with their marks one ends; the other ends with its session.
func TestKeptTwo(t *testing.T) {
	r := newRig(t)
	id := r.open("work")
	p, q := r.payloads("one"), r.payloads("two")
	script := "SESSIONBOX_KEEP=1 setsid " + shellWords(p.argv("payload")) + " & SESSIONBOX_KEEP=1 setsid " + shellWords(q.argv("payload")) + " & exit 0"
	r.exec(id, "/bin/sh", "-c", script).must(t, 0, "exec")
	p.await(1)
	q.await(1)
	r.closed(id, "--now")
	for _, one := range livingIn(p.dir) {
		if err := one.kill(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "one of two", func() bool { i := r.inspect("work.kept-1"); return i.Processes == 1 })
	q.ticking()
	r.closed("work.kept-1", "--now")
	q.stopped()
	p.stopped()
}

// TestKeptDaemonizes: what a process that was kept by its mark starts after that, and lets go
// of, is the kept session's, also with nothing of ours in its environment, and also if the
// close that kept it was broken off and another one has ended the rest.
func TestKeptDaemonizes(t *testing.T) {
	for _, broken := range []bool{false, true} {
		t.Run(fmt.Sprintf("broken off %t", broken), func(t *testing.T) {
			r := newRig(t)
			need(t, "bash", "setsid")
			id := r.open("work")
			p, q, deaf := r.payloads("kept"), r.payloads("daemon"), r.payloads("deaf")
			dir := t.TempDir()
			ready, now := filepath.Join(dir, "ready"), filepath.Join(dir, "now")
			script := "echo $$ >" + ready + "; until [ -e " + now + " ]; do sleep 0.1; done; (env -i setsid " + shellWords(q.argv("payload")) + " &); exec " + shellWords(p.argv("payload"))
			r.exec(id, "/bin/bash", "-c", "SESSIONBOX_KEEP=1 setsid bash -c "+shellWords([]string{script})+" & exit 0").must(t, 0, "exec")
			kept := 0
			eventually(t, "it runs, marked", func() bool {
				b, _ := os.ReadFile(ready)
				kept, _ = strconv.Atoi(strings.TrimSpace(string(b)))
				return kept > 0
			})
			if broken {
				r.detach(id, "/bin/bash", "-c", "trap '' TERM; while :; do "+shellWords(deaf.argv("payload"))+"; done")
				deaf.await(1)
				c := r.start(bin(), "close", "--grace", "600s", id)
				who, err := identify(kept)
				if err != nil {
					t.Fatal(err)
				}
				eventually(t, "it is kept", func() bool {
					i, ok := r.listed("work.kept-1")
					return ok && r.inBox(who, i.ID)
				})
				c.die()
			}
			r.closed(id, "--now")
			deaf.stopped()
			if err := os.WriteFile(now, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			p.await(1)
			q.await(1)
			eventually(t, "both in the session that keeps them", func() bool { return r.inspect("work.kept-1").Processes == 2 })
			r.closed("work.kept-1", "--now")
			p.stopped()
			q.stopped()
			r.nothing("at the end")
		})
	}
}

// TestKeptGoesOn: what a kept process starts and lets go of while its first session is closed
// ends with neither, and is not left stopped.
func TestKeptGoesOn(t *testing.T) {
	r := newRig(t)
	need(t, "bash")
	dir := t.TempDir()
	count := func(name string) int {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return strings.Count(string(b), "x")
	}
	script := "cd " + dir + "; until [ -e stop ]; do ( ( sleep 0.4; echo -n x >>done ) & ); echo -n x >>started; sleep 0.03; done; : >stopped; sleep 600"
	for n := range 5 {
		name := fmt.Sprintf("work%d", n)
		id := r.open(name)
		r.detach(id, "env", session.EnvKeep+"=1", "bash", "-c", script)
		before := count("started")
		eventually(t, "it starts daemons", func() bool { return count("started") > before+20 })
		r.closed(id, "--now")
		if err := os.WriteFile(filepath.Join(dir, "stop"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		eventually(t, "its end", func() bool { _, err := os.Stat(filepath.Join(dir, "stopped")); return err == nil })
		started := count("started")
		eventually(t, fmt.Sprintf("all %d have done it", started), func() bool { return count("done") == started })
		for _, f := range []string{"stop", "stopped"} {
			if err := os.Remove(filepath.Join(dir, f)); err != nil {
				t.Fatal(err)
			}
		}
		r.closed(name+".kept-1", "--now")
	}
	r.nothing("at the end")
}

// TestGuardInside: a guard that is started on demand by a command in a session does not end
// with that session.
func TestGuardInside(t *testing.T) {
	r := newRig(t)
	r.guarded()
	id := r.open("a")
	r.exec(id, bin(), "open", "--name", "b", "--no-parent", "--backend", r.box, "--lease", "1h").must(t, 0, "open from inside")
	var before ident
	eventually(t, "a guard", func() (ok bool) { before, ok = r.guard(); return ok })
	if i := r.inspect(id); i.Processes != 0 {
		t.Errorf("%d processes are in the session: %+v", i.Processes, i.Tasks)
	}
	receipt := r.closed(id, "--now")
	if len(receipt.Processes) > 0 {
		t.Errorf("ended: %+v", receipt.Processes)
	}
	if now, ok := r.guard(); !ok || now != before {
		t.Errorf("the guard is %v, was %v", now, before)
	}
	r.closed("b", "--now")
	r.endGuard()
}

// TestKeptOutOfFrozen: what is kept out of a frozen session runs, whichever way it is kept.
func TestKeptOutOfFrozen(t *testing.T) {
	r := newRig(t)
	id := r.open("work")
	p, q := r.payloads("task"), r.payloads("marked")
	r.detach(id, p.argv("payload")...)
	r.detach(id, append([]string{"env", session.EnvKeep + "=1"}, q.argv("payload")...)...)
	p.await(1)
	q.await(1)
	r.run("freeze", id).must(t, 0, "freeze")
	if o := r.run("keep", id+"/1"); o.code != 0 && r.box == "lineage" {
		t.Errorf("keep: %d: %s", o.code, o.stderr)
	} else if o.code == 0 {
		p.ticking()
	}
	r.closed(id, "--now")
	q.ticking()
	r.run("close", "--all", "--now").must(t, 0, "close --all")
	p.stopped()
	q.stopped()
}
