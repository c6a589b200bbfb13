package integration_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// TestEscapes runs every technique of integration/escape as a session's command and
// closes the session. For each the close has to keep the contract: nothing is left by
// the kernel's word, a canary outside is alive, it came back in time, its receipt
// names what it ended, and the payload's counter has stopped.
func TestEscapes(t *testing.T) {
	for _, k := range newRig(t).catalog() {
		t.Run(k.ID, func(t *testing.T) {
			k.need(t)
			e := begin(t, k)
			switch expect(k) {
			case "dies":
				e.dies("--grace", "1s")
			case "stray":
				e.stray("--grace", "1s")
			case "reported":
				e.reported()
			case "unkillable":
				e.unkillable()
			default:
				t.Fatalf("unknown expectation %q", k.Expect)
			}
		})
	}
}

// TestEscapesNow does the same without asking anybody first: most payloads would end
// by SIGTERM, and hide a kill that does not reach them.
func TestEscapesNow(t *testing.T) {
	r := newRig(t)
	if tierName() == "vm" {
		t.Skip("an emulated guest takes minutes for what TestEscapes has shown of it")
	}
	for _, k := range r.catalog() {
		if k.Expect != "dies" && k.Expect != "stray" {
			continue
		}
		t.Run(k.ID, func(t *testing.T) {
			k.need(t)
			e := begin(t, k)
			if expect(k) == "stray" {
				e.stray("--now")
				return
			}
			e.dies("--now")
		})
	}
}

// expect is what a technique comes to in the box under test: moving to another cgroup
// leads out of a cgroup, and not out of a lineage.
func expect(k technique) string {
	if k.Expect == "stray" && backend() == "lineage" {
		return "dies"
	}
	return k.Expect
}

// escaped is a technique at work in a session, its payloads up and counting.
type escaped struct {
	*rig
	technique
	payloads
	id     string
	canary *canary
	daemon *canary // what a fixture runs in, if any
	living []ident // payloads before the close
}

// begin runs the technique until its payloads are there.
func begin(t *testing.T, k technique) *escaped {
	t.Helper()
	return newRig(t).begin(k)
}

func (r *rig) begin(k technique, open ...string) *escaped {
	t := r.t
	t.Helper()
	e := &escaped{rig: r, technique: k, canary: r.canary(), payloads: r.payloads("payload")}
	argv := e.argv(k.ID, e.fixtures()...)
	e.id = r.open("esc-"+k.ID, open...)
	if k.RootExits {
		o := r.exec(e.id, argv...)
		want := 0
		if k.ID == "E07" {
			want = 128 + 9
		}
		o.must(t, want, "exec "+k.ID)
	} else {
		r.detach(e.id, argv...)
	}
	for end := time.Now().Add(patience() / 2); !e.up(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the payloads are not at work before the close: recorded %v, living %v\n%s",
				recordedIn(e.dir), describe(pidsOf(livingIn(e.dir))), r.run("inspect", "--json", e.id).stdout)
		}
	}
	e.living = livingIn(e.dir)
	return e
}

// up tells whether all payloads are there and at work, or stopped if they are to be.
func (e *escaped) up() bool {
	if len(recordedIn(e.dir)) < e.Payloads {
		return false
	}
	if e.Still {
		return len(inState(e.dir, "T")) > 0
	}
	return ticksIn(e.dir) > 1
}

// fixtures starts what a technique needs around it and gives the flags for it.
func (e *escaped) fixtures() []string {
	var flags []string
	for _, f := range e.Fixtures {
		switch f {
		case "out-cgroup":
			flags = append(flags, "--out-cgroup", outCgroup(e.rig.t))
		case "daemon":
			d, socket := e.rig.daemon()
			e.daemon = d
			flags = append(flags, "--socket", socket)
		case "tmux-server":
			_, socket := e.rig.tmuxServer()
			flags = append(flags, "--socket", socket)
		case "fuse":
			d, path := e.rig.fuse()
			e.daemon = d
			flags = append(flags, "--arg", path)
		case "ssh":
			target := os.Getenv(envSSH)
			if target == "" {
				e.rig.t.Skip(envSSH + " names nobody to log in as")
			}
			flags = append(flags, "--ssh", target)
		default:
			e.rig.t.Fatalf("%s needs an unknown fixture %q", e.ID, f)
		}
	}
	return flags
}

// graceFlags keep the tests of the deaf short.
func graceFlags() []string { return []string{"--grace", "1s"} }

// gone asserts what holds after every close that returned 0.
func (e *escaped) gone(receipt session.Receipt, o output) {
	t := e.rig.t
	t.Helper()
	if p := receipt.Box.Path; p == "" {
		if receipt.Box.Kind != "lineage" { // which has no directory
			t.Error("the receipt does not say where the box was")
		}
	} else if _, err := os.Stat(p); err == nil {
		b, _ := os.ReadFile(filepath.Join(p, "cgroup.events"))
		t.Errorf("the box is still there after the close: %s: %s", p, b)
	}
	if limit := patience() / 2; o.took > limit {
		t.Errorf("the close took %v, more than %v", o.took, limit)
	}
	if i, ok := e.listed(e.id); ok {
		t.Errorf("the session is still listed as %s", i.State)
	}
	e.canary.lives()
}

// dies: a member of the box, however it disguised itself.
func (e *escaped) dies(flags ...string) {
	t := e.rig.t
	receipt, o := e.close(e.id, flags...)
	o.must(t, 0, "close")
	for _, id := range e.living {
		// The hopper is another process by now, and so may a respawned one be.
		box, stray := names(receipt, id)
		if !box && !e.changes() {
			t.Errorf("the receipt does not name payload %v: %+v", id, receipt.Processes)
		}
		if stray {
			t.Errorf("payload %v, a member of the box, is called a stray", id)
		}
	}
	if receipt.Swept() == 0 {
		t.Error("the receipt says that nothing was alive")
	}
	e.gone(receipt, o)
	e.stopped()
	e.released()
}

// changes tells whether the technique's pids do not stay the same up to the close.
func (e *escaped) changes() bool { return slices.Contains([]string{"E12", "E14"}, e.ID) }

// released asserts for the resource holders that the resource is free.
func (e *escaped) released() {
	t := e.rig.t
	switch e.ID {
	case "E23":
		e.rig.start(escape(), e.argv("take-lock")[1:]...).wait().must(t, 0, "lock after the close")
	case "E23b":
		if l, err := listenOn(filepath.Join(e.dir, "addr")); err != nil {
			t.Errorf("the port is still taken: %v", err)
		} else {
			l.Close()
		}
	}
}

// stray: it left the box and carries the cookie.
func (e *escaped) stray(flags ...string) {
	t := e.rig.t
	receipt, o := e.close(e.id, flags...)
	o.must(t, 0, "close")
	for _, id := range e.living {
		if _, stray := names(receipt, id); !stray {
			t.Errorf("the receipt does not name %v as a stray: %+v", id, receipt.Strays)
		}
	}
	e.gone(receipt, o)
	e.stopped()
}

// reported: somebody else's process by all evidence. It must live, and must not be
// claimed dead.
func (e *escaped) reported() {
	t := e.rig.t
	receipt, o := e.close(e.id, graceFlags()...)
	o.must(t, 0, "close")
	for _, id := range e.living {
		if box, stray := names(receipt, id); box || stray {
			t.Errorf("the receipt claims %v, which was never in the box", id)
		}
		if !id.alive() {
			t.Errorf("%v was killed without evidence", id)
		}
	}
	e.ticking()
	t.Logf("notes of the receipt: %q", receipt.Notes)
	e.gone(receipt, o)
	if e.daemon != nil {
		e.daemon.lives()
	}
	for _, id := range e.living {
		if err := id.kill(); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "end of the payloads", func() bool { return len(livingIn(e.dir)) == 0 })
}

// unkillable: no signal ends it. The close must say so, keep the session, and
// succeed once the process is let go.
func (e *escaped) unkillable() {
	t := e.rig.t
	receipt, o := e.close(e.id, "--now")
	if o.code != 4 {
		t.Errorf("close with a member in D: exit code %d, want 4\nstderr: %s", o.code, o.stderr)
	}
	for _, id := range e.living {
		if !id.alive() {
			t.Fatalf("%v is dead: this kernel ends it by a signal", id)
		}
		if !survives(receipt, id) {
			t.Errorf("the receipt does not name %v as a survivor: %+v", id, receipt.Survivors)
		}
	}
	if receipt.Clean() {
		t.Error("the receipt is clean while a member lives")
	}
	if i, ok := e.listed(e.id); !ok {
		t.Error("the session was forgotten while a member lives")
	} else if i.State == "closed" {
		t.Error("the session is called closed while a member lives")
	}
	e.canary.lives()

	e.daemon.end() // the file system goes, and with it the wait for it
	start := time.Now()
	eventually(t, "end of the sleep in D", func() bool { return len(livingIn(e.dir)) == 0 })
	t.Logf("let go after %v", time.Since(start))
	receipt, o = e.close(e.id, "--now")
	o.must(t, 0, "second close")
	e.gone(receipt, o)
	e.stopped()
}

// pidsOf are the numbers of processes.
func pidsOf(ids []ident) []int {
	var pids []int
	for _, id := range ids {
		pids = append(pids, id.pid)
	}
	return pids
}

// describe says of each process what a failure report needs: name, state and
// cgroup.
func describe(pids []int) []string {
	var all []string
	for _, pid := range pids {
		dir := fmt.Sprintf("/proc/%d/", pid)
		stat, _ := os.ReadFile(dir + "stat")
		group, _ := os.ReadFile(dir + "cgroup")
		all = append(all, fmt.Sprintf("%.60s %s", stat, group[bytes.LastIndex(group, []byte("0::"))+1:]))
	}
	return all
}

// inState are the living of a payload directory that ps shows with a letter.
func inState(dir, letter string) []ident {
	var found []ident
	for _, id := range livingIn(dir) {
		if f, err := statFields(id.pid); err == nil && f[0] == letter {
			found = append(found, id)
		}
	}
	return found
}
