package integration_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
)

// hogArgv is a command that takes that many MiB and keeps them.
func (p *payloads) hogArgv(mib string) []string { return p.argv("hog", "--arg", mib, "--life", "20s") }

// limited opens a session with a ceiling for memory, and none to spare in swap where
// there is swap.
func (r *rig) limited(name, max string) session.Info {
	r.t.Helper()
	info := r.ceilings(name, "--memory-max", max)
	r.run("limit", info.ID, "--swap-max", "0").must(r.t, 0, "limit --swap-max 0")
	return info
}

// killedBy asserts that something was killed for want of memory, for a limit of that
// name, and who it was where that can be known.
func killedBy(t *testing.T, what string, k *memlimit.Kill, limit string, comm string) {
	t.Helper()
	if k == nil || k.Processes == 0 {
		t.Fatalf("%s does not tell that the kernel killed one for its memory: %+v", what, k)
	}
	if k.Limit.Name != limit || !k.Sure {
		t.Errorf("%s says that it was for the limit of %+v, sure: %v; want %s", what, k.Limit, k.Sure, limit)
	}
	for _, v := range k.Victims {
		if v.Comm != comm || v.PID <= 1 {
			t.Errorf("%s names %v as who was killed; want %s with a pid", what, v, comm)
		}
	}
}

// taskOf is the task with that number.
func taskOf(t *testing.T, tasks []session.TaskInfo, n int) session.TaskInfo {
	t.Helper()
	for _, k := range tasks {
		if k.N == n {
			return k
		}
	}
	t.Fatalf("no task %d among %+v", n, tasks)
	return session.TaskInfo{}
}

// comm is what the kernel calls the program of the payloads.
const comm = "escape"

// TestOOMKilled: a command that the kernel ended for the session's ceiling is called so,
// by whose limit, wherever it is shown, and its exit code stays what it was. One that
// somebody killed in the same session is not.
func TestOOMKilled(t *testing.T) {
	r := newRig(t)
	info := r.limited("hog", "128M")
	p := r.payloads("hog")
	o := r.exec(info.ID, p.hogArgv("256")...).must(t, 128+9, "exec of one that takes twice the ceiling")
	for _, want := range []string{"hog/1 ran out of memory", "for the memory limit of hog", "sessionbox limit hog --memory-max"} {
		if !bytes.Contains(o.stderr, []byte(want)) {
			t.Errorf("exec does not say %q: %s", want, o.stderr)
		}
	}
	r.exec(info.ID, "sh", "-c", "kill -9 $$").must(t, 128+9, "exec of one that ends itself")

	i := r.inspect(info.ID)
	killedBy(t, "inspect", i.OOM, "hog", comm)
	first, second := taskOf(t, i.Tasks, 1), taskOf(t, i.Tasks, 2)
	if first.State != "oom_killed" || !strings.Contains(first.Reason, "for the memory limit of hog") {
		t.Errorf("the task is %s, %q; want oom_killed for the memory limit of hog", first.State, first.Reason)
	}
	killedBy(t, "the task", first.OOM, "hog", comm)
	if second.State != "signaled" || second.OOM != nil {
		t.Errorf("the task that killed itself is %s, %+v; want signaled", second.State, second.OOM)
	}
	if listed, ok := r.listed(info.ID); !ok || listed.OOM == nil {
		t.Errorf("ls does not tell of it: %+v", listed)
	}
	if text := r.run("ls").text(); !strings.Contains(text, "out of memory") {
		t.Errorf("ls does not say it to people: %s", text)
	}

	receipt := r.closed(info.ID)
	killedBy(t, "the receipt", receipt.OOM, "hog", comm)
	if k := taskOf(t, receipt.Tasks, 1); k.State != "oom_killed" {
		t.Errorf("the task is %s in the receipt", k.State)
	}
	var past []session.Receipt
	if err := json.Unmarshal(r.run("history", "--json").must(t, 0, "history").stdout, &past); err != nil || len(past) != 1 {
		t.Fatalf("history: %v, %+v", err, past)
	}
	killedBy(t, "the history", past[0].OOM, "hog", comm)
	r.peaks(past[0])
}

// peaks asserts that the most that was used is known of a session and its first task
// where the kernel records it.
func (r *rig) peaks(past session.Receipt) {
	r.t.Helper()
	const least = 64 << 20
	peak, task := past.Usage.PeakBytes, taskOf(r.t, past.Tasks, 1).PeakBytes
	if peak == nil {
		r.t.Logf("the kernel does not record the peak here")
		return
	}
	if *peak < least {
		r.t.Errorf("the session is said to have used %d bytes at most", *peak)
	}
	if task == nil || *task < least || *task > *peak {
		r.t.Errorf("its task is said to have used %v bytes at most, the session %d", task, *peak)
	}
}

// TestOOMChild: a child is killed, the command lives and says how it ended. It is told
// of, and a shell that ended with its child ran out of memory itself.
func TestOOMChild(t *testing.T) {
	r := newRig(t)
	info := r.limited("child", "128M")
	p := r.payloads("hog")
	line := strings.Join(p.hogArgv("256"), " ")
	o := r.exec(info.ID, "sh", "-c", line+"; exit 0").must(t, 0, "exec of a shell that lives on")
	if !bytes.Contains(o.stderr, []byte("for the memory limit of child")) {
		t.Errorf("exec does not tell of it: %s", o.stderr)
	}
	r.exec(info.ID, "sh", "-c", line+"; exit $?").must(t, 128+9, "exec of a shell that passes it on")
	i := r.inspect(info.ID)
	for n, state := range map[int]string{1: "exited", 2: "oom_killed"} {
		k := taskOf(t, i.Tasks, n)
		if k.State != state {
			t.Errorf("task %d is %s, want %s", n, k.State, state)
		}
		killedBy(t, "the task", k.OOM, "child", comm)
		if k.OOM != nil && k.OOM.Processes != 1 {
			t.Errorf("%d processes of task %d were killed, want one", k.OOM.Processes, n)
		}
	}
	if i.OOM == nil || i.OOM.Processes != 2 {
		t.Errorf("of the session %+v were killed, want two", i.OOM)
	}
	r.closed(info.ID)
}

// TestOOMTask: with --oom task all of the task dies with the one that took too much, and
// nobody else of the session; with the policy taken back that one alone.
func TestOOMTask(t *testing.T) {
	r := newRig(t)
	info := r.limited("together", "160M")
	r.run("limit", info.ID, "--oom", "task").must(t, 0, "limit --oom task")
	if o := r.inspect(info.ID).OOMPolicy; o == nil || !o.InForce {
		t.Fatalf("--oom task is %+v where there is a ceiling for memory", o)
	}
	other, beside, hog := r.payloads("other"), r.payloads("beside"), r.payloads("hog")
	r.detach(info.ID, other.argv("payload")...)
	other.await(1)
	both := strings.Join(beside.argv("payload"), " ") + " & " + strings.Join(hog.hogArgv("256"), " ") + "; exit 0"
	r.exec(info.ID, "sh", "-c", both).must(t, 128+9, "exec of a shell with two of which one takes too much")
	beside.stopped()
	other.ticking()
	i := r.inspect(info.ID)
	k := taskOf(t, i.Tasks, 2)
	if k.State != "oom_killed" || k.OOM == nil || k.OOM.Processes < 2 || k.Leftovers != 0 {
		t.Errorf("the task is %s with %d left, %+v; want oom_killed with all it had", k.State, k.Leftovers, k.OOM)
	}
	if k := taskOf(t, i.Tasks, 1); k.State != "running" {
		t.Errorf("the other task is %s", k.State)
	}
	r.run("limit", info.ID, "--oom", "process").must(t, 0, "limit --oom process")
	r.exec(info.ID, "sh", "-c", both).must(t, 0, "the same without the policy")
	r.closed(info.ID, "--now")
	other.stopped()
}

// TestOOMAround: the ceiling is that of the session around the one in which one is
// killed, and it is named.
func TestOOMAround(t *testing.T) {
	r := newRig(t)
	outer := r.limited("outer", "128M")
	p := r.payloads("hog")
	script := bin() + " run --name inner -- " + strings.Join(p.hogArgv("256"), " ")
	r.exec(outer.ID, "sh", "-c", script).must(t, 128+9, "run inside")
	var past []session.Receipt
	if err := json.Unmarshal(r.run("history", "--json").must(t, 0, "history").stdout, &past); err != nil || len(past) != 1 {
		t.Fatalf("history: %v, %+v", err, past)
	}
	killedBy(t, "the inner session", past[0].OOM, "outer", comm)
	if k := taskOf(t, past[0].Tasks, 1); k.State != "oom_killed" {
		t.Errorf("the task of the inner session is %s", k.State)
	}
	killedBy(t, "the outer session", r.inspect(outer.ID).OOM, "outer", comm)
	r.closed(outer.ID)
}

// TestOOMOfLeftover: what outlived its command is killed, and the receipt tells.
func TestOOMOfLeftover(t *testing.T) {
	r := newRig(t)
	info := r.limited("left", "128M")
	p := r.payloads("hog")
	r.exec(info.ID, "sh", "-c", "exec 0<&- 1>&- 2>&-; "+strings.Join(p.hogArgv("256"), " ")+" & exit 0").must(t, 0, "exec of one that leaves another")
	eventually(t, "the end of what was left", func() bool {
		i := r.inspect(info.ID)
		return i.OOM != nil && i.Leftovers == 0
	})
	receipt := r.closed(info.ID)
	killedBy(t, "the receipt", receipt.OOM, "left", comm)
	k := taskOf(t, receipt.Tasks, 1)
	if k.State != "exited" {
		t.Errorf("the task is %s, want exited", k.State)
	}
	killedBy(t, "the task that left it", k.OOM, "left", comm)
}

// TestOOMLogged: where nobody counts for the session, as the memory controller is that of
// cgroup v1, the kernel's log says that a command was killed for want of memory, and for
// whose limit.
func TestOOMLogged(t *testing.T) {
	r := newRig(t)
	limit := groupV1(t, "96M")
	if f, err := os.Open("/dev/kmsg"); err != nil {
		t.Skipf("the kernel's log may not be read here: %v", err)
	} else {
		f.Close()
	}
	id := r.open("logged")
	p := r.payloads("hog")
	inside := func(argv ...string) output {
		line := "echo $$ > " + filepath.Join(limit, "cgroup.procs") + " && exec " + strings.Join(argv, " ")
		return r.start("/bin/sh", "-c", line).wait()
	}
	o := inside(append([]string{bin(), "exec", id, "--"}, p.hogArgv("192")...)...).must(t, 128+9, "exec of one that takes twice the limit")
	if want := "for the memory limit of " + filepath.Base(limit); !bytes.Contains(o.stderr, []byte(want)) {
		t.Errorf("exec does not say %q: %s", want, o.stderr)
	}
	inside(bin(), "exec", id, "--", "sh", "-c", "'kill -9 $$'").must(t, 128+9, "exec of one that ends itself")
	i := r.inspect(id)
	k := taskOf(t, i.Tasks, 1)
	if k.State != "oom_killed" {
		t.Errorf("the task is %s, %q", k.State, k.Reason)
	}
	killedBy(t, "the task", k.OOM, filepath.Base(limit), comm)
	if k := taskOf(t, i.Tasks, 2); k.State != "signaled" || k.OOM != nil {
		t.Errorf("the task that killed itself is %s, %+v", k.State, k.OOM)
	}
	r.closed(id)
}

// groupV1 makes a group with a limit below the test's own in the memory hierarchy of
// cgroup v1, where that is what this machine has.
func groupV1(t *testing.T, max string) string {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^\d+:memory:(.*)$`).FindSubmatch(own)
	if m == nil {
		t.Skip("the memory controller is not that of cgroup v1")
	}
	dir, err := os.MkdirTemp(filepath.Join("/sys/fs/cgroup/memory", string(m[1])), "sbxtest-oom-")
	if err != nil {
		t.Skipf("no group can be made in the v1 hierarchy: %v", err)
	}
	t.Cleanup(func() {
		eventually(t, "the end of "+dir, func() bool {
			err := os.Remove(dir)
			return err == nil || errors.Is(err, fs.ErrNotExist)
		})
	})
	if err := os.WriteFile(filepath.Join(dir, "memory.limit_in_bytes"), []byte(max), 0); err != nil {
		t.Skipf("no limit can be set in the v1 hierarchy: %v", err)
	}
	return dir
}
