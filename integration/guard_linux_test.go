package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// guarded has the commands of the rig start guards as they do for everybody.
func (r *rig) guarded() {
	r.env = slices.DeleteFunc(slices.Clone(r.env), func(kv string) bool { return kv == "SESSIONBOX_GUARD=off" })
}

// guard is the guard of the rig, as its lock tells; false when there is none.
func (r *rig) guard() (ident, bool) {
	b, err := os.ReadFile(filepath.Join(r.stateDir(), "guard.lock"))
	if err != nil {
		return ident{}, false
	}
	var note struct {
		Process struct {
			PID   int    `json:"pid"`
			Start uint64 `json:"start"`
		} `json:"process"`
	}
	if json.Unmarshal(b, &note) != nil || note.Process.PID == 0 {
		return ident{}, false
	}
	id := ident{note.Process.PID, note.Process.Start}
	return id, id.alive()
}

// endGuard ends the guard that a test has left. It is asked to: a service manager starts
// one that was killed again.
func (r *rig) endGuard() {
	eventually(r.t, "the guard to end", func() bool {
		g, ok := r.guard()
		if ok {
			if err := g.signal(unix.SIGTERM); err != nil {
				r.t.Error(err)
			}
		}
		return !ok
	})
}

// harness is 20 commands of a session that belongs to a process, some of them out of
// the reach of any process group; the session closes fast.
func (r *rig) harness(p payloads) (owner *running, id string, calls []*running) {
	r.t.Helper()
	owner = r.owner()
	before := len(recordedIn(p.dir))
	id = r.open("work-"+tag(), "--owner-pid", owner.pid(), "--grace", "0.2")
	for i := range 20 {
		what := []string{"E01", "E05", "E06", "E09"}[i%4]
		if i%2 == 0 {
			r.detach(id, p.argv(what)...)
			continue
		}
		calls = append(calls, r.start(bin(), append([]string{"exec", id, "--"}, p.argv(what)...)...))
	}
	p.await(before + 20)
	return owner, id, calls
}

// gone waits until nobody of a payload directory is alive, and says how long it took.
func (p payloads) gone(since time.Time) time.Duration {
	p.r.t.Helper()
	eventually(p.r.t, "everything of "+p.dir+" to be gone", func() bool { return len(livingIn(p.dir)) == 0 })
	return time.Since(since)
}

// TestGuardOwnerKilled: a harness is killed while 20 commands of its session run. With
// the guard all of it is gone at once; with the guard killed first it is gone as soon as
// there is one again. What is to be kept lives, here as there.
func TestGuardOwnerKilled(t *testing.T) {
	r := newRig(t)
	r.guarded()
	stranger := r.canary()
	p, kept, moved := r.payloads("payload"), r.payloads("kept"), r.payloads("moved")
	owner, id, calls := r.harness(p)
	keptID := r.open("stays", "--owner-pid", owner.pid(), "--on-owner-exit", "keep")
	r.detach(keptID, kept.argv("payload")...)
	r.detach(id, moved.argv("payload")...)
	kept.await(1)
	moved.await(1)
	movedRef := r.run("keep", id+"/21").must(t, 0, "keep").text()
	g, ok := r.guard()
	if !ok {
		t.Fatal("no guard was started for a session with an owner")
	}
	began := time.Now()
	owner.die()
	t.Logf("with the guard everything was gone after %v", p.gone(began).Round(time.Millisecond))
	for _, c := range calls {
		c.wait()
	}
	eventually(t, "the session to be closed", func() bool { _, ok := r.listed(id); return !ok })
	kept.ticking()
	moved.ticking()

	owner, id, calls = r.harness(p)
	if again, ok := r.guard(); !ok || again != g {
		t.Errorf("a second guard: %v, was %v", again, g)
	}
	if err := g.kill(); err != nil {
		t.Fatal(err)
	}
	owner.die()
	if r.box == "cgroup" { // elsewhere a service manager has started it anew
		p.ticking()
	}
	began = time.Now()
	other := r.owner()
	defer other.die()
	r.open("next", "--owner-pid", other.pid()) // starts a guard, which looks at everything
	t.Logf("with a new guard everything was gone after %v", p.gone(began).Round(time.Millisecond))
	for _, c := range calls {
		c.wait()
	}
	eventually(t, "the session to be closed", func() bool { _, ok := r.listed(id); return !ok })
	kept.ticking()
	moved.ticking()
	stranger.lives()
	r.closed("next")
	r.closed(keptID, graceFlags()...)
	name, _, _ := strings.Cut(movedRef, "/")
	r.closed(name, graceFlags()...)
}

// TestGuardTimes: a lease, a time limit whose supervisor is gone and an idle time end by
// themselves, with nobody calling the command; what is looked at all the time, by ls,
// inspect and the scraping of metrics, is idle all the same.
func TestGuardTimes(t *testing.T) {
	r := newRig(t)
	socket := filepath.Join(r.home, "metrics.sock")
	guard := r.start(bin(), "guard", "--metrics", "unix:"+socket)
	defer func() {
		if err := guard.id.kill(); err != nil {
			t.Error(err)
		}
		guard.wait()
	}()
	eventually(t, "the guard", func() bool { _, ok := r.guard(); return ok && exists(socket) })
	leased, timed := r.payloads("leased"), r.payloads("timed")
	leasedID := r.open("leased", "--lease", "2s", "--grace", "0.2")
	r.detach(leasedID, leased.argv("E05")...)
	timedID := r.open("timed")
	r.run(append([]string{"exec", "-d", "--timeout", "2s", "--kill-after", "0.5", timedID, "--"}, timed.argv("payload")...)...).must(t, 0, "exec -d")
	timed.await(1)
	if err := supervisorOf(t, r, timedID, 1).kill(); err != nil {
		t.Fatal(err)
	}
	idleID := r.open("idle", "--idle-timeout", "3s", "--idle-action", "freeze")
	r.detach(idleID, "sleep", "3600")
	busyID := r.open("busy", "--idle-timeout", "3s", "--idle-action", "freeze")
	r.detach(busyID, "sh", "-c", "while :; do :; done")
	offID := r.open("off")
	r.detach(offID, "sleep", "3600")
	began := time.Now()
	frozen := time.Duration(0)
	for time.Since(began) < patience() && (frozen == 0 || time.Since(began) < 7*time.Second) {
		r.list()
		if r.inspect(idleID).Box.Frozen && frozen == 0 {
			frozen = time.Since(began)
		}
		if body := scrape(t, socket); !strings.Contains(body, "sessionbox_sessions{") {
			t.Fatalf("the metrics are\n%s", body)
		}
		time.Sleep(200 * time.Millisecond) // oftener than anybody looks
	}
	if frozen == 0 {
		t.Error("the session that was only looked at was never frozen")
	}
	t.Logf("it was frozen after %v of 3s", frozen.Round(100*time.Millisecond))
	if r.inspect(busyID).Box.Frozen || r.inspect(offID).Box.Frozen {
		t.Error("a session that works, or one with no idle timeout, was frozen")
	}
	leased.stopped()
	timed.stopped()
	if s := task(t, r.inspect(timedID), 1); s.State != "timed_out" {
		t.Errorf("the task that was out of time is %s (%s)", s.State, s.Reason)
	}
	if _, ok := r.listed(leasedID); ok {
		t.Error("the session whose lease ended is open")
	}
	if o := r.exec(idleID, "echo", "awake"); o.text() != "awake" {
		t.Errorf("exec in the frozen session: %d %s", o.code, o.stderr)
	}
	if body := scrape(t, socket); !strings.Contains(body, "sessionbox_reconcile_actions_total{action=\"frozen\"} 1") || !strings.Contains(body, "sessionbox_reconcile_actions_total{action=\"ended\"} 1") {
		t.Errorf("the metrics count otherwise:\n%s", body)
	}
	r.sweep("at the end")
}

// scrape reads the metrics of a guard.
func scrape(t *testing.T, socket string) string {
	t.Helper()
	c := http.Client{Timeout: patience(), Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}}
	resp, err := c.Get("http://guard/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v: %s", resp.Status, err, body)
	}
	return string(body)
}

// TestTwoGuards: of any number that are started at once one works; one that reads a
// broken config ends, and the one at work goes on.
func TestTwoGuards(t *testing.T) {
	r := newRig(t)
	guards := make([]*running, 4)
	for i := range guards {
		guards[i] = r.start(bin(), "guard")
	}
	defer func() {
		for _, g := range guards {
			if err := g.id.kill(); err != nil {
				t.Error(err)
			}
			g.wait()
		}
	}()
	var living []*running
	eventually(t, "one guard", func() bool {
		living = living[:0]
		for _, g := range guards {
			if g.id.alive() {
				living = append(living, g)
			}
		}
		return len(living) == 1
	})
	config := filepath.Join(r.home, "config")
	if err := os.MkdirAll(filepath.Join(config, "sessionbox"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(config, "sessionbox", "config.toml"), []byte("[guard\nnonsense"), 0o644); err != nil {
		t.Fatal(err)
	}
	fine := r.env
	r.env = append(slices.Clone(r.env), "XDG_CONFIG_HOME="+config)
	o := r.run("guard")
	if o.code == 0 || !strings.Contains(string(o.stderr), "config") {
		t.Errorf("a guard with a broken config: %d, %s", o.code, o.stderr)
	}
	r.env = fine
	if g, ok := r.guard(); !ok || g != living[0].id {
		t.Errorf("the guard is %v, was %v", g, living[0].id)
	}
	p := r.payloads("payload")
	owner := r.owner()
	id := r.open("work", "--owner-pid", owner.pid(), "--grace", "0.2")
	r.detach(id, p.argv("E05")...)
	p.await(1)
	began := time.Now()
	owner.die()
	t.Logf("everything was gone after %v", p.gone(began).Round(time.Millisecond))
}

// TestStuckReader: a reader of events that stops reading holds up nobody.
func TestStuckReader(t *testing.T) {
	r := newRig(t)
	r.guarded()
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pr.Close()
	reader := r.startWith(ownGroup(), pw, bin(), "events", "-f", "--json")
	pw.Close()
	defer reader.die()
	for i := range 40 { // more than a pipe holds: it is stuck by then
		owner := r.owner()
		id := r.open(fmt.Sprintf("s%d-%s", i, strings.Repeat("x", 40)), "--owner-pid", owner.pid(), "--label", "filler="+strings.Repeat("y", 2000))
		r.exec(id, "sh", "-c", ": "+strings.Repeat("z", 2000)).must(t, 0, "exec")
		owner.die()
		eventually(t, "the session to be closed", func() bool { return !exists(r.sessionRecord(id)) })
	}
}

// TestGuardStatus: the guard learns how a command ended that nobody of ours waits for:
// one that replaced its starter, and one whose supervisor was killed.
func TestGuardStatus(t *testing.T) {
	r := newRig(t)
	r.guarded()
	owner := r.owner()
	defer owner.die()
	id := r.open("work", "--owner-pid", owner.pid()) // for the guard
	gate := filepath.Join(r.home, "gate")
	script := "until [ -e " + gate + " ]; do sleep 0.02; done; exit 7"
	replaced := r.start(bin(), "exec", "--replace", id, "--", "sh", "-c", script)
	eventually(t, "the command", func() bool { i, _ := r.listed(id); return i.Running == 1 })
	r.detach(id, "sh", "-c", script)
	if err := supervisorOf(t, r, id, 2).kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the guard to see that nobody waits", func() bool { return recorded(t, r, id, 2) == "orphaned" })
	write(t, gate)
	if o := replaced.wait(); o.code != 7 {
		t.Errorf("exec --replace ended with %d: %s", o.code, o.stderr)
	}
	for n, told := range map[int]bool{1: true, 2: exitIsTold()} {
		s := ""
		eventually(t, fmt.Sprintf("the end of task %d in its record", n), func() bool {
			if now := recorded(t, r, id, n); now != s {
				t.Logf("task %d is %s", n, now)
				s = now
			}
			return s == "failed" || !told && s == "lost" || n == 1 && !exitIsTold() && s == "exited"
		})
	}
	if ti := task(t, r.inspect(id), 2); exitIsTold() && (ti.Exit == nil || *ti.Exit != 7) {
		t.Errorf("task 2 is %s, status %v", ti.State, ti.Exit)
	}
	r.closed(id)
}

// recorded is the state in the record of a task.
func recorded(t *testing.T, r *rig, id string, n int) string {
	t.Helper()
	var rec struct{ State string }
	readJSON(t, r.taskRecord(id, n), &rec)
	return rec.State
}

// exitIsTold says whether this kernel tells the status of a process that its parent has
// reaped (6.15).
func exitIsTold() bool { return kernelFrom(6, 15) }

// kernelFrom says whether the kernel is of that version or newer.
func kernelFrom(major, minor int) bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	var x, y int
	fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &x, &y)
	return x > major || x == major && y >= minor
}

// TestNoGuardByDetached: who has turned guards off gets none from the supervisor of a
// detached command either, whose environment is not the user's.
func TestNoGuardByDetached(t *testing.T) {
	r := newRig(t)
	owner := r.owner()
	defer owner.die()
	id := r.open("work", "--owner-pid", owner.pid())
	r.detach(id, "sleep", "3600")
	if g, ok := r.guard(); ok {
		t.Errorf("guard %v runs", g)
	}
	r.closed(id)
}

// TestGuardAskedTwice: a second SIGTERM does not cut short how it ends.
func TestGuardAskedTwice(t *testing.T) {
	r := newRig(t)
	socket := filepath.Join(r.home, "metrics.sock")
	for range 5 {
		guard := r.start(bin(), "guard", "--metrics", "unix:"+socket)
		eventually(t, "the guard", func() bool { _, ok := r.guard(); return ok && exists(socket) })
		for range 2 {
			if err := guard.id.signal(unix.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
		guard.wait().must(t, 0, "guard")
		if exists(socket) {
			t.Error("its socket is left")
		}
	}
}

// TestGuardKilledIsReplaced: whoever uses a session that must be watched starts a guard
// anew the moment after it was killed: one that the kernel is still taking apart holds
// its lock and watches nothing.
func TestGuardKilledIsReplaced(t *testing.T) {
	r := newRig(t)
	r.guarded()
	defer r.endGuard()
	id := r.open("leased", "--lease", "10m")
	times := 10
	if r.box == "systemd" { // whose manager starts a service again after a second, and five times at most
		times = 3
	}
	for range times {
		g, ok := r.guard()
		if !ok {
			t.Fatal("no guard runs")
		}
		if err := g.signal(unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		o := r.exec(id, "true").must(t, 0, "exec")
		if now, ok := r.guard(); !ok || now == g {
			t.Fatalf("after %v was killed, %v watches (%v); exec said %q", g, now, ok, o.stderr)
		}
	}
	r.closed(id)
}
