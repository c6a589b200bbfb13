package integration_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
	"golang.org/x/sys/unix"
)

// countedApart skips on hosts in namespaces: they have no memory controller, and what is
// done without one the tier cgroup shows. Guests have it.
func countedApart(t *testing.T) {
	t.Helper()
	if tierName() == "systemd" {
		t.Skip("without a memory controller it is as on the tier cgroup")
	}
}

// happened are the events of a kind in the history of the rig, the oldest first.
func (r *rig) happened(kind string) (all []store.Event) {
	r.t.Helper()
	o := r.run("events", "--json", "--since", "1h", "--event", kind).must(r.t, 0, "events")
	for line := range strings.Lines(string(o.stdout)) {
		var e store.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			r.t.Fatalf("%q: %v", line, err)
		}
		all = append(all, e)
	}
	return all
}

// warnings are those of a session that people are to see.
func (r *rig) warnings(id string) (all []memlimit.Warning, at []time.Time) {
	r.t.Helper()
	for _, e := range r.happened(session.EventMemoryWarning) {
		var w memlimit.Warning
		if err := json.Unmarshal(e.Detail, &w); err != nil {
			r.t.Fatalf("%s: %v", e.Detail, err)
		}
		if e.ID == id && w.Level >= memlimit.Warn {
			all, at = append(all, w), append(at, e.Time)
		}
	}
	return all, at
}

// enforced says whether the kernel enforces the memory ceiling of a session.
func (r *rig) enforced(id string) bool {
	r.t.Helper()
	i := slices.IndexFunc(r.inspect(id).Limits, func(c memlimit.Ceiling) bool { return c.File == "memory.max" })
	return i >= 0 && r.inspect(id).Limits[i].InForce
}

// leak is the command line of one that takes that much at 15 MiB a second: what is to
// be done to it is not spared for having been opened just now, when that is due.
func (p payloads) leak(mib string) []string { return p.argv("leak", "--arg", mib+"/15") }

// TestMemoryWarning: a session that leaks is warned of, by name and with who takes it,
// before the kernel kills there; its command is run, and a session at rest is warned of
// by nobody. Where the kernel has no controller the ceiling is warned of all the same.
func TestMemoryWarning(t *testing.T) {
	r := newRig(t)
	r.guarded()
	defer r.endGuard()
	p, calm := r.payloads("leak"), r.payloads("calm")
	called := filepath.Join(r.home, "called")
	const on = `echo "$SESSIONBOX_WARN_NAME $SESSIONBOX_WARN_LEVEL $SESSIONBOX_WARN_LIMIT_BYTES $SESSIONBOX_WARN_SESSION" >>`
	id := r.open("leaks", "--memory-max", "256M", "--on-warn", on+called)
	calmID := r.open("calm", "--memory-max", "256M")
	if _, ok := r.guard(); !ok {
		t.Fatal("no guard was started for a session with a memory ceiling")
	}
	r.detach(calmID, calm.argv("payload")...)
	calm.await(1)
	enforced := r.enforced(id)
	r.detach(id, p.leak("400")...)
	var all []memlimit.Warning
	var at []time.Time
	eventually(t, "a warning", func() bool { all, at = r.warnings(id); return len(all) > 0 })
	w := all[0]
	if w.Change != memlimit.Raised || w.Who.Session != id || w.Limit.Session != id || w.LimitBytes == nil || *w.LimitBytes != 256<<20 || w.HardBytes > 256<<20 {
		t.Errorf("the warning is %+v", w)
	}
	if len(w.Processes) == 0 || w.Processes[0].Task != 1 || w.Processes[0].Bytes < w.HardBytes/2 {
		t.Errorf("it names %+v", w.Processes)
	}
	if want := map[bool]memlimit.Tier{true: memlimit.TierCgroup, false: memlimit.TierProcesses}[enforced]; w.Tier != want {
		t.Errorf("it was measured by %s, want %s", w.Tier, want)
	}
	var told []byte // once there is a whole line: the shell makes the file first
	eventually(t, "its command", func() bool { told, _ = os.ReadFile(called); return strings.Contains(string(told), "\n") })
	if f := strings.Fields(string(told)); len(f) < 4 || f[0] != "leaks" || f[2] != "268435456" || f[3] != id {
		t.Errorf("the command was told %q", told)
	}
	if enforced {
		eventually(t, "the kernel to kill it", func() bool { return task(t, r.inspect(id), 1).Ended != nil })
		if end := *task(t, r.inspect(id), 1).Ended; end.Before(at[0]) {
			t.Errorf("it was warned of at %v and had died at %v", at[0], end)
		} else {
			t.Logf("it was warned of %v before it died", end.Sub(at[0]).Round(100*time.Millisecond))
		}
	}
	if all, _ := r.warnings(calmID); len(all) > 0 {
		t.Errorf("the session at rest was warned of: %+v", all)
	}
	calm.ticking()
	r.closed(id, graceFlags()...)
	r.closed(calmID, graceFlags()...)
	p.stopped()
}

// TestMemoryRun: who waits for a run is told on stderr of what its session runs into.
func TestMemoryRun(t *testing.T) {
	countedApart(t)
	r := newRig(t)
	r.guarded()
	defer r.endGuard()
	p := r.payloads("leak")
	run := r.start(bin(), append([]string{"run", "--name", "run-" + tag(), "--memory-max", "256M", "--"}, p.leak("230")...)...)
	p.await(1) // it holds all of it, and lives
	eventually(t, "a warning", func() bool { return len(r.happened(session.EventMemoryWarning)) > 0 })
	r.closeAll()
	o := run.wait()
	if text := string(o.stderr); !strings.Contains(text, "sessionbox: memory: session run-") || !strings.Contains(text, "256 MiB (its own limit)") {
		t.Errorf("stderr of the run is %s", text)
	}
}

// TestMemoryBrake: where brakes are allowed they are armed before they are needed, and read
// back as what they are; one that the user has set is left alone. A guard that is killed
// leaves them to the next, and one that ends takes them away.
func TestMemoryBrake(t *testing.T) {
	countedApart(t)
	r := newRig(t)
	r.guarded()
	defer r.endGuard()
	id := r.open("braked", "--memory-max", "256M", "--memory-steps", "brake")
	mine := r.open("mine", "--memory-max", "256M", "--memory-high", "200M", "--memory-steps", "brake")
	if !r.enforced(id) {
		t.Skip("without a memory controller there are no brakes")
	}
	high := func(id string) string { return control(t, r.inspect(id).Box.Path, "memory.high") }
	at := func(ceiling uint64) string { return strconv.FormatUint(memlimit.BrakeAt(ceiling), 10) }
	eventually(t, "the brake to be armed", func() bool { return high(id) == at(256<<20) })
	i := slices.IndexFunc(r.inspect(id).Limits, func(c memlimit.Ceiling) bool { return c.File == "memory.high" })
	if i < 0 || !strings.Contains(r.inspect(id).Limits[i].Note, "guard's brake") {
		t.Errorf("it is read back as %+v", r.inspect(id).Limits)
	}
	eventually(t, "that to be told", func() bool {
		return slices.ContainsFunc(r.happened(session.EventMemoryAction), func(e store.Event) bool { return e.ID == id && strings.HasPrefix(e.Msg, "arm: ") })
	})
	r.run("limit", id, "--memory-max", "512M").must(t, 0, "limit")
	eventually(t, "the brake to be moved", func() bool { return high(id) == at(512<<20) })
	r.run("limit", id, "--memory-max", "max").must(t, 0, "limit")
	if got := high(id); got != "max" {
		t.Errorf("without a ceiling memory.high is %s", got)
	}
	r.run("limit", id, "--memory-max", "512M").must(t, 0, "limit")
	eventually(t, "the brake to be armed again", func() bool { return high(id) == at(512<<20) })
	g, ok := r.guard()
	if !ok {
		t.Fatal("no guard")
	}
	if err := g.signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.exec(id, "true").must(t, 0, "exec, which sees to a guard")
	if now, ok := r.guard(); !ok || now == g {
		t.Fatalf("after %v was killed %v watches, %v", g, now, ok)
	}
	if got := high(id); got != at(512<<20) {
		t.Errorf("after the guard was killed memory.high is %s", got)
	}
	r.endGuard()
	if got := high(id); got != "max" {
		t.Errorf("a guard that ended has left memory.high at %s", got)
	}
	if got := high(mine); got != kernelSize("200M") {
		t.Errorf("what the user has asked for is %s now", got)
	}
	r.closed(id, graceFlags()...)
	r.closed(mine, graceFlags()...)
}

// TestMemoryFreeze: a session that may be frozen is before it is full: nothing in it
// dies. With more room it is thawed and runs on; one that is protected is let run.
func TestMemoryFreeze(t *testing.T) {
	countedApart(t)
	r := newRig(t)
	r.guarded()
	defer r.endGuard()
	p, q := r.payloads("leak"), r.payloads("protected")
	id := r.open("leaks", "--memory-max", "256M", "--memory-steps", "freeze")
	safe := r.open("protected", "--memory-max", "256M", "--memory-steps", "freeze,close", "--protected")
	r.detach(id, p.leak("400")...)
	r.detach(safe, q.leak("230")...)
	eventually(t, "it to be frozen", func() bool { w := r.inspect(id).MemoryWatch; return w != nil && w.FrozenSeconds != nil })
	if !r.inspect(id).Box.Frozen {
		t.Error("it is said to be frozen and runs")
	}
	if i := r.inspect(id); i.Usage.OOMKills != nil && *i.Usage.OOMKills > 0 {
		t.Errorf("it was frozen after the kernel had killed in it")
	}
	eventually(t, "the freeze to be told", func() bool {
		return slices.ContainsFunc(r.happened(session.EventMemoryAction), func(e store.Event) bool {
			return e.ID == id && strings.HasPrefix(e.Msg, "freeze: ") && strings.Contains(e.Msg, "leaks")
		})
	})
	if o := r.exec(id, "true").must(t, 125, "exec in a session that is frozen"); !strings.Contains(string(o.stderr), "for want of memory") {
		t.Errorf("exec does not say why it is frozen: %s", o.stderr)
	}
	r.run("limit", id, "--memory-max", "1G").must(t, 0, "limit")
	eventually(t, "it to be thawed", func() bool { return !r.inspect(id).Box.Frozen })
	p.await(1) // it has got all that it wants
	q.await(1)
	for _, e := range r.happened(session.EventMemoryAction) {
		if e.ID == safe && !strings.HasPrefix(e.Msg, "helpless") {
			t.Errorf("the protected session was not let alone: %s", e.Msg)
		}
	}
	r.closed(id, graceFlags()...)
	r.closed(safe, graceFlags()...)
	p.stopped()
	q.stopped()
}

// TestMemoryClose: of two sessions the one that leaks is closed, with the reason in its
// receipt, and the other one lives.
func TestMemoryClose(t *testing.T) {
	countedApart(t)
	r := newRig(t)
	r.guarded()
	defer r.endGuard()
	p, other := r.payloads("leak"), r.payloads("other")
	id := r.open("leaks", "--memory-max", "256M", "--memory-steps", "close", "--grace", "0.2")
	otherID := r.open("other", "--memory-max", "256M", "--memory-steps", "close")
	r.detach(otherID, other.argv("payload")...)
	other.await(1)
	r.detach(id, p.leak("400")...)
	eventually(t, "it to be closed", func() bool { _, ok := r.listed(id); return !ok })
	receipts := r.happened(session.EventClosed)
	i := slices.IndexFunc(receipts, func(e store.Event) bool { return e.ID == id })
	var receipt session.Receipt
	if i < 0 || json.Unmarshal(receipts[i].Detail, &receipt) != nil || !strings.HasPrefix(receipt.Reason, "memory: session leaks") {
		t.Errorf("its receipt says %q", receipt.Reason)
	}
	p.stopped()
	other.ticking()
	r.closed(otherID, graceFlags()...)
}

// TestMemoryOfReading: page cache is no use of memory. Who reads ten times its ceiling from
// files is warned of by nobody.
func TestMemoryOfReading(t *testing.T) {
	countedApart(t)
	r := newRig(t)
	r.guarded()
	defer r.endGuard()
	dir := r.home
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err == nil && st.Type == unix.TMPFS_MAGIC { // it has no page cache
		var err error
		if dir, err = os.MkdirTemp("/var/tmp", "sbxtest-"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
	}
	const size = 5 << 30
	file := filepath.Join(dir, "much")
	write(t, file)
	if err := errors.Join(os.Truncate(file, size), os.Chmod(file, 0o644)); err != nil { // all of it is a hole
		t.Fatal(err)
	}
	id := r.open("reads", "--memory-max", "512M")
	if o := r.exec(id, "sh", "-c", "cat "+file+" | wc -c").must(t, 0, "read"); o.text() != strconv.Itoa(size) {
		t.Errorf("it read %s bytes", o.text())
	}
	r.quiet(id)
}

// TestMemoryOfBuilding: a real build has bursts and is no leak.
func TestMemoryOfBuilding(t *testing.T) {
	r := newRig(t)
	if _, err := exec.LookPath("go"); err != nil || tierName() != "cgroup" {
		t.Skip("only the machine itself has a Go toolchain and its modules")
	}
	r.guarded()
	defer r.endGuard()
	id := r.open("builds", "--memory-max", "3G")
	r.run("exec", "-d", "-e", "GOCACHE="+filepath.Join(r.home, "gocache"), "-e", "CGO_ENABLED=0", id, "--",
		"go", "build", "-o", filepath.Join(r.home, "built"), "../cmd/sessionbox").must(t, 0, "exec -d")
	for end := time.Now().Add(buildTime); task(t, r.inspect(id), 1).Ended == nil && time.Now().Before(end); {
		time.Sleep(time.Second)
	}
	if k := task(t, r.inspect(id), 1); k.State != "exited" || !exists(filepath.Join(r.home, "built")) {
		t.Errorf("the build is %s, exit code %v", k.State, k.Exit)
	}
	r.quiet(id)
}

// buildTime is how long a build of this module from nothing may take where everything else
// is slow, too.
const buildTime = 10 * time.Minute

// quiet asserts that a session was watched and that nobody warned of it.
func (r *rig) quiet(id string) {
	r.t.Helper()
	_, running := r.guard()
	if w := r.inspect(id).MemoryWatch; !running || w == nil || !w.Warn {
		r.t.Errorf("its memory was not watched: guard %v, %+v", running, w)
	}
	if all, _ := r.warnings(id); len(all) > 0 {
		r.t.Errorf("it was warned of: %+v", all)
	}
	r.closed(id, graceFlags()...)
}
