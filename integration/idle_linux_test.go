package integration_test

import (
	"testing"
	"time"
)

// TestIdle: a session that is only looked at is idle; one that works, is touched or
// waited for is not. Frozen for being idle, it is thawed by the next command.
func TestIdle(t *testing.T) {
	r := newRig(t)
	off := r.payloads("off")
	const timeout = 3 * time.Second
	flags := []string{"--idle-timeout", timeout.String(), "--idle-action", "freeze"}
	quietID := r.open("quiet", flags...)
	busyID := r.open("busy", flags...)
	waitedID := r.open("waited", flags...)
	touchedID := r.open("touched", flags...)
	offID := r.open("off")
	closing := r.open("closing", "--idle-timeout", timeout.String(), "--idle-action", "close")
	warned := r.open("warned", "--idle-timeout", timeout.String())
	r.detach(busyID, "sh", "-c", "while :; do :; done")
	r.detach(quietID, "sleep", "3600")
	r.detach(offID, off.argv("payload")...)
	off.await(1)
	waiting := r.start(bin(), "exec", waitedID, "--", "sleep", "3600")
	seen := map[string]string{}
	began := time.Now()
	for time.Since(began) < 3*timeout {
		for id, s := range r.reconcile() {
			if s.Action != "none" {
				seen[id] += s.Action + " "
			}
		}
		// Looking is no activity.
		r.run("inspect", quietID)
		r.run("ls")
		r.run("ps", quietID)
		r.run("touch", touchedID).must(t, 0, "touch")
		time.Sleep(300 * time.Millisecond)
	}
	for id, want := range map[string]string{quietID: "frozen ", busyID: "", waitedID: "", touchedID: "", offID: "", closing: "ended ", warned: "warned "} {
		if seen[id] != want {
			t.Errorf("session %s: %q, want %q", r.nameOf(id), seen[id], want)
		}
	}
	if !r.inspect(quietID).Box.Frozen {
		t.Error("the quiet session is not frozen")
	}
	if o := r.exec(quietID, "echo", "awake"); o.code != 0 || o.text() != "awake" {
		t.Errorf("exec in a session frozen for being idle: %d, %s%s", o.code, o.stdout, o.stderr)
	}
	if r.inspect(quietID).Box.Frozen {
		t.Error("it is still frozen after the exec")
	}
	// What somebody froze on purpose stays so.
	r.run("freeze", quietID).must(t, 0, "freeze")
	r.exec(quietID, "true").must(t, 125, "exec in a session that was frozen")
	r.run("thaw", quietID).must(t, 0, "thaw")
	if _, ok := r.listed(closing); ok {
		t.Error("the idle session was not closed")
	}
	eventually(t, "it to be idle again", func() bool { return r.reconcile()[quietID].Action == "frozen" })
	r.run("touch", quietID).must(t, 0, "touch")
	if r.inspect(quietID).Box.Frozen {
		t.Error("it is still frozen after a touch")
	}
	r.sweep("at the end")
	waiting.wait()
}

// TestFreezeOfFrozen: who freezes a session that is frozen for being idle means it: the
// next command does not thaw it.
func TestFreezeOfFrozen(t *testing.T) {
	r := newRig(t)
	id := r.open("idle", "--idle-timeout", "1s", "--idle-action", "freeze")
	r.detach(id, "sleep", "3600")
	eventually(t, "its idle time to be over", func() bool { return r.reconcile()[id].Action == "frozen" })
	r.run("freeze", id).must(t, 0, "freeze")
	r.exec(id, "true").must(t, 125, "exec in a session that was frozen on purpose")
	r.run("thaw", id).must(t, 0, "thaw")
	r.exec(id, "true").must(t, 0, "exec")
	r.closed(id, "--now")
}

func (r *rig) nameOf(id string) string {
	if i, ok := r.listed(id); ok {
		return i.Name
	}
	return id
}

// TestIdleNested: a session is in use while one inside it is.
func TestIdleNested(t *testing.T) {
	r := newRig(t)
	const timeout = 2 * time.Second
	outer := r.open("outer", "--idle-timeout", timeout.String(), "--idle-action", "freeze")
	r.exec(outer, bin(), "open", "--name", "inner").must(t, 0, "open inside")
	waiting := r.start(bin(), "exec", "inner", "--", "sleep", "3600")
	eventually(t, "the command inside", func() bool { i, _ := r.listed("inner"); return i.Running == 1 })
	for began := time.Now(); time.Since(began) < 2*timeout; time.Sleep(200 * time.Millisecond) {
		if got := r.reconcile()[outer]; got.Action != "none" {
			t.Fatalf("with a command inside: %s (%s)", got.Action, got.Reason)
		}
	}
	r.run("kill", "inner/1").must(t, 0, "kill")
	waiting.wait()
	eventually(t, "it to be frozen", func() bool { return r.reconcile()[outer].Action == "frozen" })
	r.closed(outer, "--now")
	r.nothing("at the end")
}
