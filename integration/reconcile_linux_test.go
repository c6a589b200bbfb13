package integration_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestReconcileTwice: any number of reconciles at once do each thing once.
func TestReconcileTwice(t *testing.T) {
	r := newRig(t)
	p := r.payloads("payload")
	owner := r.owner()
	ids := make([]string, 5)
	for i := range ids {
		ids[i] = r.open(fmt.Sprintf("s%d", i), "--owner-pid", owner.pid(), "--grace", "1s")
		r.detach(ids[i], p.argv("E05")...)
	}
	p.await(5)
	owner.die()
	calls := make([]*running, 6)
	for i := range calls {
		calls[i] = r.start(bin(), "reconcile", "--json")
	}
	for _, c := range calls {
		for _, s := range decodeReconciliation(t, c.wait().must(t, 0, "reconcile")) {
			if s.Error != "" {
				t.Errorf("%s: %s", s.ID, s.Error)
			}
		}
	}
	p.stopped()
	r.nothing("after six reconciles")
	closed := map[string]int{}
	for line := range strings.Lines(string(r.run("events", "--json").must(t, 0, "events").stdout)) {
		var e struct{ Event, Session string }
		if json.Unmarshal([]byte(line), &e) == nil && e.Event == "closed" {
			closed[e.Session]++
		}
	}
	for _, id := range ids {
		if closed[id] != 1 {
			t.Errorf("session %s has %d receipts in the history", id, closed[id])
		}
	}
}

// TestReconcileCrashes: whatever a SIGKILL left half done is finished by reconcile.
func TestReconcileCrashes(t *testing.T) {
	r := newRig(t)
	for i := range moments() {
		p := r.start(bin(), "open", "--name", "victim", "--backend", r.box)
		time.Sleep(somewhere(30 * time.Millisecond))
		p.die()
		if info, ok := r.listed("victim"); ok && info.State == "open" {
			c := r.start(bin(), "close", "victim")
			time.Sleep(somewhere(20 * time.Millisecond))
			c.die()
		}
		for id, s := range r.reconcile() {
			if s.Error != "" || s.Action == "none" && s.State != "open" {
				t.Errorf("moment %d: %s is %s: %s (%s) %s", i, id, s.State, s.Action, s.Reason, s.Error)
			}
		}
		r.sweep("after a crash")
	}
	r.nothing("at the end")
}

// TestRecordLost: a box whose record is gone gets it back, with the owner that nobody
// knows any more left out.
func TestRecordLost(t *testing.T) {
	r := newRig(t)
	p := r.payloads("payload")
	owner := r.owner()
	id := r.open("work", "--owner-pid", owner.pid())
	r.detach(id, p.argv("payload")...)
	p.await(1)
	owner.die()
	if err := os.RemoveAll(filepath.Dir(r.sessionRecord(id))); err != nil {
		t.Fatal(err)
	}
	got := r.reconcile()[id]
	if got.Action != "adopted" || got.Owner != nil || got.Processes != 1 || got.Name != "work" {
		t.Errorf("a box without a record: %s (%s), name %q, owner %v, %d processes", got.Action, got.Reason, got.Name, got.Owner, got.Processes)
	}
	p.ticking()
	if again := r.reconcile()[id]; again.Action != "none" {
		t.Errorf("once more: %s (%s)", again.Action, again.Reason)
	}
	r.closed("work", graceFlags()...)
	p.stopped()
}

// TestTimeoutWithoutSupervisor: a task whose supervisor was killed is ended when its time
// is over all the same.
func TestTimeoutWithoutSupervisor(t *testing.T) {
	r := newRig(t)
	p := r.payloads("payload")
	id := r.open("work")
	r.run(append([]string{"exec", "-d", "--timeout", "3s", "--kill-after", "1s", id, "--"}, p.argv("payload")...)...).must(t, 0, "exec -d")
	p.await(1)
	if err := supervisorOf(t, r, id, 1).kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its time to be over", func() bool {
		got := r.reconcile()[id]
		return task(t, got.Info, 1).State == "timed_out"
	})
	p.stopped()
	r.closed(id)
}

// TestReconcileAround: a session whose owner is gone is closed with those inside it,
// whoever owns them; as is one that its owner closes, by its generation.
func TestReconcileAround(t *testing.T) {
	for _, by := range []string{"reconcile", "close"} {
		t.Run(by, func(t *testing.T) {
			r := newRig(t)
			p := r.payloads("payload")
			owner, other := r.owner(), r.owner()
			defer other.die()
			id := r.open("outer", "--owner-pid", owner.pid(), "--grace", "1s")
			in := r.exec(id, bin(), "open", "--name", "inner", "--lease", "1h", "--grace", "1s").must(t, 0, "open inside").text()
			r.run("open", "--name", "inner", "--take-over", "--owner-pid", other.pid()).must(t, 0, "take over")
			r.detach(in, p.argv("payload")...)
			p.await(1)
			if by == "close" {
				r.closed(id, "--generation", "1")
				owner.die()
			} else {
				owner.die()
				got := r.reconcile()
				if s := got[id]; s.Action != "ended" || s.Receipt == nil || !s.Receipt.Clean() || len(s.Receipt.Nested) != 1 {
					t.Errorf("%s (%s) %s", s.Action, s.Reason, s.Error)
				}
			}
			p.stopped()
			r.nothing("afterwards")
		})
	}
}
