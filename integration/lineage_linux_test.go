package integration_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// TestLineageTable runs every technique on the lineage box, without and with a guard, and says
// what became of it, beside what three common ways to clean up would have found at the same
// moment: the command's process group, a walk from parent to child, a scan for the cookie.
// Only what somebody else was asked to start may be missed.
func TestLineageTable(t *testing.T) {
	if backend() != "lineage" {
		t.Skip("it is about the lineage box: make test-lineage")
	}
	techniques := newRig(t).catalog()
	for _, guarded := range []bool{false, true} {
		name := map[bool]string{false: "alone", true: "guarded"}[guarded]
		t.Run(name, func(t *testing.T) {
			var rows []tableRow
			for _, k := range techniques {
				if k.Expect == "unkillable" {
					continue // no signal ends it, see TestEscapes
				}
				t.Run(k.ID, func(t *testing.T) {
					k.need(t)
					rows = append(rows, escapeFrom(t, k, guarded))
				})
			}
			t.Log("\n" + lineageTable(rows))
		})
	}
}

// escapeFrom plays one technique, and closes the session.
func escapeFrom(t *testing.T, k technique, guarded bool) tableRow {
	t.Helper()
	r := newRig(t)
	var flags []string
	if guarded {
		r.guarded()
		owner := r.owner()
		defer owner.die()
		flags = append(flags, "--owner-pid", owner.pid())
	}
	e := r.begin(k, flags...)
	if _, ok := r.guard(); ok != guarded {
		t.Errorf("there is a guard: %v, want %v", ok, guarded)
	}
	row := tableRow{id: k.ID, what: k.Description, group: "missed", walk: "missed", cookie: "missed"}
	root := task(t, e.inspect(e.id), 1).PID
	var rec store.Session
	if b, err := os.ReadFile(e.sessionRecord(e.id)); err != nil || json.Unmarshal(b, &rec) != nil {
		t.Fatalf("no record: %v", err)
	}
	row.found(e.living, root, rec.Cookie)
	receipt, o := e.close(e.id, "--grace", "0.3")
	alive := 0
	for _, id := range e.living {
		if id.alive() {
			alive++
		}
	}
	switch {
	case alive == 0 && len(livingIn(e.dir)) == 0:
		row.lineage = "killed"
	case len(receipt.Suspects) > 0 || len(receipt.Survivors) > 0:
		row.lineage = "reported"
	default:
		row.lineage = "missed"
	}
	if k.Expect != "reported" && row.lineage != "killed" {
		t.Errorf("%s: close gave %d: %s", row.lineage, o.code, o.stderr)
	}
	e.canary.lives()
	if e.daemon != nil {
		e.daemon.lives()
	}
	for _, id := range livingIn(e.dir) {
		_ = id.kill()
	}
	return row
}

// tableRow is what became of one technique.
type tableRow struct {
	id, what                     string
	lineage, group, walk, cookie string
}

// found says which of the other ways would have found all payloads.
func (r *tableRow) found(living []ident, root int, cookie string) {
	group, walk, marked := 0, 0, 0
	for _, id := range living {
		f, err := statFields(id.pid)
		if err != nil {
			continue
		}
		if f[2] == fmt.Sprint(root) {
			group++
		}
		if descends(id.pid, root) {
			walk++
		}
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", id.pid))
		if bytes.Contains(env, []byte("SESSIONBOX_COOKIE="+cookie)) {
			marked++
		}
	}
	for _, w := range []struct {
		n   int
		set *string
	}{{group, &r.group}, {walk, &r.walk}, {marked, &r.cookie}} {
		if w.n == len(living) && w.n > 0 {
			*w.set = "killed"
		}
	}
}

// descends says whether a process has another among its ancestors.
func descends(pid, root int) bool {
	for pid > 1 {
		if pid == root {
			return true
		}
		f, err := statFields(pid)
		if err != nil {
			return false
		}
		if _, err := fmt.Sscan(f[1], &pid); err != nil {
			return false
		}
	}
	return false
}

func lineageTable(rows []tableRow) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-5s %-9s %-8s %-8s %-8s %s\n", "", "lineage", "group", "parents", "cookie", "technique")
	sums := map[string]int{}
	for _, r := range rows {
		fmt.Fprintf(&b, "%-5s %-9s %-8s %-8s %-8s %s\n", r.id, r.lineage, r.group, r.walk, r.cookie, r.what)
		for name, is := range map[string]string{"lineage": r.lineage, "group": r.group, "parents": r.walk, "cookie": r.cookie} {
			if is == "killed" {
				sums[name]++
			}
		}
	}
	fmt.Fprintf(&b, "of %d: lineage %d, process group %d, parent walk %d, cookie scan %d", len(rows), sums["lineage"], sums["group"], sums["parents"], sums["cookie"])
	return b.String()
}

// TestLineageAdopt: a tree that runs already is taken in, with what it starts later, and ends
// with the session.
func TestLineageAdopt(t *testing.T) {
	if backend() != "lineage" {
		t.Skip("it is about the lineage box: make test-lineage")
	}
	r := newRig(t)
	c := r.canary()
	p := r.payloads("payload")
	agent := r.start("/bin/sh", "-c", shellWords(p.argv("payload"))+" & while :; do sleep 0.05; done")
	defer agent.die()
	p.await(1)
	id := r.open("work")
	r.run("adopt", id, fmt.Sprint(agent.id.pid)).must(t, 0, "adopt")
	if got := r.inspect(id); got.Processes < 2 || got.Running != 1 {
		t.Errorf("after the adoption: %d processes, %d running", got.Processes, got.Running)
	}
	r.closed(id, graceFlags()...)
	p.stopped()
	c.lives()
	r.nothing("at the end")
}

// TestLineageKeeperKilled: with a keeper killed the command's end is still told, and a close
// finds what it had started.
func TestLineageKeeperKilled(t *testing.T) {
	if backend() != "lineage" {
		t.Skip("it is about the lineage box: make test-lineage")
	}
	r := newRig(t)
	p := r.payloads("payload")
	id := r.open("work")
	e := r.start(bin(), "exec", id, "--", "sh", "-c", shellWords(p.argv("E05"))+"; until [ -e "+r.home+"/gate ]; do sleep 0.05; done; exit 7")
	p.await(1)
	killed := 0
	for _, k := range keepersOf(t, "keeper", id) {
		if err := k.kill(); err != nil {
			t.Fatal(err)
		}
		killed++
	}
	if killed != 1 {
		t.Fatalf("%d keepers", killed)
	}
	write(t, r.home+"/gate")
	e.wait().must(t, 7, "exec whose keeper was killed")
	if got := r.inspect(id); got.Leftovers != 1 {
		t.Errorf("%d are left, want 1", got.Leftovers)
	}
	r.reconcile()
	if n := len(keepersOf(t, "watcher", id)); n != 1 {
		t.Errorf("%d watch what is left, want 1", n)
	}
	r.closed(id, graceFlags()...)
	p.stopped()
	r.nothing("at the end")
}

// keepersOf finds the keepers of a session, or its watchers.
func keepersOf(t *testing.T, role, id string) []ident {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var all []ident
	for _, e := range entries {
		argv, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err != nil || !bytes.HasPrefix(argv, []byte("sessionbox\x00__keeper\x00"+role+"\x00"+id+"\x00")) {
			continue
		}
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err != nil {
			continue
		}
		if who, err := identify(pid); err == nil {
			all = append(all, who)
		}
	}
	return all
}

// TestLineageSuspect: an orphan that works in the session's directory may be of it, and may be
// anybody's. It is named, and lives.
func TestLineageSuspect(t *testing.T) {
	if backend() != "lineage" {
		t.Skip("it is about the lineage box: make test-lineage")
	}
	r := newRig(t)
	need(t, "setsid")
	p := r.payloads("payload")
	id := r.run("open", "--name", "work", "--backend", "lineage").must(t, 0, "open").text()
	r.start("/bin/sh", "-c", "(setsid "+shellWords(p.argv("payload"))+" &)").wait().must(t, 0, "a daemon of somebody's")
	p.await(1)
	who := livingIn(p.dir)[0]
	parent, err := statFields(who.pid)
	if err != nil || parent[1] != "1" {
		t.Skip("orphans are given to another process than pid 1 here")
	}
	named := func(list []session.Process) bool {
		return slices.ContainsFunc(list, func(p session.Process) bool { return p.PID == who.pid && p.Start == who.start })
	}
	if got := r.inspect(id); !named(got.Suspects) || got.Processes != 0 {
		t.Errorf("inspect: suspects %+v, %d processes; want %v as a suspect", got.Suspects, got.Processes, who)
	}
	receipt := r.closed(id)
	if !named(receipt.Suspects) || receipt.Swept() != 0 {
		t.Errorf("the receipt has the suspects %+v and ended %d", receipt.Suspects, receipt.Swept())
	}
	p.ticking()
	if err := who.kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the daemon", func() bool { return len(livingIn(p.dir)) == 0 })
}
