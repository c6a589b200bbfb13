package integration_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestCloseFromInside is H12: the agent closes its own session. The closer must live
// to tell, and everything else must be gone.
func TestCloseFromInside(t *testing.T) {
	for name, ref := range map[string]string{"by id": "", "by dot": "."} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c := r.canary()
			p := r.payloads("payload")
			id := r.open("h12")
			r.detach(id, p.argv("E09")...)
			p.await(1)
			if ref == "" {
				ref = id
			}
			o := r.exec(id, bin(), "close", "--grace", "1s", "--json", ref).must(t, 0, "close from inside")
			receipt, err := decodeReceipt(o.stdout)
			if err != nil {
				t.Fatalf("the closer gave no receipt: %v\n%s\n%s", err, o.stdout, o.stderr)
			}
			for l := range recordedIn(p.dir) {
				if box, _ := names(receipt, l); !box {
					t.Errorf("the receipt does not name %v", l)
				}
			}
			p.stopped()
			c.lives()
			if i, ok := r.listed(id); ok {
				t.Errorf("the session is still listed as %s", i.State)
			}
		})
	}
}

// TestCloseFromInsideByShell: the closer's parent is a member that dies by the close,
// and the closer must finish its work without it.
func TestCloseFromInsideByShell(t *testing.T) {
	r := newRig(t)
	r.technique("E03b") // a shell
	c := r.canary()
	p := r.payloads("payload")
	id := r.open("h12b")
	r.detach(id, p.argv("E05")...)
	p.await(1)
	r.exec(id, "sh", "-c", bin()+" close --now "+id+"; sleep 600")
	eventually(t, "end of the session", func() bool { _, ok := r.listed(id); return !ok })
	p.stopped()
	c.lives()
}

// TestSupervisorKilled is H16: the process that waits for a task is killed outright.
// The session goes on, what is said about the task is true, and a close ends all.
func TestSupervisorKilled(t *testing.T) {
	r := newRig(t)
	other, p := r.payloads("other"), r.payloads("payload")
	id := r.open("h16")
	r.detach(id, other.argv("payload")...)
	other.await(1)
	sup := r.start(bin(), append([]string{"exec", id, "--"}, p.argv("payload")...)...)
	p.await(1)
	if err := sup.id.kill(); err != nil {
		t.Fatal(err)
	}
	sup.wait()
	eventually(t, "true word about the task", func() bool {
		s := task(t, r.inspect(id), 2).State
		if len(livingIn(p.dir)) > 0 {
			return slices.Contains([]string{"running", "orphaned"}, s)
		}
		return slices.Contains([]string{"killed", "signaled", "lost", "failed"}, s)
	})
	other.ticking()
	if s := task(t, r.inspect(id), 1).State; s != "running" {
		t.Errorf("the other task is called %s", s)
	}
	r.closed(id, graceFlags()...)
	other.stopped()
	p.stopped()
}

// TestCloserKilled: the closer is killed in the middle of its work, at several
// moments. The next close finishes it.
func TestCloserKilled(t *testing.T) {
	for _, after := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 600 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			r := newRig(t)
			c := r.canary()
			p := r.payloads("payload")
			id := r.open("killed")
			r.detach(id, p.argv("E09")...)
			p.await(1)
			closer := r.start(bin(), "close", "--grace", "500ms", id)
			time.Sleep(after)
			if err := closer.id.kill(); err != nil {
				t.Fatal(err)
			}
			closer.wait()
			r.closed(id, graceFlags()...)
			p.stopped()
			c.lives()
			if _, ok := r.listed(id); ok {
				t.Error("the session is still listed")
			}
		})
	}
}

// TestCloseTwice: it is no error that somebody else has closed it, and closing again
// harms nobody.
func TestCloseTwice(t *testing.T) {
	r := newRig(t)
	p := r.payloads("payload")
	id := r.open("twice")
	r.detach(id, p.argv("E05")...)
	p.await(1)
	var both []*running
	for range 2 {
		both = append(both, r.start(bin(), "close", "--grace", "1s", id))
	}
	for _, c := range both {
		c.wait().must(t, 0, "close by two at once")
	}
	p.stopped()
	r.run("close", id).must(t, 0, "close of a closed session")
	r.run("close", "no-such-session").must(t, 3, "close of what never was")
}

// TestStartDuringClose is H19: commands are started all the time while the session is
// being closed. What a start that succeeded has left is ended by that close; a start
// after it is refused.
func TestStartDuringClose(t *testing.T) {
	r := newRig(t)
	p := r.payloads("payload")
	id := r.open("h19")
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			// Bounded: the close must come well before.
			for n := 0; n < 300 && !stop.Load(); n++ {
				r.exec(id, p.argv("E05")...)
			}
		})
	}
	p.await(5)
	r.closed(id, graceFlags()...)
	atClose := len(recordedIn(p.dir))
	p.stopped()
	stop.Store(true)
	wg.Wait()
	p.stopped()
	if n := len(recordedIn(p.dir)); n > atClose {
		t.Errorf("%d payloads began after the close had returned", n-atClose)
	}
	if o := r.exec(id, p.argv("E05")...); o.code == 0 {
		t.Error("a closed session took a command")
	}
}

// TestRecordsGone is promise 3: with all records deleted the kernel still says which
// session it is, and a close by id works.
func TestRecordsGone(t *testing.T) {
	r := newRig(t)
	c := r.canary()
	p := r.payloads("payload")
	id := r.open("records-gone")
	r.detach(id, p.argv("E05")...)
	p.await(1)
	// The supervisor may be writing a record: what appears meanwhile goes as well.
	eventually(t, "removal of the records", func() bool { return os.RemoveAll(r.stateDir()) == nil })
	i, ok := r.listed(id)
	if !ok {
		t.Fatal("a session without a record is not listed")
	}
	if i.Processes == 0 {
		t.Errorf("it is listed without its processes: %+v", i)
	}
	receipt := r.closed(id, graceFlags()...)
	for l := range recordedIn(p.dir) {
		if box, _ := names(receipt, l); !box {
			t.Errorf("the receipt does not name %v", l)
		}
	}
	p.stopped()
	c.lives()
}

// TestBadRecord: one record that cannot be read costs one session its comfort, no
// session its close, and the list nothing.
func TestBadRecord(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "no JSON": "{", "newer": `{"schema": 99}`, "binary": "\x00\x01"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			good, bad := r.open("good"), r.open("bad")
			p := r.payloads("payload")
			r.detach(bad, p.argv("E05")...)
			p.await(1)
			if err := os.WriteFile(r.sessionRecord(bad), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, id := range []string{good, bad} {
				if _, ok := r.listed(id); !ok {
					t.Errorf("session %s is not listed", id)
				}
			}
			r.closed(bad, graceFlags()...)
			p.stopped()
			r.closed(good)
		})
	}
}

// TestNoState is promise 6: the brake works where nothing can be written or read. Root
// is not stopped by modes; a file in the place of the state directory stops everybody.
func TestNoState(t *testing.T) {
	r := newRig(t)
	p := r.payloads("payload")
	id := r.open("brake")
	r.detach(id, p.argv("E09")...)
	p.await(1)
	saved := r.stateDir() + ".saved"
	if err := os.Rename(r.stateDir(), saved); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.stateDir(), []byte("not a directory"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := r.run("close", "--now", id)
	p.stopped()
	if o.code != 0 {
		t.Errorf("close without a usable state: exit code %d: %s", o.code, o.stderr)
	}
	if err := os.Remove(r.stateDir()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(saved, r.stateDir()); err != nil {
		t.Fatal(err)
	}
	r.run("close", id) // its record came back
}

// TestForgedPath: a record whose box is somebody else's cgroup. The inode and the mark
// on the directory do not match, so nothing in there is touched.
func TestForgedPath(t *testing.T) {
	r := newRig(t)
	out := outCgroup(t)
	victim := filepath.Join(out, "victim-"+tag())
	if err := os.Mkdir(victim, 0o755); err != nil {
		t.Skipf("no cgroup can be made here: %v", err)
	}
	t.Cleanup(func() {
		if err := killGroup(victim); err != nil {
			t.Error(err)
		}
		if err := removeGroup(victim); err != nil {
			t.Error(err)
		}
	})
	// It goes there by itself, without a cookie: from anywhere else this user may not
	// put it.
	p, way := r.payloads("victim"), r.open("way")
	r.exec(way, p.argv("group-survivor", "--out-cgroup", victim)...).must(t, 0, "exec")
	p.await(1)
	if r.box != "lineage" {
		r.closed(way, "--now")
	}
	id := r.open("forged")
	i, ok := r.listed(id)
	if !ok || i.Box.Path == "" {
		t.Fatalf("the list does not say where the box of %s is: %+v", id, i)
	}
	path := i.Box.Path
	forge(t, r.sessionRecord(id), map[string]any{"path": victim})
	o := r.run("close", "--now", id)
	t.Logf("close of a forged record: exit code %d: %s", o.code, strings.TrimSpace(string(o.stderr)))
	p.ticking()
	for s := range recordedIn(p.dir) {
		if !s.alive() {
			t.Errorf("%v in a cgroup that a forged record names was killed", s)
		}
	}
	if _, err := os.Stat(r.sessionRecord(id)); err == nil {
		forge(t, r.sessionRecord(id), map[string]any{"path": path})
	}
	r.run("close", "--now", id)
	if _, err := os.Stat(path); err == nil {
		t.Errorf("the session's own box %s is left", path)
	}
}
