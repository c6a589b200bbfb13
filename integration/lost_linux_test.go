package integration_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// These were found by the soak.

// loseRecord deletes all that was written down of a session, which others may be
// writing to.
func (r *rig) loseRecord(id string) {
	r.t.Helper()
	eventually(r.t, "removal of the records", func() bool { return os.RemoveAll(filepath.Dir(r.sessionRecord(id))) == nil })
}

// TestRecordLostTwice: who was taken over from stays so when the record is lost, and the
// next owner is of a later generation than any before.
func TestRecordLostTwice(t *testing.T) {
	r := newRig(t)
	first, second, third := r.owner(), r.owner(), r.owner()
	for _, o := range []*running{first, second, third} {
		defer o.die()
	}
	id := r.open("work", "--owner-pid", first.pid())
	r.run("open", "--name", "work", "--take-over", "--owner-pid", second.pid()).must(t, 0, "take over")
	r.loseRecord(id)
	if got := r.reconcile()[id]; got.Action != "adopted" || got.Owner != nil {
		t.Fatalf("%s (%s), owner %v", got.Action, got.Reason, got.Owner)
	}
	r.run("close", "work", "--generation", "1").must(t, 7, "close for the first owner")
	r.run("open", "--name", "work", "--attach", "--owner-pid", third.pid()).must(t, 0, "attach")
	if o := r.inspect(id).Owner; o == nil || o.Generation != 3 {
		t.Errorf("the third owner is %+v", o)
	}
	r.closed(id)
}

// TestTasksOfLostRecord: the number of a task that lives is not given to another when
// its record is lost, so that each can still be ended alone.
func TestTasksOfLostRecord(t *testing.T) {
	r := newRig(t)
	id := r.open("work")
	old := make([]payloads, 3)
	for i := range old {
		old[i] = r.payloads("old-" + strconv.Itoa(i))
		r.exec(id, old[i].argv("E05")...).must(t, 0, "exec")
		old[i].await(1)
	}
	r.run("kill", id+"/2").must(t, 0, "kill")
	r.loseRecord(id)
	r.reconcile()
	p := r.payloads("new")
	ref := r.run(append([]string{"exec", "-d", id, "--"}, p.argv("payload")...)...).must(t, 0, "exec -d").text()
	p.await(1)
	if ref != "work/4" {
		t.Errorf("the new task is %s", ref)
	}
	for _, n := range []int{1, 3} {
		if s := task(t, r.inspect(id), n); s.State != "orphaned" || s.PID == 0 {
			t.Errorf("task %d is %s, pid %d", n, s.State, s.PID)
		}
	}
	r.run("kill", id+"/1").must(t, 0, "kill")
	old[0].stopped()
	old[2].ticking()
	p.ticking()
	r.closed(id, graceFlags()...)
	r.nothing("at the end")
}

// TestNestedRecordBad: a session inside another whose record cannot be used ends with
// that, and nothing of its record is left.
func TestNestedRecordBad(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "newer": `{"schema":99}`} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			parent, child, outer, inner := nested(r, "bad-"+name)
			if err := os.WriteFile(r.sessionRecord(child), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			r.closed(parent, graceFlags()...)
			outer.stopped()
			inner.stopped()
			r.nothing("afterwards")
		})
	}
}

// TestBadRecordCrash: the close of a session whose record cannot be used may be killed at
// any moment, and the next one finishes it.
func TestBadRecordCrash(t *testing.T) {
	r := newRig(t)
	for n := range moments() {
		id := r.open("bad-" + strconv.Itoa(n))
		if err := os.WriteFile(r.sessionRecord(id), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		c := r.start(bin(), "close", "--now", id)
		time.Sleep(somewhere(30 * time.Millisecond))
		c.die()
		if _, ok := r.listed(id); ok {
			r.closed(id, "--now")
		}
	}
	r.reconcile()
	r.nothing("at the end")
}

// TestNameOfNoSession: an opening that was killed between its name and its record leaves
// the name, until it is wanted again or somebody reconciles.
func TestNameOfNoSession(t *testing.T) {
	r := newRig(t)
	id := r.open("stays")
	if err := os.Symlink("aaaaaaaaaa", filepath.Join(r.stateDir(), "names", "half-made")); err != nil {
		t.Fatal(err)
	}
	r.reconcile("--dry-run")
	if !exists(filepath.Join(r.stateDir(), "names", "half-made")) {
		t.Error("a dry run removed it")
	}
	r.reconcile()
	entries, err := os.ReadDir(filepath.Join(r.stateDir(), "names"))
	if err != nil || len(entries) != 1 || !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == "stays" }) {
		t.Errorf("names: %v, %v; want stays alone", entries, err)
	}
	r.closed(id)
}

// TestAnchorOfLostRecord: the process of ours in a box whose record was lost and found
// serves nobody any more; commands are started all the same. So are they when that
// process is killed while others of ours stay: under systemd one unit holds them all.
func TestAnchorOfLostRecord(t *testing.T) {
	r := newRig(t)
	p := r.payloads("payload")
	id := r.open("work")
	r.exec(id, "true").must(t, 0, "exec")
	r.detach(id, p.argv("payload")...)
	p.await(1)
	r.loseRecord(id)
	if got := r.reconcile()[id]; got.Action != "adopted" {
		t.Fatalf("%s (%s)", got.Action, got.Reason)
	}
	if o := r.exec(id, "sh", "-c", "exit 3").must(t, 3, "exec in a session whose record was lost"); o.took > patience()/4 {
		t.Errorf("it took %v", o.took)
	}
	for _, pid := range members(r.inspect(id).Box.Path) {
		argv, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if who, err := identify(pid); err == nil && strings.Contains(string(argv), "\x00__anchor\x00") {
			if err := who.kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.exec(id, "sh", "-c", "exit 3").must(t, 3, "exec in a session whose anchor was killed")
	p.ticking()
	r.closed(id, graceFlags()...)
	p.stopped()
	r.nothing("at the end")
}
