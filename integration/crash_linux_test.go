package integration_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// moments is at how many random moments each verb is killed.
func moments() int {
	if tierName() == "vm" {
		return 5
	}
	return 50
}

// somewhere is a random moment of an operation that takes about so long.
func somewhere(took time.Duration) time.Duration {
	return time.Duration(rand.Int64N(int64(took) + 1))
}

// nothing asserts that no box, record, name or temporary file is left of any session
// of the rig.
func (r *rig) nothing(when string) {
	r.t.Helper()
	for _, i := range r.list() {
		r.t.Errorf("%s: session %s (%s, %s) is still listed: %v", when, i.ID, i.Name, i.State, i.Problems)
	}
	state := filepath.Join(r.home, "state")
	err := filepath.WalkDir(state, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(state, path)
		switch {
		case rel == ".", rel == "sessions", rel == "names", rel == "names.lock", strings.HasPrefix(rel, "turn") && strings.HasSuffix(rel, ".lock"), rel == "guard.lock", rel == "lineage":
		case strings.HasPrefix(d.Name(), ".tmp-") && d.IsDir(): // of a claim that was killed: it goes when it is a minute old
			return fs.SkipDir
		case strings.HasPrefix(d.Name(), ".tmp-"):
		case rel == "history":
			return fs.SkipDir
		default:
			r.t.Errorf("%s: %s is left in the state directory", when, rel)
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.t.Errorf("%s: %v", when, err)
	}
	if root := os.Getenv("SESSIONBOX_CGROUP_ROOT"); root != "" {
		filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), "sessionbox-") {
				r.t.Errorf("%s: cgroup %s is left", when, path)
				return fs.SkipDir
			}
			return nil
		})
	}
	for _, u := range r.units() {
		r.t.Errorf("%s: unit %s is left", when, u)
	}
}

// units are the slices, scopes and services of sessions that the manager knows, none
// where no manager makes the boxes. A guard is nobody's session.
func (r *rig) units() []string {
	r.t.Helper()
	if r.box != "systemd" {
		return nil
	}
	args := []string{"list-units", "--all", "--plain", "--no-legend", "sessionbox-*"}
	if os.Geteuid() != 0 {
		args = append([]string{"--user"}, args...)
	}
	var units []string
	for line := range strings.Lines(r.start("systemctl", args...).wait().must(r.t, 0, "systemctl list-units").text()) {
		if f := strings.Fields(line); len(f) > 0 && !strings.HasPrefix(f[0], "sessionbox-guard-") {
			units = append(units, f[0])
		}
	}
	return units
}

// sweep closes everything that is listed; that must always work.
func (r *rig) sweep(when string) {
	r.t.Helper()
	if o := r.run("close", "--all", "--now"); o.code != 0 {
		r.t.Errorf("%s: close --all: exit code %d: %s", when, o.code, o.stderr)
	}
}

// TestOpenKilled: whatever open had done by the moment it was killed is found by ls
// and ended by close, and its name can be taken again.
func TestOpenKilled(t *testing.T) {
	r := newRig(t)
	r.open("warm-up")
	began := time.Now()
	r.open("measured")
	took := time.Since(began)
	r.sweep("before")
	for range moments() {
		after := somewhere(took)
		p := r.start(bin(), "open", "--name", "victim", "--backend", r.box)
		time.Sleep(after)
		if err := p.id.kill(); err != nil {
			t.Fatal(err)
		}
		p.wait()
		when := "open killed after " + after.String()
		// The name is free, or held by a session that is whole.
		if o := r.run("open", "--name", "victim", "--backend", r.box); o.code != 0 && o.code != 7 {
			t.Errorf("%s: open again: exit code %d: %s", when, o.code, o.stderr)
		}
		if o := r.exec("victim", "true"); o.code != 0 {
			t.Errorf("%s: exec in it: exit code %d: %s", when, o.code, o.stderr)
		}
		r.sweep(when)
		r.nothing(when)
		if t.Failed() {
			return
		}
	}
}

// TestExecKilled: the command of a killed exec does not go on, and the session does.
func TestExecKilled(t *testing.T) {
	r := newRig(t)
	c := r.canary()
	id := r.open("killed-exec")
	began := time.Now()
	r.exec(id, "true").must(t, 0, "exec")
	took := time.Since(began)
	for range moments() {
		after := somewhere(3 * took)
		p := r.payloads("p-" + tag())
		e := r.start(bin(), append([]string{"exec", id, "--"}, p.argv("payload")...)...)
		time.Sleep(after)
		if err := e.id.kill(); err != nil {
			t.Fatal(err)
		}
		e.wait()
		when := "exec killed after " + after.String()
		eventually(t, when+": end of its task", func() bool {
			i := r.inspect(id)
			return i.Processes == 0 && i.Running == 0
		})
		if n := len(livingIn(p.dir)); n > 0 {
			t.Fatalf("%s: %d payloads live", when, n)
		}
		r.exec(id, "true").must(t, 0, when+": exec again")
	}
	c.lives()
	r.closed(id, graceFlags()...)
	r.nothing("at the end")
}

// TestCloseKilled: a close that was killed is finished by the next one.
func TestCloseKilled(t *testing.T) {
	r := newRig(t)
	c := r.canary()
	var took time.Duration
	for n := range moments() {
		p := r.payloads("p-" + tag())
		id := r.open("killed-close")
		r.detach(id, p.argv("payload")...)
		p.await(1)
		began := time.Now()
		e := r.start(bin(), "close", "--grace", "50ms", id)
		if n == 0 { // the first one is measured
			e.wait()
			took = time.Since(began)
			continue
		}
		after := somewhere(took)
		time.Sleep(after)
		if err := e.id.kill(); err != nil {
			t.Fatal(err)
		}
		e.wait()
		when := "close killed after " + after.String()
		listed := false
		for _, i := range r.list() {
			listed = listed || i.ID == id
		}
		if !listed && len(livingIn(p.dir)) > 0 {
			t.Fatalf("%s: the session is not listed and lives", when)
		}
		r.sweep(when)
		if n := len(livingIn(p.dir)); n > 0 {
			t.Fatalf("%s: %d payloads live", when, n)
		}
		r.nothing(when)
		if t.Failed() {
			return
		}
	}
	c.lives()
}

// TestKillKilled: a kill that was killed has ended a task or not, and is begun again; whom it
// left stopped runs on after the next reconcile.
func TestKillKilled(t *testing.T) {
	r := newRig(t)
	id := r.open("killed-kill")
	var took time.Duration
	stopped := 0
	for n := range max(moments()/2, 2) {
		p := r.payloads("p-" + tag())
		r.detach(id, p.argv("payload")...)
		p.await(1)
		who := livingIn(p.dir)[0]
		began := time.Now()
		e := r.start(bin(), "kill", fmt.Sprintf("%s/%d", id, n+1))
		if n == 0 { // the first one is measured
			e.wait()
			took = time.Since(began)
			continue
		}
		after := somewhere(took)
		time.Sleep(after)
		if err := e.id.kill(); err != nil {
			t.Fatal(err)
		}
		e.wait()
		if f, err := statFields(who.pid); err == nil && f[0] == "T" {
			stopped++
		}
		r.run("reconcile").must(t, 0, "reconcile")
		before := ticksIn(p.dir)
		eventually(t, "it runs on, or has ended", func() bool { return len(livingIn(p.dir)) == 0 || ticksIn(p.dir) > before })
		r.run("kill", fmt.Sprintf("%s/%d", id, n+1)).must(t, 0, "kill again")
		p.stopped()
	}
	t.Logf("%d times somebody was stopped when the kill was killed", stopped)
	r.closed(id, graceFlags()...)
	r.nothing("at the end")
}

// TestGroupKilled: a harness that kills the whole process group of sessionbox, as
// timeouts do, ends the command as well: supervised, and in place.
func TestGroupKilled(t *testing.T) {
	r := newRig(t)
	id := r.open("killed-group")
	for _, mode := range []string{"supervised", "--replace"} {
		t.Run(mode, func(t *testing.T) {
			p := r.payloads("p-" + tag())
			args := []string{"exec"}
			if mode == "--replace" {
				args = append(args, mode)
			}
			e := r.startWith(ownGroup(), nil, bin(), append(append(args, id, "--"), p.argv("payload")...)...)
			p.await(1)
			if err := e.killGroup(); err != nil {
				t.Fatal(err)
			}
			e.wait()
			eventually(t, "end of the command", func() bool { return len(livingIn(p.dir)) == 0 })
		})
	}
	r.closed(id, graceFlags()...)
}
