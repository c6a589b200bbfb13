package integration_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/sessionbox/sessionbox/integration/hosts"
	"github.com/sessionbox/sessionbox/pkg/session"
	"golang.org/x/sys/unix"
)

// adopt brings processes into a session.
func (r *rig) adopt(ref string, args ...string) session.Adopted {
	r.t.Helper()
	o := r.run(append([]string{"adopt", "--json", ref}, args...)...).must(r.t, 0, "adopt")
	return decodeAdopted(r.t, o.stdout)
}

func decodeAdopted(t *testing.T, out []byte) session.Adopted {
	t.Helper()
	var a session.Adopted
	if err := json.Unmarshal(out, &a); err != nil {
		t.Fatalf("adopt --json: %v\n%s", err, out)
	}
	return a
}

// sid is a session of its own, as a daemon or a harness's child has it.
func sid() syscall.SysProcAttr { return syscall.SysProcAttr{Setsid: true} }

// agent starts a tree outside of all boxes that ends with the test: a shell that runs
// the script.
func (r *rig) agent(script string) *running {
	r.t.Helper()
	need(r.t, "bash")
	p := r.startWith(sid(), nil, "bash", "-c", script)
	r.t.Cleanup(func() {
		for range 20 { // it may be forking
			all := append(offspring(p.id), p.id)
			for _, id := range all {
				if err := id.kill(); err != nil {
					r.t.Error(err)
				}
			}
			if len(all) == 1 {
				break
			}
		}
		p.wait()
	})
	return p
}

// offspring are the living descendants of a process.
func offspring(top ident) []ident {
	children := map[int][]ident{}
	for _, id := range everybody() {
		if f, err := statFields(id.pid); err == nil && id.alive() {
			parent, _ := strconv.Atoi(f[1])
			children[parent] = append(children[parent], id)
		}
	}
	var all []ident
	if !top.alive() {
		return nil
	}
	for queue := []ident{top}; len(queue) > 0; queue = queue[1:] {
		all = append(all, children[queue[0].pid]...)
		queue = append(queue, children[queue[0].pid]...)
	}
	return all
}

func everybody() []ident {
	entries, _ := os.ReadDir("/proc")
	var all []ident
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if id, err := identify(pid); err == nil {
				all = append(all, id)
			}
		}
	}
	return all
}

// groupOf is the cgroup of a process.
func groupOf(id ident) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", id.pid))
	for line := range strings.Lines(string(b)) {
		if g, ok := strings.CutPrefix(line, "0::"); ok {
			return strings.TrimSpace(g)
		}
	}
	return ""
}

// inBox tells whether a process is in the box of a session.
func (r *rig) inBox(id ident, in string) bool {
	r.t.Helper()
	return r.boxed(in)(id)
}

// boxed tells of processes whether they are in the box of a session, by one look where that
// costs one.
func (r *rig) boxed(in string) func(ident) bool {
	r.t.Helper()
	if r.box != "lineage" {
		return func(id ident) bool { return strings.Contains(groupOf(id), in+".slice/") }
	}
	var list []session.Process
	o := r.run("ps", "--json", in).must(r.t, 0, "ps")
	if err := json.Unmarshal(o.stdout, &list); err != nil {
		r.t.Fatalf("ps --json: %v", err)
	}
	return func(id ident) bool {
		return slices.ContainsFunc(list, func(p session.Process) bool { return p.PID == id.pid && p.Start == id.start })
	}
}

// marked are the living processes whose environment has the word.
func marked(word string) []ident {
	var found []ident
	for _, id := range everybody() {
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", id.pid))
		if bytes.Contains(env, []byte(word)) && id.alive() {
			found = append(found, id)
		}
	}
	return found
}

// sleeps tells whether a process is sleep with that argument, and not on its way there.
func sleeps(id ident, seconds string) bool {
	argv, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", id.pid))
	return bytes.HasPrefix(argv, []byte("sleep\x00"+seconds+"\x00"))
}

// TestAdoptHook is what adopt is for: an agent that has started calls a hook, which
// brings the agent, its children and what is born later into the session.
func TestAdoptHook(t *testing.T) {
	r := newRig(t)
	bird := r.canary()
	id := r.open("hook")
	out := filepath.Join(r.home, "answer")
	a := r.agent(fmt.Sprintf(`sleep 300 & (sleep 301 & wait) &
'%s' adopt --json hook $$ >'%s.part' 2>'%s.err'; echo $? >'%s.code'; mv '%s.part' '%s'; sleep 302 & wait`, bin(), out, out, out, out, out))
	eventually(t, "the hook's answer", func() bool { _, err := os.Stat(out); return err == nil })
	said, _ := os.ReadFile(out)
	code, _ := os.ReadFile(out + ".code")
	errs, _ := os.ReadFile(out + ".err")
	if strings.TrimSpace(string(code)) != "0" {
		t.Fatalf("adopt ended with %s: %s", code, errs)
	}
	ad := decodeAdopted(t, said)
	if ad.Task != 1 || ad.Session != id || len(ad.Processes) != 4 || len(ad.Skipped) != 0 || ad.Already != 0 {
		t.Errorf("%+v, want task 1 of the shell, two sleeps and their shell", ad)
	}
	eventually(t, "the shell's later child", func() bool {
		return slices.ContainsFunc(offspring(a.id), func(p ident) bool { return sleeps(p, "302") })
	})
	all := append(offspring(a.id), a.id)
	for _, p := range all {
		if !r.inBox(p, id) {
			t.Errorf("%v is outside: %v", p, describe([]int{p.pid}))
		}
	}
	ti := task(t, r.inspect(id), 1)
	if ti.State != "running" || !ti.Adopted || ti.PID != a.id.pid || ti.Start != a.id.start || ti.Argv[0] != "bash" || len(ti.Processes) != 5 {
		t.Errorf("the task is %+v", ti)
	}
	if ad := r.adopt(id, strconv.Itoa(a.id.pid)); ad.Task != 0 || ad.Already != 5 || len(ad.Processes) != 0 {
		t.Errorf("adopted again: %+v, want nothing to do", ad)
	}
	o := r.run("adopt", id, strconv.Itoa(a.id.pid)).must(t, 0, "adopt again")
	if !strings.Contains(string(o.stderr), "nothing to adopt") || o.text() != "" {
		t.Errorf("adopt again says %q and %q", o.stdout, o.stderr)
	}
	if h := r.run("events", id).must(t, 0, "events"); !bytes.Contains(h.stdout, []byte("adopted")) {
		t.Errorf("the history does not tell: %s", h.stdout)
	}
	receipt := r.closed(id, graceFlags()...)
	for _, p := range all {
		if p.alive() {
			t.Errorf("%v is alive after the close", p)
		}
		if box, _ := names(receipt, p); !box {
			t.Errorf("the receipt does not name %v", p)
		}
	}
	bird.lives()
}

// TestAdoptGrandparent: hooks are run by a shell of the agent's, so that the caller's
// parent's parent is meant.
func TestAdoptGrandparent(t *testing.T) {
	r := newRig(t)
	id := r.open("grand")
	done := filepath.Join(r.home, "done")
	a := r.agent(fmt.Sprintf(`bash -c "'%s' adopt grand $$ >'%s.out' 2>&1; echo \$? >'%s.tmp'; mv '%s.tmp' '%s'; :"; sleep 300 & wait`, bin(), done, done, done, done))
	eventually(t, "the hook's end", func() bool { _, err := os.Stat(done); return err == nil })
	said, _ := os.ReadFile(done + ".out")
	if code, _ := os.ReadFile(done); strings.TrimSpace(string(code)) != "0" || !strings.Contains(string(said), "grand/1") {
		t.Fatalf("adopt ended with %s: %s", code, said)
	}
	eventually(t, "the agent in the box", func() bool {
		children := offspring(a.id)
		return r.inBox(a.id, id) && len(children) == 1 && r.inBox(children[0], id)
	})
	r.closed(id, graceFlags()...)
}

// TestAdoptOrphans: who lost his parent before is found by the session that he shares
// with the agent, which there is no other way into than descent. A daemon that left it is
// nobody's, and stays.
func TestAdoptOrphans(t *testing.T) {
	r := newRig(t)
	need(t, "setsid")
	id := r.open("orphans")
	word := "ADOPT_ORPHAN=" + tag()
	calm := r.env
	r.env = append(slices.Clone(calm), word)
	a := r.agent("(sleep 300 &); (setsid sleep 301 &); sleep 302 & wait")
	r.env = calm
	named := func(seconds string) (found ident) {
		for _, p := range marked(word) {
			if sleeps(p, seconds) {
				found = p
			}
		}
		return found
	}
	eventually(t, "two orphans and a child", func() bool {
		return len(marked(word)) == 4 && len(offspring(a.id)) == 1 && named("300").pid*named("301").pid > 0
	})
	orphan, daemon := named("300"), named("301")
	t.Cleanup(func() { daemon.kill() })
	ad := r.adopt(id, strconv.Itoa(a.id.pid))
	if len(ad.Processes) != 3 || !r.inBox(orphan, id) || r.inBox(daemon, id) {
		t.Errorf("%+v; the orphan is in %s, the daemon in %s", ad, groupOf(orphan), groupOf(daemon))
	}
	r.closed(id, "--now")
	if orphan.alive() || !daemon.alive() {
		t.Errorf("after the close: the orphan lives: %v, the daemon: %v", orphan.alive(), daemon.alive())
	}
}

// stormScript is a tree of about two hundred processes that forks all the time, and
// forks twice, so that some lose their parent at every moment: some four hundred forks a
// second, all short-lived.
const stormScript = `for i in $(seq 140); do sleep 300 & done
for i in $(seq 20); do
  (while :; do sleep 0.2 & (sleep 0.4 & sleep 0.01) & wait $!; sleep 0.1; done) &
done
wait`

// TestAdoptStorm: a tree that forks while it is adopted is inside afterwards, all of it,
// and goes on; nothing of it is born outside any more. On a lineage box that is so but for
// orphans: whose parents ended between two looks is not known to be of what was adopted.
func TestAdoptStorm(t *testing.T) {
	r := newRig(t)
	bird := r.canary()
	for round := range 3 {
		id := r.open("storm-" + strconv.Itoa(round))
		word := "ADOPT_STORM=" + tag()
		calm := r.env
		r.env = append(slices.Clone(calm), word)
		a := r.agent(stormScript)
		r.env = calm
		eventually(t, "two hundred processes", func() bool { return len(offspring(a.id)) >= 190 })
		began := time.Now()
		ad := r.adopt(id, strconv.Itoa(a.id.pid))
		t.Logf("%d processes in %v", len(ad.Processes), time.Since(began))
		end := ticks(t)
		all := offspring(a.id)
		in := r.boxed(id)
		for _, p := range all {
			if !in(p) && p.alive() {
				t.Errorf("%v is outside: %v", p, describe([]int{p.pid}))
			}
		}
		if len(ad.Processes) < 150 {
			t.Errorf("%d processes were adopted", len(ad.Processes))
		}
		for _, s := range ad.Skipped {
			t.Errorf("skipped: %+v", s)
		}
		// It goes on, inside: only what was born since can be outside.
		eventually(t, "fifty that were born since", func() bool {
			born := 0
			for _, p := range marked(word) {
				if p.start > end+1 {
					born++
				}
			}
			return born >= 50
		})
		inside := 0
		all = marked(word)
		in = r.boxed(id)
		for _, p := range all {
			switch {
			case in(p):
				inside++
			case r.box == "lineage" && orphaned(p):
			case p.start > end+1 && p.alive(): // else it ended, and shows no cgroup
				t.Errorf("%v was born outside after the adoption: %v", p, describe([]int{p.pid}))
			}
		}
		if inside < 150 || !a.id.alive() {
			t.Errorf("%d processes go on in the box, the first of them: %v", inside, a.id.alive())
		}
		bird.lives()
		r.closed(id, "--now")
		if r.box == "lineage" { // they live for 0.4 s
			eventually(t, "the end of the orphans", func() bool { return !slices.ContainsFunc(marked(word), orphaned) })
		}
		for _, p := range marked(word) {
			t.Errorf("%v is alive after the close: %v", p, describe([]int{p.pid}))
		}
		bird.lives()
	}
}

// orphaned says of a process that its parent has ended.
func orphaned(id ident) bool {
	f, err := statFields(id.pid)
	return err == nil && f[1] == "1"
}

// ticks is the time since boot as start times have it.
func ticks(t *testing.T) uint64 {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		t.Fatal(err)
	}
	return uint64(ts.Nano() / 10_000_000)
}

// TestAdoptRefused: what must not be ended with an agent is not adopted with one, and a
// refusal moves nobody.
func TestAdoptRefused(t *testing.T) {
	r := newRig(t)
	id := r.open("refused")
	other := r.open("other")
	r.detach(other, "sleep", "300")
	theirs := ident{pid: task(t, r.inspect(other), 1).PID}
	theirs, _ = identify(theirs.pid)
	a := r.agent("sleep 300 & wait")
	eventually(t, "the agent's child", func() bool { return len(offspring(a.id)) == 1 })
	before := groupOf(a.id)
	zombie := r.start("true")
	eventually(t, "a zombie", func() bool { f, err := statFields(zombie.id.pid); return err == nil && f[0] == "Z" })
	anchor := 0
	for _, pid := range members(r.inspect(id).Box.Path) {
		anchor = pid
	}
	mine := strconv.Itoa(a.id.pid)
	if backend() != "lineage" {
		strict := r.open("strict", "--strict")
		if o := r.run("adopt", strict, mine); o.code != 5 || !strings.Contains(string(o.stderr), "is strict") {
			t.Errorf("adopt into a strict session: exit code %d: %s", o.code, o.stderr)
		}
		r.closed(strict, "--now")
	}
	for _, c := range []struct {
		what string
		args []string
		code int
		says string
	}{
		{"no pid", nil, 2, "which process"},
		{"a word", []string{"agent"}, 2, "no process"},
		{"group of everybody", []string{"0"}, 2, "no pid"},
		{"everybody", []string{"--", "-1"}, 2, "no pid"},
		{"init", []string{"1"}, 2, "no pid"},
		{"beyond all pids", []string{"4194305"}, 2, "no pid"},
		{"another start", []string{mine + ":17"}, 1, "another's"},
		{"nobody", []string{"4194303"}, 1, "there is none"},
		{"zombie", []string{strconv.Itoa(zombie.id.pid)}, 1, "has ended"},
		{"another session", []string{strconv.Itoa(theirs.pid)}, 6, "belongs to session " + other},
		{"one good, one not", []string{mine, "1"}, 2, "no pid"},
		{"a good one and another session's", []string{mine, strconv.Itoa(theirs.pid)}, 6, "belongs to session"},
		{"our own helper", []string{strconv.Itoa(anchor)}, 6, "process of sessionbox"},
	} {
		if strings.HasPrefix(c.what, "our own") && anchor == 0 {
			continue // this box starts its anchor when it is needed
		}
		o := r.run(append([]string{"adopt", id}, c.args...)...)
		if o.code != c.code || !strings.Contains(string(o.stderr), c.says) {
			t.Errorf("%s: exit code %d, want %d with %q: %s", c.what, o.code, c.code, c.says, o.stderr)
		}
	}
	if o := r.run("adopt", "nosuch", mine); o.code != 3 {
		t.Errorf("no such session: exit code %d: %s", o.code, o.stderr)
	}
	if g := groupOf(a.id); g != before {
		t.Errorf("a refusal moved the agent from %s to %s", before, g)
	}
	if n := len(r.inspect(id).Tasks); n != 0 {
		t.Errorf("refusals made %d tasks", n)
	}
	var failure struct{ Error struct{ Code string } }
	o := r.run("adopt", "--json", id, "4194303")
	if err := json.Unmarshal(o.stderr, &failure); err != nil || failure.Error.Code != "no_process" {
		t.Errorf("as JSON: %s, %v", o.stderr, err)
	}
	// Told to, it takes another session's.
	ad := r.adopt(id, "--from-session", strconv.Itoa(theirs.pid))
	if len(ad.Processes) != 1 || !r.inBox(theirs, id) || r.box != "lineage" && len(ad.Notes) != 1 ||
		!slices.ContainsFunc(ad.Notes, func(n string) bool { return strings.Contains(n, other) }) {
		t.Errorf("from another session: %+v, %s", ad, groupOf(theirs))
	}
	r.closed(other, "--now")
	if r.box == "lineage" {
		if !theirs.alive() { // who has better claims than a cookie is known here
			t.Errorf("%v was ended with the session that it was taken out of", theirs)
		}
	} else if theirs.alive() {
		// It carries the other's cookie, and is a stray of that one.
		t.Errorf("%v outlived the session it was started in", theirs)
	}
	zombie.wait()
	r.closed(id, "--now")
	if theirs.alive() {
		t.Errorf("%v outlived the session that it was taken into", theirs)
	}
	if !a.id.alive() {
		t.Error("the agent, which was not adopted, was killed")
	}
}

// TestAdoptOtherUsers: a tree with a process of another user is refused as a whole, also
// for root, who can say that it is meant.
func TestAdoptOtherUsers(t *testing.T) {
	r := newRig(t)
	id := r.open("users")
	if os.Geteuid() != 0 {
		for _, p := range everybody() {
			fi, err := os.Stat(fmt.Sprintf("/proc/%d", p.pid))
			if err != nil || int(fi.Sys().(*syscall.Stat_t).Uid) == os.Geteuid() || p.pid <= 2 {
				continue
			}
			if f, err := statFields(p.pid); err != nil || f[1] == "2" || f[0] == "Z" {
				continue
			}
			for _, flags := range [][]string{nil, {"--other-users"}} {
				if o := r.run(append([]string{"adopt", id, strconv.Itoa(p.pid)}, flags...)...); o.code != 6 {
					t.Errorf("process %v of another user: exit code %d: %s", describe([]int{p.pid}), o.code, o.stderr)
				}
			}
			r.closed(id, "--now")
			return
		}
		t.Fatal("no process of another user to be seen: there is always one of root's")
	}
	p := r.payloads("nobody")
	a := r.agent("'" + strings.Join(p.argv("payload", "--become", "65534"), "' '") + "' & wait")
	p.await(1)
	p.ticking()
	eventually(t, "another user's child", func() bool {
		for _, c := range offspring(a.id) {
			if b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.pid)); bytes.Contains(b, []byte("Uid:\t65534")) {
				return true
			}
		}
		return false
	})
	o := r.run("adopt", id, strconv.Itoa(a.id.pid))
	if o.code != 6 || !strings.Contains(string(o.stderr), "runs as user 65534") {
		t.Errorf("exit code %d: %s", o.code, o.stderr)
	}
	if r.inBox(a.id, id) {
		t.Error("a refused tree was moved")
	}
	ad := r.adopt(id, "--other-users", strconv.Itoa(a.id.pid))
	if len(ad.Processes) != 2 {
		t.Errorf("%+v, want both", ad)
	}
	r.closed(id, "--now")
	p.stopped()
}

// TestAdoptStopped: who was stopped before stays so, and who was not does not.
func TestAdoptStopped(t *testing.T) {
	r := newRig(t)
	id := r.open("stopped")
	still, busy := r.payloads("still"), r.payloads("busy")
	a := r.agent(fmt.Sprintf("'%s' & '%s' & wait", strings.Join(still.argv("payload"), "' '"), strings.Join(busy.argv("payload"), "' '")))
	for s := range still.await(1) {
		if err := syscall.Kill(s.pid, syscall.SIGSTOP); err != nil { // it is our own, and recorded a moment ago
			t.Fatal(err)
		}
	}
	busy.await(1)
	eventually(t, "a stopped process", func() bool { return len(inState(still.dir, "T")) == 1 })
	ad := r.adopt(id, strconv.Itoa(a.id.pid))
	if len(ad.Processes) != 3 {
		t.Errorf("%+v, want three", ad)
	}
	busy.ticking()
	if n := len(inState(still.dir, "T")); n != 1 {
		t.Errorf("what was stopped runs: %v", describe(pidsOf(livingIn(still.dir))))
	}
	r.closed(id, graceFlags()...)
	still.stopped()
	busy.stopped()
}

// TestAdoptJob: the foreground job of an interactive shell goes on as such. The shell is
// not told that anything stopped, and is itself refused.
func TestAdoptJob(t *testing.T) {
	r := newRig(t)
	bash := need(t, "bash")
	id := r.open("job")
	p := r.payloads("job")
	terminal, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	sh := r.startWith(syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 1}, slave,
		bash, "-c", "exec '"+bash+"' --norc --noprofile -i <&1")
	slave.Close()
	screen := make(chan string, 1)
	go func() { // ends when the last one leaves the terminal
		all, _ := io.ReadAll(terminal)
		screen <- string(all)
	}()
	t.Cleanup(func() {
		for _, c := range append(offspring(sh.id), sh.id) {
			if err := c.kill(); err != nil {
				t.Error(err)
			}
		}
	})
	fmt.Fprintf(terminal, "'%s'; echo $? >%s/over; exit\n", strings.Join(p.argv("payload", "--life", "4s"), "' '"), p.dir)
	var job ident
	for j := range p.await(1) {
		job = j
	}
	if o := r.run("adopt", id, strconv.Itoa(sh.id.pid)); o.code != 6 || !strings.Contains(string(o.stderr), "shell of a terminal") {
		t.Errorf("adopt of the shell: exit code %d: %s", o.code, o.stderr)
	}
	if ad := r.adopt(id, strconv.Itoa(job.pid)); len(ad.Processes) != 1 || !r.inBox(job, id) {
		t.Errorf("%+v, the job is in %s", ad, groupOf(job))
	}
	p.ticking()
	if r.inBox(sh.id, id) {
		t.Error("the shell was moved")
	}
	eventually(t, "the job's own end", func() bool { b, _ := os.ReadFile(filepath.Join(p.dir, "over")); return string(b) == "0\n" })
	sh.wait()
	select {
	case text := <-screen:
		if strings.Contains(text, "Stopped") {
			t.Errorf("the shell saw a stopped job: %s", text)
		}
	case <-time.After(patience()):
		t.Error("somebody still holds the terminal")
	}
	r.closed(id, "--now")
}

// TestAdoptAtOnce: several hooks of one agent at once.
func TestAdoptAtOnce(t *testing.T) {
	r := newRig(t)
	id := r.open("once")
	a := r.agent("for i in $(seq 30); do sleep 300 & done; wait")
	eventually(t, "thirty children", func() bool { return len(offspring(a.id)) >= 30 })
	var runs []*running
	for range 5 {
		runs = append(runs, r.start(bin(), "adopt", "--json", id, strconv.Itoa(a.id.pid)))
	}
	moved, tasks := 0, 0
	for _, run := range runs {
		ad := decodeAdopted(t, run.wait().must(t, 0, "adopt").stdout)
		moved += len(ad.Processes)
		if ad.Task != 0 {
			tasks++
		}
	}
	if moved != 31 || tasks != 1 {
		t.Errorf("%d processes in %d tasks, want 31 in one", moved, tasks)
	}
	r.closed(id, "--now")
}

// TestAdoptIntoChild: a session takes a subtree out of the one that it is inside of,
// without being told to; with the outer one, both end.
func TestAdoptIntoChild(t *testing.T) {
	r := newRig(t)
	need(t, "bash")
	outer := r.open("outer")
	r.exec(outer, bin(), "open", "--name", "inner").must(t, 0, "open inside")
	inner := r.inspect("inner").ID
	r.detach(outer, "bash", "-c", "(sleep 300 & wait) & sleep 301")
	var sub ident
	eventually(t, "a subtree", func() bool {
		ti := task(t, r.inspect(outer), 2)
		for _, p := range ti.Processes {
			if p.Comm == "bash" && p.PID != ti.PID && len(offspring(ident{p.PID, p.Start})) == 1 {
				sub = ident{p.PID, p.Start}
				return true
			}
		}
		return false
	})
	if ad := r.adopt("inner", strconv.Itoa(sub.pid)); len(ad.Processes) != 2 || !r.inBox(sub, inner) {
		t.Errorf("%+v, it is in %s", ad, groupOf(sub))
	}
	r.closed(outer, "--now")
	if sub.alive() {
		t.Error("the subtree outlived the outer session")
	}
}

// TestAdoptKilled: an adoption that is killed at any moment leaves every process either
// in the session or where it was, and none of them standing still.
func TestAdoptKilled(t *testing.T) {
	r := newRig(t)
	bird := r.canary()
	id := r.open("killed-adopt")
	script := func(p payloads) string {
		one := "'" + strings.Join(p.argv("payload"), "' '") + "'"
		return one + " & (" + one + " & " + one + " & wait) & " + strings.Repeat("sleep 300 & ", 20) + "wait"
	}
	grown := func(a *running, p payloads) {
		p.await(3)
		eventually(t, "the whole tree", func() bool { return len(offspring(a.id)) >= 24 })
	}
	var took time.Duration
	for n := range moments() + 1 {
		p := r.payloads("p-" + tag())
		a := r.agent(script(p))
		grown(a, p)
		where := groupOf(a.id)
		began := time.Now()
		e := r.start(bin(), "adopt", id, strconv.Itoa(a.id.pid))
		after := somewhere(took)
		when := "adopt killed after " + after.String()
		if n == 0 { // the first is measured
			e.wait().must(t, 0, "adopt")
			took = time.Since(began)
		} else {
			time.Sleep(after) // the moment is what varies
			if err := e.id.kill(); err != nil {
				t.Fatal(err)
			}
			e.wait()
		}
		inside := 0
		for _, m := range append(offspring(a.id), a.id) {
			switch g := groupOf(m); {
			case r.inBox(m, id):
				inside++
			case g != where:
				t.Errorf("%s: %v is in %s", when, m, g)
			}
		}
		if n := len(append(offspring(a.id), a.id)); n != 25 {
			t.Errorf("%s: %d processes of 25 are alive", when, n)
		}
		each := livingIn(p.dir)
		if len(each) != 3 {
			t.Fatalf("%s: %d payloads of 3 are alive", when, len(each))
		}
		eventually(t, when+": nobody stands still", func() bool { return !frozen(t, each...) })
		p.ticking()
		// The next one makes it whole.
		ad := r.adopt(id, strconv.Itoa(a.id.pid))
		if len(ad.Processes)+ad.Already != 25 {
			t.Errorf("%s, %d inside: adopted again: %d and %d already, want 25", when, inside, len(ad.Processes), ad.Already)
		}
		for _, m := range append(offspring(a.id), a.id) {
			if !r.inBox(m, id) {
				t.Errorf("%s: %v is still outside", when, m)
			}
		}
		for _, ti := range r.inspect(id).Tasks {
			r.run("kill", fmt.Sprintf("%s/%d", id, ti.N)).must(t, 0, "kill a task")
		}
		p.stopped()
		if t.Failed() {
			return
		}
	}
	bird.lives()
	r.closed(id, graceFlags()...)
}

// frozen tells whether one of the processes is in a cgroup that stands still.
func frozen(t *testing.T, ids ...ident) bool {
	t.Helper()
	return slices.ContainsFunc(ids, func(id ident) bool {
		b, err := os.ReadFile(filepath.Join(groupDir(t, id), "cgroup.events"))
		return err == nil && bytes.Contains(b, []byte("frozen 1"))
	})
}

// groupDir is the directory of a process's cgroup.
func groupDir(t *testing.T, id ident) string {
	t.Helper()
	mount, err := hosts.CgroupMount()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(mount, groupOf(id))
}

// TestAdoptLeftFrozen: the adopter and the anchor that would have helped were both
// killed, so a leaf stays frozen. thaw, reconcile, the next adopt and close help.
func TestAdoptLeftFrozen(t *testing.T) {
	newRig(t)
	for _, help := range []string{"thaw", "reconcile", "adopt", "close"} {
		t.Run(help, func(t *testing.T) {
			r := newRig(t)
			id := r.open("frozen-" + help)
			p := r.payloads("payload")
			r.detach(id, p.argv("payload")...)
			p.await(1)
			var one ident
			for o := range recordedIn(p.dir) {
				one = o
			}
			forge(t, r.taskRecord(id, 1), map[string]any{"state": "starting", "adopted": true, "pid": 0, "start": 0,
				"supervisor": map[string]any{"pid": one.pid, "start": one.start - 1}})
			if err := os.WriteFile(filepath.Join(groupDir(t, one), "cgroup.freeze"), []byte("1"), 0); err != nil {
				t.Fatal(err)
			}
			eventually(t, "a frozen leaf", func() bool { return frozen(t, one) })
			switch help {
			case "thaw":
				r.run("thaw", id).must(t, 0, "thaw")
			case "reconcile":
				r.run("reconcile").must(t, 0, "reconcile")
			case "adopt":
				a := r.agent("sleep 300 & wait")
				r.adopt(id, strconv.Itoa(a.id.pid))
			case "close":
				receipt := r.closed(id, "--grace", patience().String())
				if len(receipt.Processes) != 1 || receipt.Processes[0].Fate != session.FateEnded {
					t.Errorf("%+v, want one that heard SIGTERM", receipt.Processes)
				}
				return
			}
			p.ticking()
			if s := task(t, r.inspect(id), 1).State; s != "orphaned" {
				t.Errorf("the task is %s", s)
			}
			r.closed(id, "--now")
		})
	}
}
