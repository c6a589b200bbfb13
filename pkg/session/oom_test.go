package session

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// TestEndOfMemory: what the record of a command says whose end may have been want of
// memory, and when it was not.
func TestEndOfMemory(t *testing.T) {
	work := memlimit.Place{Kind: memlimit.KindSession, Name: "work"}
	known := memlimit.Kill{Processes: 1, Limit: work, Sure: true, Victims: []memlimit.Victim{{PID: 4711, Comm: "hog"}}}
	child := memlimit.Kill{Processes: 1, Limit: work, Sure: true, Victims: []memlimit.Victim{{PID: 99, Comm: "child"}}}
	counted := memlimit.Kill{Processes: 1, Limit: work, Sure: true}
	killed := Result{State: store.TaskSignaled, Exit: -1, Signal: syscall.SIGKILL}
	exited := func(code int) Result {
		if code == 0 {
			return Result{State: store.TaskExited}
		}
		return Result{State: store.TaskFailed, Exit: code}
	}
	for name, c := range map[string]struct {
		r       Result
		oom     *memlimit.Kill
		shared  bool
		ending  store.TaskState
		closing bool
		state   store.TaskState
		reason  string // a part of it
	}{
		"killed, named":                     {r: killed, oom: &known, state: store.TaskOOMKilled, reason: "hog (4711) was killed for the memory limit of work"},
		"killed, counted":                   {r: killed, oom: &counted, state: store.TaskOOMKilled, reason: "program (4711) was killed for"},
		"killed by somebody":                {r: killed, state: store.TaskSignaled},
		"a shell tells of its command":      {r: exited(137), oom: &child, state: store.TaskOOMKilled, reason: "child (99) was killed for"},
		"a shell tells of another kill":     {r: exited(137), state: store.TaskFailed},
		"it lived without its child":        {r: exited(0), oom: &child, state: store.TaskExited, reason: "child (99)"},
		"it failed without its child":       {r: exited(1), oom: &child, state: store.TaskFailed, reason: "child (99)"},
		"another signal":                    {r: Result{State: store.TaskSignaled, Exit: -1, Signal: syscall.SIGTERM}, oom: &child, state: store.TaskSignaled, reason: "child (99)"},
		"killed by us, and it had a child":  {r: killed, oom: &child, ending: store.TaskKilled, state: store.TaskKilled, reason: "asked for; before that child (99)"},
		"killed by us, the kernel first":    {r: killed, oom: &known, ending: store.TaskKilled, state: store.TaskOOMKilled, reason: "hog (4711)"},
		"closed":                            {r: killed, oom: &counted, closing: true, state: store.TaskKilled, reason: "the session was closed; before that a process"},
		"out of time, and it had a child":   {r: Result{State: store.TaskTimedOut, Exit: -1, Signal: syscall.SIGKILL, Reason: "timed out"}, oom: &child, state: store.TaskTimedOut, reason: "timed out; before that child"},
		"of the session, and it was killed": {r: killed, oom: &counted, shared: true, state: store.TaskOOMKilled, reason: "program (4711)"},
		"of the session, and it was not":    {r: exited(1), oom: &counted, shared: true, state: store.TaskFailed},
	} {
		rec := store.Task{N: 1, Argv: []string{"/bin/program"}, PID: 4711, State: store.TaskRunning, Ending: c.ending}
		if c.ending != "" {
			rec.Reason = "asked for"
		}
		c.r.shared = c.shared
		if c.oom != nil {
			k := *c.oom
			c.r.OOM = &k
		}
		c.r.put(&rec, time.Now(), c.closing)
		if rec.State != c.state || !strings.Contains(rec.Reason, c.reason) || (c.reason == "") != (rec.Reason == "") {
			t.Errorf("%s: %s, %q; want %s, %q", name, rec.State, rec.Reason, c.state, c.reason)
		}
		if has := rec.OOM != nil; has != (c.oom != nil && c.reason != "") {
			t.Errorf("%s: the record has %+v", name, rec.OOM)
		}
		if c.r.State != rec.State {
			t.Errorf("%s: the result says %s, the record %s", name, c.r.State, rec.State)
		}
	}
}

// TestMarks: what was counted before a task, or a session, is not theirs.
func TestMarks(t *testing.T) {
	rec := store.Session{ID: "aaaaaaaaaa", Name: "work", Mark: &memlimit.Mark{Kills: 7, OOMs: map[string]uint64{"/slice": 3, "/slice/box": 1}}}
	if m := sinceOpened(&rec); m.Kills != 0 || m.OOMs["/slice"] != 3 {
		t.Errorf("of the session: %+v", m)
	}
	m := sinceStarted(&rec, &store.Task{Mark: &memlimit.Mark{Kills: 2, OOMs: map[string]uint64{"/slice/box": 5}}})
	if m.Kills != 2 || m.OOMs["/slice"] != 3 || m.OOMs["/slice/box"] != 5 {
		t.Errorf("of a task: %+v", m)
	}
	if n := rec.Mark.OOMs["/slice/box"]; n != 1 {
		t.Errorf("the session's own was changed to %d", n)
	}
	if mark(memlimit.Mark{}) != nil || mark(memlimit.Mark{Kills: 1}) == nil {
		t.Error("a mark of nothing is none")
	}
	mgr := &Manager{}
	for kind, want := range map[memlimit.Kind]string{memlimit.KindTask: "work/3", memlimit.KindSession: "work", memlimit.KindHost: "this host"} {
		k := memlimit.Kill{Limit: memlimit.Place{Kind: kind, Name: "this host"}}
		if kind != memlimit.KindHost {
			k.Limit = memlimit.Place{Kind: kind, Name: "x", Session: rec.ID}
		}
		if mgr.called(&k, &rec, 3); k.Limit.Name != want {
			t.Errorf("%s is called %q, want %q", kind, k.Limit.Name, want)
		}
	}
}

// TestVictims: who cannot read the kernel's log learns from the tasks who it was.
func TestVictims(t *testing.T) {
	hog := memlimit.Victim{PID: 4711, Comm: "hog"}
	tasks := []TaskInfo{{N: 1}, {N: 2, OOM: &memlimit.Kill{Processes: 1, Victims: []memlimit.Victim{hog}}}}
	k := &memlimit.Kill{Processes: 2}
	if victimsOf(k, tasks); len(k.Victims) != 1 || k.Victims[0] != hog {
		t.Errorf("%+v", k)
	}
	known := &memlimit.Kill{Processes: 1, Victims: []memlimit.Victim{{PID: 1234, Comm: "x"}}}
	if victimsOf(known, tasks); known.Victims[0].PID != 1234 {
		t.Errorf("%+v", known)
	}
	none := &memlimit.Kill{}
	if victimsOf(none, tasks); none.Victims != nil {
		t.Errorf("%+v", none)
	}
	victimsOf(nil, tasks)
}

// TestMovedTask: what the leaf told that a task was moved out of is not forgotten at its
// end elsewhere.
func TestMovedTask(t *testing.T) {
	before, after := uint64(5<<20), uint64(1<<20)
	rec := store.Task{N: 1, Argv: []string{"x"}, PID: 4711, PeakBytes: &before,
		OOM: &memlimit.Kill{Processes: 1, Limit: memlimit.Place{Name: "work"}, Victims: []memlimit.Victim{{PID: 9, Comm: "child"}}}}
	r := Result{State: store.TaskExited, PeakBytes: &after}
	r.put(&rec, time.Now(), false)
	if rec.State != store.TaskExited || rec.OOM == nil || !strings.Contains(rec.Reason, "child (9)") || rec.PeakBytes == nil || *rec.PeakBytes != before {
		t.Errorf("%+v, %+v", rec, rec.OOM)
	}
}
