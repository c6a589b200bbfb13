package integration_test

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// owner is a process that sessions belong to.
func (r *rig) owner() *running { return r.start("sleep", "3600") }

// die ends a process that the test started, as SIGKILL does.
func (p *running) die() {
	p.r.t.Helper()
	if err := p.id.kill(); err != nil {
		p.r.t.Fatal(err)
	}
	p.wait()
}

func (p *running) pid() string { return strconv.Itoa(p.id.pid) }

// reconcile runs it and gives what it says by session id.
func (r *rig) reconcile(flags ...string) map[string]session.Reconciled {
	r.t.Helper()
	o := r.run(append([]string{"reconcile", "--json"}, flags...)...).must(r.t, 0, "reconcile")
	return decodeReconciliation(r.t, o)
}

func decodeReconciliation(t *testing.T, o output) map[string]session.Reconciled {
	t.Helper()
	var all session.Reconciliation
	if err := json.Unmarshal(o.stdout, &all); err != nil {
		t.Fatalf("reconcile --json: %v\n%s\n%s", err, o.stdout, o.stderr)
	}
	by := map[string]session.Reconciled{}
	for _, s := range all.Sessions {
		by[s.ID] = s
	}
	return by
}

// failure reads the error of a command that was to fail with a code.
func (o output) failure(t *testing.T, code int) session.Info {
	t.Helper()
	o.must(t, code, "the command that is to fail")
	var f struct {
		Error struct {
			Code string        `json:"code"`
			Hint string        `json:"hint"`
			Info *session.Info `json:"info"`
		} `json:"error"`
	}
	if err := json.Unmarshal(o.stderr, &f); err != nil {
		t.Fatalf("%v: %s", err, o.stderr)
	}
	if f.Error.Hint == "" {
		t.Errorf("no hint: %s", o.stderr)
	}
	if f.Error.Info == nil {
		return session.Info{}
	}
	return *f.Error.Info
}

// TestHarnessKilled: a harness is killed while 20 commands of its session run, some of
// them out of the reach of any process group. reconcile ends all of it; a session that
// is to be kept lives, as does one of a living owner.
func TestHarnessKilled(t *testing.T) {
	r := newRig(t)
	stranger := r.canary()
	p, kept, living := r.payloads("payload"), r.payloads("kept"), r.payloads("living")
	harness := r.owner()
	id := r.open("work", "--owner-pid", harness.pid(), "--grace", "2s")
	keptID := r.open("stays", "--owner-pid", harness.pid(), "--on-owner-exit", "keep")
	other := r.owner()
	defer other.die()
	livingID := r.open("living", "--owner-pid", other.pid())
	started := make([]*running, 0, 10)
	for i := range 20 {
		what := []string{"E01", "E05", "E07", "payload"}[i%4]
		if i%2 == 0 {
			r.detach(id, p.argv(what)...)
			continue
		}
		started = append(started, r.start(bin(), append([]string{"exec", id, "--"}, p.argv(what)...)...))
	}
	r.detach(keptID, kept.argv("payload")...)
	r.detach(livingID, living.argv("payload")...)
	p.await(20)
	kept.await(1)
	living.await(1)

	if got := r.reconcile(); got[id].Action != "none" || got[id].Owner == nil || got[id].Owner.State != "alive" {
		t.Errorf("with a living owner: %s (%s), owner %+v", got[id].Action, got[id].Reason, got[id].Owner)
	}
	harness.die()
	if got := r.reconcile("--dry-run"); got[id].Action != "ended" || got[id].Running == 0 {
		t.Errorf("dry run: %s, %d running; want ended, what runs told", got[id].Action, got[id].Running)
	}
	p.ticking()
	got := r.reconcile()
	p.stopped()
	if s := got[id]; s.Action != "ended" || s.Receipt == nil || !s.Receipt.Clean() || !strings.Contains(s.Reason, "owner") || s.Next == "" {
		t.Errorf("the session: %+v", s)
	}
	if s := got[keptID]; s.Action != "kept" || s.Owner != nil || s.Running != 1 {
		t.Errorf("the session that is to stay: %s, owner %v, %d running", s.Action, s.Owner, s.Running)
	}
	if s := got[livingID]; s.Action != "none" || s.Running != 1 {
		t.Errorf("the session of a living owner: %s (%s), %d running", s.Action, s.Reason, s.Running)
	}
	for _, c := range started {
		c.wait()
	}
	kept.ticking()
	living.ticking()
	stranger.lives()
	if again := r.reconcile(); again[keptID].Action != "none" || again[livingID].Action != "none" || len(again) != 2 {
		t.Errorf("once more: %+v", again)
	}
	r.closed(keptID, graceFlags()...)
	r.closed(livingID, graceFlags()...)
	kept.stopped()
}

// resumers is how often two race for one session.
func resumers() int {
	if testing.Short() || tierName() == "vm" {
		return 10
	}
	return 100
}

// TestResumeRace: two processes attach to one name, again and again. There is never
// more than one owner, and who comes second is told who it is and what runs. When the
// owner dies the next one gets the session, with what still runs in it shown as alive.
func TestResumeRace(t *testing.T) {
	r := newRig(t)
	p := r.payloads("payload")
	first := r.owner()
	id := r.open("work", "--owner-pid", first.pid(), "--on-owner-exit", "keep")
	r.detach(id, p.argv("payload")...)
	p.await(1)
	holder := first
	generation := r.inspect(id).Owner.Generation
	for round := range resumers() {
		holder.die()
		racers := [2]*running{r.owner(), r.owner()}
		var calls [2]*running
		for i, o := range racers {
			calls[i] = r.start(bin(), "open", "--json", "--name", "work", "--attach", "--owner-pid", o.pid())
		}
		outs := [2]output{calls[0].wait(), calls[1].wait()}
		winner := 0
		if outs[0].code != 0 {
			winner = 1
		}
		loser := 1 - winner
		outs[winner].must(t, 0, "the winner")
		held := outs[loser].failure(t, 7)
		if held.Owner == nil || held.Owner.PID != racers[winner].id.pid || held.Owner.State != "alive" {
			t.Fatalf("round %d: the loser is told of the owner %+v; it is %d", round, held.Owner, racers[winner].id.pid)
		}
		if held.Running != 1 || len(held.Tasks) != 1 || held.Tasks[0].State != "running" {
			t.Fatalf("round %d: the loser is told of the tasks %+v", round, held.Tasks)
		}
		now := r.inspect(id)
		if now.Owner == nil || now.Owner.PID != racers[winner].id.pid || now.Owner.Generation != generation+1 {
			t.Fatalf("round %d: the owner is %+v, generation before %d", round, now.Owner, generation)
		}
		generation = now.Owner.Generation
		racers[loser].die()
		holder = racers[winner]
	}
	// The one who waits for the task dies with the owner.
	super := supervisorOf(t, r, id, 1)
	holder.die()
	if err := super.kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the supervisor to end", func() bool { return !super.alive() })
	last := r.owner()
	defer last.die()
	r.run("open", "--name", "work", "--attach", "--owner-pid", last.pid()).must(t, 0, "attach")
	if s := task(t, r.inspect(id), 1); s.State != "orphaned" || !(ident{s.PID, s.Start}).alive() {
		t.Errorf("the task is %s (%s); it lives, and nobody waits for it", s.State, s.Reason)
	}
	if got := r.reconcile()[id]; got.Action != "updated" || task(t, got.Info, 1).State != "orphaned" {
		t.Errorf("reconcile: %s, task %s", got.Action, task(t, got.Info, 1).State)
	}
	p.ticking()
	r.closed(id, graceFlags()...)
	p.stopped()
}

// supervisorOf is the process that waits for a task.
func supervisorOf(t *testing.T, r *rig, id string, n int) ident {
	t.Helper()
	var rec struct {
		Supervisor struct {
			PID   int    `json:"pid"`
			Start uint64 `json:"start"`
		} `json:"supervisor"`
	}
	readJSON(t, r.taskRecord(id, n), &rec)
	return ident{rec.Supervisor.PID, rec.Supervisor.Start}
}

// TestTakeOver: who takes a session from a living owner gets it, and the old owner is
// told with its next call, whichever that is.
func TestTakeOver(t *testing.T) {
	r := newRig(t)
	need(t, "bash")
	id := r.open("work")
	// A harness that owns the session, and says what became of each of its calls.
	script := `set -u; s=$1; sb=$2; dir=$3
		"$sb" open --name work --attach --owner-pid $$ >/dev/null || exit 90
		"$sb" exec "$s" -- true || exit 91
		touch "$dir/mine"
		until [ -e "$dir/taken" ]; do sleep 0.02; done
		"$sb" exec "$s" -- touch "$dir/ran"; echo "exec $?"
		"$sb" touch "$s"; echo "touch $?"
		"$sb" close --now "$s" >/dev/null; echo "close $?"
		"$sb" ls >/dev/null; echo "ls $?"
		"$sb" open --name work --take-over --owner-pid $$ >/dev/null; echo "take-over $?"
		"$sb" exec "$s" -- touch "$dir/ran-later"; echo "exec $?"`
	harness := r.start("bash", "-c", script, "harness", id, bin(), r.home)
	eventually(t, "the harness has its session", func() bool { return exists(filepath.Join(r.home, "mine")) })
	usurper := r.owner()
	defer usurper.die()
	held := r.run("open", "--json", "--name", "work", "--attach", "--owner-pid", usurper.pid()).failure(t, 7)
	if held.Owner == nil || held.Owner.PID != harness.id.pid {
		t.Errorf("attach to a session of a living owner is told of %+v", held.Owner)
	}
	r.run("open", "--name", "work", "--take-over", "--owner-pid", usurper.pid()).must(t, 0, "take over")
	write(t, filepath.Join(r.home, "taken"))
	o := harness.wait()
	want := "exec 125\ntouch 7\nclose 7\nls 0\ntake-over 0\nexec 0"
	if o.text() != want {
		t.Errorf("the old owner's calls ended with\n%s\nwant\n%s\n%s", o.text(), want, o.stderr)
	}
	if exists(filepath.Join(r.home, "ran")) || !exists(filepath.Join(r.home, "ran-later")) {
		t.Error("a command of the old owner ran, or one of the owner did not")
	}
	r.closed(id)
}

// TestLease: a lease holds for as long as it is renewed, and whoever renews one that has
// changed hands is told.
func TestLease(t *testing.T) {
	r := newRig(t)
	p := r.payloads("payload")
	var opened session.Info
	o := r.run("open", "--json", "--name", "work", "--backend", r.box, "--lease", "2s").must(t, 0, "open")
	if err := json.Unmarshal(o.stdout, &opened); err != nil {
		t.Fatal(err)
	}
	r.detach("work", p.argv("payload")...)
	p.await(1)
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		r.run("touch", "work").must(t, 0, "touch")
		if got := r.reconcile()[opened.ID]; got.Action != "none" {
			t.Fatalf("with its lease renewed: %s (%s)", got.Action, got.Reason)
		}
	}
	held := r.run("open", "--json", "--name", "work", "--attach", "--lease", "1m").failure(t, 7)
	if held.Owner == nil || held.Owner.LeaseSeconds != 2 {
		t.Errorf("attach is told of the owner %+v", held.Owner)
	}
	o = r.run("open", "--json", "--name", "work", "--take-over", "--lease", "2s").must(t, 0, "take over")
	var taken session.Info
	if err := json.Unmarshal(o.stdout, &taken); err != nil {
		t.Fatal(err)
	}
	if taken.ID != opened.ID || taken.Owner.Generation != opened.Owner.Generation+1 {
		t.Errorf("taken over: session %s of generation %d", taken.ID, taken.Owner.Generation)
	}
	old := r.run("touch", "--json", "work", "--generation", strconv.Itoa(opened.Owner.Generation)).failure(t, 7)
	if old.ID != opened.ID {
		t.Errorf("the old holder is told of %q", old.ID)
	}
	r.run("exec", "work", "--generation", strconv.Itoa(opened.Owner.Generation), "--", "true").must(t, 125, "exec for the old holder")
	r.run("close", "work", "--generation", strconv.Itoa(opened.Owner.Generation)).must(t, 7, "close for the old holder")
	r.run("kill", "work/1", "--generation", strconv.Itoa(opened.Owner.Generation)).must(t, 7, "kill for the old holder")
	r.run("keep", "work/1", "--generation", strconv.Itoa(opened.Owner.Generation)).must(t, 7, "keep for the old holder")
	r.run("touch", "work").must(t, 2, "touch without saying for whom")
	r.run("touch", "work", "--generation", strconv.Itoa(taken.Owner.Generation)).must(t, 0, "touch")
	eventually(t, "the lease to end", func() bool { return r.inspect("work").Owner.State == "gone" })
	got := r.reconcile()[opened.ID]
	if got.Action != "ended" || !strings.Contains(got.Reason, "lease") {
		t.Errorf("after its lease: %s (%s)", got.Action, got.Reason)
	}
	p.stopped()
}

// TestTakeOverByNobody: who takes a session over and does not say for whom makes it
// nobody's. Its old holder is told all the same.
func TestTakeOverByNobody(t *testing.T) {
	r := newRig(t)
	id := r.open("work", "--lease", "1h")
	r.run("open", "--name", "work", "--take-over").must(t, 0, "take over")
	if o := r.inspect(id).Owner; o != nil {
		t.Errorf("the owner is %+v", o)
	}
	for _, call := range [][]string{{"touch", "work"}, {"kill", "work"}, {"close", "work"}} {
		r.run(append(call, "--generation", "1")...).must(t, 7, call[0]+" for the old holder")
	}
	r.run("exec", "work", "--generation", "1", "--", "true").must(t, 125, "exec for the old holder")
	for line := range strings.Lines(string(r.run("events", "--json", "work").must(t, 0, "events").stdout)) {
		if strings.Contains(line, "close_failed") {
			t.Errorf("a close that was refused is told as one that failed: %s", line)
		}
	}
	r.closed(id)
}

// TestBadOwners: what cannot own a session is refused, with a hint, and nothing is
// opened.
func TestBadOwners(t *testing.T) {
	r := newRig(t)
	gone := r.start("true")
	gone.wait()
	for _, c := range []struct {
		code  int
		flags []string
	}{
		{2, []string{"--owner-pid", "0"}},
		{2, []string{"--owner-pid", "-1"}},
		{2, []string{"--owner-pid", "1"}},
		{2, []string{"--owner-pid", "99999999"}},
		{2, []string{"--owner-pid", "me"}},
		{2, []string{"--owner-pid", gone.pid()}},
		{2, []string{"--lease", "0"}},
		{2, []string{"--lease", "-5s"}},
		{2, []string{"--lease", "0.001"}},
		{2, []string{"--lease", "10s", "--owner-pid", "2"}},
		{2, []string{"--on-owner-exit", "keep"}},
		{2, []string{"--lease", "10s", "--on-owner-exit", "explode"}},
		{2, []string{"--idle-action", "close"}},
		{2, []string{"--idle-timeout", "5m", "--idle-action", "explode"}},
		{2, []string{"--idle-timeout", "-5m"}},
		{2, []string{"--attach"}},
		{2, []string{"--name", ""}},
	} {
		t.Run(strings.Join(c.flags, " "), func(t *testing.T) {
			r.run(append([]string{"open", "--json", "--backend", r.box}, c.flags...)...).failure(t, c.code)
		})
	}
	r.nothing("after refusals")
	r.run("open", "--name", "long", "--backend", r.box, "--lease", "36500d").must(t, 0, "a lease of centuries")
	if got := r.inspect("long").Owner; got.State != "alive" {
		t.Errorf("a lease of centuries: %+v", got)
	}
	r.closed("long")
}

// TestElsewhere: records of another boot, of another machine and of another pid
// namespace. Of the first it is said that the host was rebooted; the others are left
// alone, since nothing can be told of them here. No pid in them is signalled, though
// each is a canary's.
func TestElsewhere(t *testing.T) {
	r := newRig(t)
	c := r.canary()
	identity := map[string]any{"pid": c.id.pid, "start": c.id.start}
	begin := func(name string) (string, payloads) {
		p := r.payloads(name)
		id := r.open(name, "--lease", "1h")
		r.detach(id, p.argv("payload")...)
		p.await(1)
		return id, p
	}
	with := func(extra map[string]any) map[string]any {
		m := maps.Clone(identity)
		maps.Copy(m, extra)
		return m
	}

	ns, p := begin("namespace")
	other := map[string]any{"pid_namespace": 4026531835}
	forge(t, r.sessionRecord(ns), map[string]any{"owner": map[string]any{"process": with(other), "generation": 1, "boot": bootID(t), "since": time.Now()}})
	forge(t, r.taskRecord(ns, 1), with(map[string]any{"pid_namespace": 4026531835, "supervisor": with(other)}))
	if got := r.reconcile()[ns]; got.Action == "ended" || got.Owner.State != "unknown" {
		t.Errorf("an owner in another pid namespace: %s (%s), owner %s", got.Action, got.Reason, got.Owner.State)
	}
	p.ticking()
	c.lives()

	machine, q := begin("machine")
	forge(t, r.sessionRecord(machine), map[string]any{"machine": "00000000000000000000000000000000",
		"owner": map[string]any{"process": with(nil), "generation": 1, "boot": "x", "since": time.Now()}})
	if got := r.reconcile()[machine]; got.Action != "skipped" || !strings.Contains(got.Reason, "another machine") {
		t.Errorf("a session of another machine: %s (%s)", got.Action, got.Reason)
	}
	q.ticking()

	boot, _ := begin("boot")
	forge(t, r.sessionRecord(boot), map[string]any{"boot": "11111111-2222-3333-4444-555555555555",
		"owner": map[string]any{"process": identity, "generation": 1, "boot": "11111111-2222-3333-4444-555555555555", "since": time.Now()}})
	if got := r.reconcile()[boot]; got.Action != "ended" || got.Reason != "host rebooted" || len(got.Receipt.Processes)+len(got.Receipt.Strays) != 0 {
		t.Errorf("a session of another boot: %s (%s), %+v", got.Action, got.Reason, got.Receipt)
	}
	newer, _ := begin("newer")
	forge(t, r.sessionRecord(newer), map[string]any{"schema": 99})
	if got := r.reconcile()[newer]; got.Action != "skipped" || len(got.Problems) == 0 {
		t.Errorf("a record of a newer schema: %s (%s) %v", got.Action, got.Reason, got.Problems)
	}
	c.lives()
	forge(t, r.sessionRecord(newer), map[string]any{"schema": 1})
	forge(t, r.sessionRecord(machine), map[string]any{"machine": ""})
	r.sweep("at the end")
	// What ran in the session that was said to be of another boot has lost its record.
	for _, id := range []string{boot} {
		r.run("close", "--now", id)
	}
}

// TestClockSteps is of the clock that people set: nothing is measured by it.
func TestClockSteps(t *testing.T) {
	r := newRig(t)
	id := r.open("work", "--lease", "1h", "--idle-timeout", "1h", "--idle-action", "close")
	for _, created := range []time.Time{time.Now().Add(-30 * 24 * time.Hour), time.Now().Add(30 * 24 * time.Hour)} {
		forge(t, r.sessionRecord(id), map[string]any{"created": created})
		if got := r.reconcile()[id]; got.Action != "none" {
			t.Errorf("opened %v: %s (%s)", created, got.Action, got.Reason)
		}
	}
	r.closed(id)
}
