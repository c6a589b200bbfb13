package integration_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// The end of a session of which an engine holds something, when more goes wrong.

// keeps has the engine refuse to remove anything, until the function it gives is called.
func (e *engine) keeps() (undo func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answer = func(w http.ResponseWriter, q *http.Request) bool {
		if q.Method == http.MethodDelete {
			w.WriteHeader(http.StatusInternalServerError)
		}
		return q.Method == http.MethodDelete
	}
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.answer = nil
	}
}

// of are the containers with a session's label.
func (e *engine) of(id string) (all []string) {
	entries, err := os.ReadDir(e.spool)
	if err != nil {
		e.r.t.Fatal(err)
	}
	for _, c := range entries {
		if !strings.HasPrefix(c.Name(), "new.") && labelsIn(e.args(c.Name()))["sessionbox"] == id {
			all = append(all, c.Name())
		}
	}
	return all
}

// TestHiredByStray: a process that has left the box calls docker on and on. When it has been
// found and ended, the engine is asked once more.
func TestHiredByStray(t *testing.T) {
	r := newRig(t)
	out := outCgroup(t)
	e := r.engine()
	for range 10 {
		id := r.open("caller", "--shims")
		r.detach(id, "/bin/sh", "-c", "echo $$ >"+out+"/cgroup.procs && while :; do docker run -d bb >/dev/null; sleep 0.02; done")
		eventually(t, "its first container", func() bool { return len(e.of(id)) > 0 })
		r.closed(id, "--now")
		if left := e.of(id); len(left) > 0 {
			t.Fatalf("the engine has %q still", left)
		}
	}
}

// TestHiredStateFull: a container cannot be removed, nor can anything be written down. The
// session around the one that it is of is not called closed for that.
func TestHiredStateFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small file system")
	}
	r := newRig(t)
	e := r.engine()
	state := filepath.Join(r.home, "small")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", state, "tmpfs", 0, "nr_inodes=400,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(state, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	r.env = append(r.env, "SESSIONBOX_STATE_DIR="+state)
	outer := r.open("full-outer")
	inner := r.exec(outer, bin(), "open", "--shims", "--name", "full-inner").must(t, 0, "open inside").text()
	made := r.exec(outer, bin(), "exec", inner, "--", "docker", "run", "bb").must(t, 0, "docker inside").text()
	undo := e.keeps()
	for n := 0; ; n++ {
		if err := os.WriteFile(filepath.Join(state, "filler-"+strconv.Itoa(n)), nil, 0o600); err != nil {
			break
		}
	}
	for _, id := range []string{inner, outer, outer} {
		receipt, o := r.close(id, "--now")
		o.must(t, 4, "close with a container that stays")
		if receipt.Clean() {
			t.Errorf("the receipt of %s names nothing that is left", receipt.Name)
		}
	}
	undo()
	r.closed(outer, "--now")
	if e.there(made) {
		t.Error("the container is left")
	}
}

// TestHiredRecordLost: the record is gone, and a container stays. The session is found for
// the next close, too.
func TestHiredRecordLost(t *testing.T) {
	r := newRig(t)
	e := r.engine()
	p := r.payloads("box")
	id := r.open("lost", "--shims")
	made := e.called(id, "run", "bb")
	r.detach(id, p.argv("payload")...)
	p.await(1)
	r.loseRecord(id)
	undo := e.keeps()
	for range 2 {
		receipt, o := r.close(id, "--now")
		o.must(t, 4, "close with a container that stays")
		if got, ok := fateOf(receipt, made); !ok || got.Fate != session.FateSurvived {
			t.Errorf("the receipt says of it: %+v", got)
		}
	}
	p.stopped()
	undo()
	if got, ok := fateOf(r.closed(id, "--now"), made); !ok || e.there(made) {
		t.Errorf("the container is there: %t, the receipt says %+v", e.there(made), got)
	}
}

// TestHiredBusGone: the manager cannot be reached, and would start a unit of the session
// again. That is not called closed before it has been told.
func TestHiredBusGone(t *testing.T) {
	r := newRig(t)
	if r.box != "systemd" {
		t.Skip("no manager makes the boxes here")
	}
	id, unit := r.open("busless", "--shims"), "sbx-"+tag()+".service"
	systemctl := func(verb string) string {
		return r.start("systemctl", append(userFlag(), verb, unit)...).wait().text()
	}
	r.exec(id, append(append([]string{"systemd-run"}, userFlag()...), "--unit="+unit, "-p", "Restart=always", "-p", "RestartSec=1", "sleep", "600")...).must(t, 0, "systemd-run")
	t.Cleanup(func() { systemctl("stop") })
	show := hideBus(t)
	receipt, o := r.close(id, "--now")
	o.must(t, 4, "close without the manager")
	if !slices.ContainsFunc(receipt.Units, func(u session.UnitInfo) bool { return u.Name == unit && u.Fate == session.FateSurvived }) {
		t.Errorf("the receipt says of its unit: %+v", receipt.Units)
	}
	show()
	eventually(t, "it is started again", func() bool { return systemctl("is-active") == "active" })
	r.closed(id, "--now")
	if got := systemctl("is-active"); got == "active" || got == "activating" {
		t.Errorf("after the close the unit is %s", got)
	}
	// What only the manager could clear away goes with the next session's close.
	r.closed(r.open("after"), "--now")
	r.nothing("with the bus back")
}
