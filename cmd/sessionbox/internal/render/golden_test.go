package render

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

var update = flag.Bool("update", false, "write the golden files")

var now = time.Date(2026, 8, 24, 12, 0, 0, 0, time.UTC)

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func size(s string) memlimit.Size {
	v, err := memlimit.ParseSize(s)
	if err != nil {
		panic(err)
	}
	return v
}

// sessions is one of everything that a list can show.
func sessions() []Row {
	closedAt := now.Add(-3 * time.Hour)
	ended := now.Add(-time.Minute)
	return []Row{
		{Info: session.Info{
			ID: "k3m9x2c7qa", Name: "agent", State: "open", Created: now.Add(-49 * time.Hour), AgeSeconds: 49 * 3600,
			Box: session.BoxInfo{Kind: "systemd", Containment: "kernel", Unit: "sessionbox-k3m9x2c7qa.slice", Path: "/sys/fs/cgroup/x.slice"},
			Tasks: []session.TaskInfo{
				{N: 1, State: "exited", Argv: []string{"npm", "ci"}, PID: 100, Exit: new(0), Started: now.Add(-time.Hour), Ended: &ended},
				{N: 2, State: "running", Argv: []string{"/usr/bin/npm", "run", "dev", "--", "--host"}, PID: 4711, Started: now.Add(-10 * time.Minute)},
				{N: 3, State: "running", Argv: []string{"bash", "-c", "while :; do date; sleep 1; done"}, PID: 4800, Started: now.Add(-5 * time.Minute)},
			},
			Running: 2, Processes: 5, Usage: session.UsageInfo{MemoryBytes: new(uint64(3700 << 20)), PeakBytes: new(uint64(4 << 30)), Source: "cgroup"},
			Limits: []memlimit.Ceiling{{File: "memory.max", Want: size("4G"), Value: size("4G"), InForce: true}},
			Ports:  []session.Port{{Proto: "tcp", Address: "127.0.0.1", Port: 3000, PID: 4711}, {Proto: "tcp6", Address: "::", Port: 3000, PID: 4711}, {Proto: "udp", Address: "0.0.0.0", Port: 5353, PID: 4711}},
		}},
		{Info: session.Info{
			ID: "k3p1aaaaaa", Name: "web", State: "open", Created: now.Add(-2 * time.Hour), AgeSeconds: 7300, Labels: map[string]string{"agent": "claude"},
			Box:       session.BoxInfo{Kind: "cgroup", Containment: "kernel", Path: "/sys/fs/cgroup/y.slice"},
			Tasks:     []session.TaskInfo{{N: 1, State: "failed", Argv: []string{"sh", "start.sh"}, Exit: new(1), Leftovers: 3, Started: now.Add(-time.Hour), Ended: &ended, PeakBytes: new(uint64(900 << 20))}},
			Leftovers: 3, Processes: 3, Usage: session.UsageInfo{MemoryBytes: new(uint64(812 << 20)), Source: "processes"},
			Container: &session.ContainerInfo{ID: "sessionbox-k3p1aaaaaa", Runtime: "/usr/bin/crun", Bundle: "/srv/bundle"},
			Strict: &session.StrictInfo{Doors: []store.Door{
				{Name: "user bus", Closed: true, Text: "hidden: /run/user/1000/bus"}, {Name: "ssh to this machine", Text: "its keys are needed"}}},
			Containers: []session.HiredContainer{{Engine: "docker", ID: "0123456789abcdef", Fate: "alive"}, {Engine: "docker", ID: "aa", Fate: session.FateSuspect}},
			Limits: []memlimit.Ceiling{
				{File: "memory.max", Want: size("2G"), Why: "memory controller not delegated"},
				{File: "pids.max", Want: memlimit.Bytes(500), Why: "pids controller not delegated"},
			},
			Ports: []session.Port{{Proto: "tcp", Address: "0.0.0.0", Port: 8080, PID: 5001}},
		}, Left: []session.Process{
			{PID: 5001, PPID: 1, Start: 10, Argv: []string{"/opt/node/bin/node", "server.js"}, Comm: "node", Escaped: "setsid, reparented", Task: 1},
			{PID: 5002, PPID: 5001, Start: 11, Argv: []string{"node", "worker.js"}, Comm: "node", Task: 1},
			{PID: 5003, PPID: 5001, Start: 12, Argv: []string{"node", "worker.js"}, Comm: "node", Task: 1},
		}},
		{Info: session.Info{ID: "m000000000", Name: "idle", State: "open", AgeSeconds: 40, Box: session.BoxInfo{Kind: "cgroup", Frozen: true, Containment: "kernel"}}},
		{Info: session.Info{ID: "m000000001", Name: "inner", Parent: "m000000000", State: "open", AgeSeconds: 30, Box: session.BoxInfo{Kind: "cgroup", Frozen: true, Containment: "kernel"}}},
		{Info: session.Info{ID: "p000000000", State: "open", AgeSeconds: 5, Box: session.BoxInfo{Kind: "cgroup", Gone: true},
			Problems: []string{"its box is gone, and with it all its processes: close it"}}},
		{Info: session.Info{ID: "q000000000", State: "broken", Problems: []string{"bad record \x1b[2J: unexpected end"}}},
		{Info: session.Info{ID: "r000000000", Name: "old", State: "closed", AgeSeconds: 600, Closed: &closedAt, Usage: session.UsageInfo{PeakBytes: new(uint64(1 << 30))}}},
	}
}

func TestList(t *testing.T) {
	for name, st := range map[string]Style{
		"ls-80": {Width: 80}, "ls-120": {Width: 120}, "ls-pipe": {}, "ls-colour": {Width: 80, Color: true}, "ls-whole": {Width: 80, Whole: true},
	} {
		st.Now = now
		var b bytes.Buffer
		if err := List(&b, sessions(), st); err != nil {
			t.Fatal(err)
		}
		golden(t, name, b.String())
		fits(t, name, b.String(), st)
	}
}

// fits checks that no line of a table is wider than the terminal. Headlines and
// notes are left out: these are sentences, which a terminal wraps.
func fits(t *testing.T, name, text string, st Style) {
	t.Helper()
	if !st.cut() || st.Color {
		return
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if n := width(line); n > st.Width && !strings.HasPrefix(line, "* ") && !strings.HasPrefix(line, "! ") && !strings.Contains(line, "closed ") {
			t.Errorf("%s: %d columns of %d: %s", name, n, st.Width, line)
		}
	}
}

func receiptOf() *session.Receipt {
	p := func(pid int, start uint64, age float64, task int, escaped, fate string, argv ...string) session.Fated {
		return session.Fated{Process: session.Process{PID: pid, Start: start, AgeSeconds: age, Task: task, Escaped: escaped, Argv: argv, Comm: argv[0]}, Fate: fate}
	}
	r := &session.Receipt{
		ID: "k3p1aaaaaa", Name: "work", Opened: now.Add(-time.Hour), Closed: now.Add(-5 * time.Minute), AgeSeconds: 3600, TookSeconds: 0.123,
		Processes: []session.Fated{
			p(5001, 10, 3000, 1, "setsid, reparented", session.FateKilled, "node", "/home/me/project/node_modules/.bin/vite", "--host", "0.0.0.0", "--mode", "development"),
			p(5002, 11, 3000, 1, "", session.FateKilled, "node", "worker.js"),
			p(5003, 12, 42, 2, "", session.FateEnded, "sleep", "300"),
			p(5004, 13, 42, 3, "setsid", session.FateEnded, "/usr/bin/python3", "-m", "http.server"),
		},
		Tasks: []session.TaskInfo{{N: 3, PID: 5004, Start: 13, Detached: true}},
		Usage: session.UsageInfo{PeakBytes: new(uint64(1288490188))},
	}
	r.Processes[0].Ports = []session.Port{{Proto: "tcp", Port: 3000}}
	return r
}

func TestReceipt(t *testing.T) {
	full := receiptOf()
	full.Strays = []session.Fated{{Process: session.Process{PID: 6000, Start: 20, AgeSeconds: 100, Argv: []string{"dbus-daemon", "--fork"}}, Fate: session.FateKilled}}
	full.Notes = []string{"not written to the history: no space left on device"}
	full.Nested = []session.Receipt{{ID: "n000000000", Name: "sub", TookSeconds: 0.02, Processes: []session.Fated{
		{Process: session.Process{PID: 7000, Start: 30, AgeSeconds: 9, Task: 1, Argv: []string{"cargo", "test"}}, Fate: session.FateEnded}}}}

	stuck := receiptOf()
	stuck.Processes[0].Fate = session.FateSurvived
	stuck.Survivors = []session.Survivor{{PID: 5001, Start: 10, Comm: "node", State: "D", Wchan: "rpc_wait_bit_killable", UID: 1000}}
	stuck.TookSeconds = 15.4

	many := receiptOf()
	for i := range 1000 {
		argv := []string{"vitest"}
		if i%3 == 0 {
			argv = []string{"esbuild"}
		}
		many.Processes = append(many.Processes, session.Fated{Process: session.Process{PID: 10000 + i, Start: 100 + uint64(i), AgeSeconds: 8, Task: 1, Comm: argv[0], Argv: argv}, Fate: session.FateKilled})
	}

	dry := receiptOf()
	dry.DryRun = true
	for i := range dry.Processes {
		dry.Processes[i].Fate = "alive"
	}
	again := receiptOf()
	again.AlreadyClosed = true

	hired := receiptOf()
	hired.Containers = []session.HiredContainer{
		{Engine: "docker", At: "docker at /var/run/docker.sock", ID: "0123456789abcdef", Name: "web", Image: "nginx:1", By: "task 3, bash (4711)", Fate: session.FateEnded},
		{Engine: "podman", ID: "fedcba98765432100", Image: "localhost/bb:latest", By: "task 3, bash (4711)", Fate: session.FateKilled},
		{Engine: "podman", ID: "aa", Name: "group", Image: "pod", Pod: true, Fate: session.FateRemoved},
		{Engine: "docker", ID: "bb", Name: "other\x1b[2J", Image: "evil", Fate: session.FateSuspect, Why: "it has the session's label and not its token"},
	}
	hired.Units = []session.UnitInfo{
		{Name: "run-u12.service", Manager: "user", Command: "[systemd-run] /usr/bin/sleep 600", Inside: true, Fate: session.FateEnded},
		{Name: "x.timer", Manager: "user", Fate: session.FateSuspect, Why: "it was started since the session was opened; systemd does not say by whom"},
	}
	hired.Jobs = []session.JobInfo{{Kind: "at", ID: "3", Line: "sleep 600", Fate: session.FateRemoved}, {Kind: "cron", Line: "5 5 * * * x", Fate: session.FateRemoved}}
	hired.Served = []session.Served{{Process: session.Process{PID: 5009, Comm: "tmux: server"}, Socket: "/tmp/tmux-0/default", Clients: []session.Client{{PID: 99, Comm: "tmux: client"}}}}
	lineage := receiptOf()
	lineage.Box.Kind, lineage.Box.Containment = "lineage", session.BestEffort
	lineage.Suspects = []session.Process{{PID: 6001, Start: 3, Comm: "evil\x1b[2J"}}
	stayed := receiptOf()
	stayed.Containers = []session.HiredContainer{{Engine: "docker", ID: "0123456789abcdef", Name: "web", Image: "nginx:1", Fate: session.FateSurvived, Why: "no answer"},
		{Engine: "podman", At: "podman", Fate: session.FateSurvived, Why: "what the session made there may live, it does not answer: no answer"}}
	stayed.Error = "1 of what others started for it could not be ended"
	for name, tt := range map[string]struct {
		r  *session.Receipt
		st Style
	}{
		"close-others":    {hired, Style{Width: 100}},
		"close-lineage":   {lineage, Style{Width: 100}},
		"close-stayed":    {stayed, Style{Width: 100}},
		"close-80":        {full, Style{Width: 80}},
		"close-pipe":      {full, Style{}},
		"close-colour":    {full, Style{Width: 100, Color: true}},
		"close-survivors": {stuck, Style{Width: 80, Color: true}},
		"close-many":      {many, Style{Width: 80}},
		"close-dry":       {dry, Style{Width: 80}},
		"close-again":     {again, Style{Width: 80}},
		"close-nothing":   {&session.Receipt{ID: "x000000000", TookSeconds: 0.004}, Style{Width: 80}},
	} {
		tt.st.Now = now
		var b bytes.Buffer
		if err := Receipt(&b, tt.r, tt.st); err != nil {
			t.Fatal(err)
		}
		golden(t, name, b.String())
		fits(t, name, b.String(), tt.st)
	}
	var b bytes.Buffer
	if err := History(&b, []session.Receipt{*full, *stuck, {ID: "x000000000", Closed: now}}, Style{Width: 100, Now: now}); err != nil {
		t.Fatal(err)
	}
	golden(t, "history", strings.ReplaceAll(b.String(), full.Closed.Local().Format(time.DateTime), "2026-08-24 11:55:00"))
}

func TestInspectTreePs(t *testing.T) {
	rows := sessions()
	all := make([]Branch, len(rows))
	for i := range rows {
		all[i] = Branch{Info: rows[i].Info, Alive: rows[i].Left}
	}
	all[0].Alive = []session.Process{
		{PID: 4711, PPID: 1, Task: 2, Argv: []string{"npm", "run", "dev"}, Session: all[0].ID, State: "S", AgeSeconds: 600, MemoryBytes: 120 << 20},
		{PID: 4712, PPID: 4711, Task: 2, Argv: []string{"node", "vite"}, Session: all[0].ID, State: "D", AgeSeconds: 599, MemoryBytes: 2 << 30, Ports: all[0].Ports},
		{PID: 4713, PPID: 4712, Task: 2, Argv: []string{"esbuild", strings.Repeat("x", 100)}, Session: all[0].ID, State: "R", AgeSeconds: 598},
		{PID: 4800, PPID: 1, Task: 3, Argv: rows[0].Tasks[2].Argv, Session: all[0].ID, State: "S", AgeSeconds: 300},
		{PID: 4900, PPID: 1, Argv: []string{"moved"}, Escaped: "reparented", Session: "m000000000", State: "S", AgeSeconds: 300},
	}
	for _, w := range []int{0, 80} {
		st := Style{Width: w, Now: now}
		name := map[int]string{0: "-pipe", 80: "-80"}[w]
		var b bytes.Buffer
		if err := Tree(&b, all[:6], st); err != nil {
			t.Fatal(err)
		}
		golden(t, "tree"+name, b.String())
		fits(t, "tree"+name, b.String(), st)
		b.Reset()
		if err := Processes(&b, all[0].Alive, all[0].ID, st); err != nil {
			t.Fatal(err)
		}
		golden(t, "ps"+name, b.String())
		b.Reset()
		for i := range 2 {
			in := all[i].Info
			in.Created = time.Time{} // it would be shown in the zone of whoever runs the test
			if err := Inspect(&b, &in, st); err != nil {
				t.Fatal(err)
			}
		}
		golden(t, "inspect"+name, b.String())
	}
}

func TestDoctorLimitsEvents(t *testing.T) {
	st := Style{Now: now}
	var b bytes.Buffer
	Doctor(&b, []session.Check{
		{Name: "box", Status: session.CheckOK, Text: "auto gives cgroup"},
		{Name: "ceilings", Status: session.CheckMissing, Text: "no ceiling for memory", Fix: "boot otherwise"},
		{Name: "linger", Status: session.CheckUnknown, Text: "not told"},
	}, st)
	golden(t, "doctor", b.String())
	b.Reset()
	rows := sessions()
	Ceilings(&b, append(rows[0].Limits, rows[1].Limits...), st)
	golden(t, "limit", b.String())
	b.Reset()
	receipt, _ := json.Marshal(receiptOf())
	for _, e := range []store.Event{
		{Event: "opened", Name: "work", ID: "k3p1aaaaaa"},
		{Event: "task_started", Name: "work", Task: 3, Detail: json.RawMessage(`{"argv":["sh","-c","echo hi"]}`)},
		{Event: "task_ended", ID: "k3p1aaaaaa", Task: 3, Detail: json.RawMessage(`{"state":"failed","exit":7,"leftovers":2}`)},
		{Event: "task_ended", Name: "work", Task: 4, Detail: json.RawMessage(`{"state":"signaled","exit":-1}`)},
		{Event: "killed", Name: "work", Detail: json.RawMessage(`{"reason":"killed by sessionbox kill"}`)},
		{Event: "closed", Name: "work", Detail: receipt},
		{Event: "new_kind", Name: "work\x1b[31m", Msg: "as it says"},
	} {
		e.Time = now.In(time.Local)
		var line bytes.Buffer
		if err := Event(&line, &e, st); err != nil {
			t.Fatal(err)
		}
		b.WriteString(strings.Replace(line.String(), e.Time.Format(time.DateTime), "2026-08-24 12:00:00", 1))
	}
	golden(t, "events", b.String())
}
