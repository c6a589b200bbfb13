package tui

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
)

var update = flag.Bool("update", false, "write the golden files")

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

var noon = time.Date(2026, 8, 24, 12, 0, 0, 0, time.UTC)

// fake is a world of sessions in which a key's deed shows.
type fake struct {
	at       time.Time
	sessions []session.Info
	alive    map[string][]session.Process
	wanted   []string // whose processes the latest look was asked for
	done     []string // what was done, in order
	fail     error    // of what is done next
	blind    error    // of looks
}

func limit(of string, limit, used uint64) *session.LimitInfo {
	b := memlimit.Bound{Of: of, Limit: limit, Used: used}
	return &session.LimitInfo{Of: of, LimitBytes: limit, UsedBytes: used, UsedPercent: b.Percent()}
}

// world has one of everything that can be seen.
func world() *fake {
	task := func(n int, state string, left int, argv ...string) session.TaskInfo {
		return session.TaskInfo{N: n, State: state, Argv: argv, Leftovers: left, Started: noon.Add(-time.Duration(100-n) * time.Minute)}
	}
	proc := func(pid, task int, mem int64, argv ...string) session.Process {
		return session.Process{PID: pid, Start: uint64(pid), Task: task, Argv: argv, MemoryBytes: mem, AgeSeconds: float64(6000 - pid)}
	}
	f := &fake{at: noon, sessions: []session.Info{
		{ID: "agent00000", Name: "agent", State: "open", AgeSeconds: 49 * 3600, Running: 2, Processes: 4,
			Tasks: []session.TaskInfo{task(1, "exited", 0, "npm", "ci"), task(2, "running", 0, "/usr/bin/npm", "run", "dev", "--", "--host"), task(10, "running", 0, "vitest", "--watch")},
			Usage: session.UsageInfo{MemoryBytes: new(uint64(3400 << 20)), CPUSeconds: new(100.0), PressurePercent: new(12.5), Limit: limit(memlimit.BoundOwn, 4<<30, 3400<<20), Source: "cgroup"}},
		{ID: "inner00000", Name: "inner", Parent: "agent00000", State: "open", AgeSeconds: 1800, Running: 1, Processes: 1,
			Tasks: []session.TaskInfo{task(1, "running", 0, "cargo", "test")},
			Usage: session.UsageInfo{MemoryBytes: new(uint64(120 << 20)), CPUSeconds: new(5.0), PressurePercent: new(0.0), Limit: limit("sessionbox.slice", 6<<30, 5<<30), Source: "cgroup"}},
		{ID: "web0000000", Name: "web", State: "open", AgeSeconds: 7300, Leftovers: 3, Processes: 3,
			Tasks: []session.TaskInfo{task(1, "failed", 2, "sh", "start.sh")},
			Usage: session.UsageInfo{MemoryBytes: new(uint64(812 << 20)), CPUSeconds: new(50.0), PressurePercent: new(1.5), Limit: limit(memlimit.BoundHost, 8<<30, 6<<30), Source: "processes"}},
		{ID: "cold000000", State: "open", AgeSeconds: 40, Box: session.BoxInfo{Frozen: true},
			Usage: session.UsageInfo{MemoryBytes: new(uint64(0)), CPUSeconds: new(0.0), Limit: limit(memlimit.BoundHost, 8<<30, 6<<30), Source: "processes"}},
		{ID: "bad0000000", Name: "bad", State: session.StateBroken, Problems: []string{"bad record"}},
	}, alive: map[string][]session.Process{
		"agent00000": {proc(4711, 2, 120<<20, "npm", "run", "dev"), proc(4712, 2, 2<<30, "node", "vite", "\x1b[2J日本語"), proc(4800, 10, 900<<20, "vitest", "worker"), proc(4801, 10, 90<<20, "vitest")},
		"inner00000": {proc(4900, 1, 100<<20, "cargo", "test")},
		"web0000000": {proc(5001, 1, 700<<20, "/opt/node/bin/node", "server.js"), proc(5002, 1, 80<<20, "node", "worker.js"), proc(5003, 0, 1<<20, "moved")},
	}}
	for i := range f.sessions {
		if s := &f.sessions[i]; s.AgeSeconds > 0 {
			s.Created = noon.Add(-seconds(s.AgeSeconds))
		}
	}
	return f
}

// pass lets time pass: half of it is spent by each process.
func (f *fake) pass(d time.Duration) {
	f.at = f.at.Add(d)
	for i := range f.sessions {
		if u := &f.sessions[i].Usage; u.CPUSeconds != nil && len(f.alive[f.sessions[i].ID]) > 0 {
			u.CPUSeconds = new(*u.CPUSeconds + d.Seconds()/2*float64(len(f.alive[f.sessions[i].ID])))
			u.MemoryBytes = new(*u.MemoryBytes + 10<<20)
		}
		for p := range f.alive[f.sessions[i].ID] {
			f.alive[f.sessions[i].ID][p].CPUSeconds += d.Seconds() / 2
		}
	}
}

func (f *fake) Look(_ context.Context, wanted func(string) bool) (Snapshot, error) {
	s := Snapshot{Look: session.Look{At: f.at, Sessions: slices.Clone(f.sessions)}, Alive: map[string][]session.Process{}}
	f.wanted = nil
	for i := range s.Sessions {
		if id := s.Sessions[i].ID; wanted(id) {
			f.wanted = append(f.wanted, id)
			s.Alive[id] = slices.Clone(f.alive[id])
		}
	}
	return s, f.blind
}

func (f *fake) did(what string, args ...any) error {
	if f.fail == nil {
		f.done = append(f.done, fmt.Sprintf(what, args...))
	}
	return f.fail
}

func (f *fake) freeze(id string, frozen bool) {
	for i := range f.sessions {
		if f.sessions[i].ID == id && f.fail == nil {
			f.sessions[i].Box.Frozen = frozen
		}
	}
}

func (f *fake) Freeze(_ context.Context, id string) error {
	f.freeze(id, true)
	return f.did("freeze %s", id)
}

func (f *fake) Thaw(_ context.Context, id string) error {
	f.freeze(id, false)
	return f.did("thaw %s", id)
}

func (f *fake) WouldKill(_ context.Context, id string, task int) ([]session.Process, error) {
	return slices.DeleteFunc(slices.Clone(f.alive[id]), func(p session.Process) bool { return p.Task != task }), f.fail
}

func (f *fake) Kill(_ context.Context, id string, task int) error {
	f.alive[id] = slices.DeleteFunc(f.alive[id], func(p session.Process) bool { return p.Task == task })
	return f.did("kill %s/%d", id, task)
}

func (f *fake) WouldClose(_ context.Context, id string) (session.Receipt, error) {
	r := session.Receipt{ID: id, Closed: noon}
	for _, p := range f.alive[id] {
		r.Processes = append(r.Processes, session.Fated{Process: p, Fate: session.FateKilled})
	}
	for i := range f.sessions {
		if f.sessions[i].ID == id {
			r.Name = f.sessions[i].Name
		}
		if f.sessions[i].Parent == id {
			n, _ := f.WouldClose(context.Background(), f.sessions[i].ID)
			r.Nested = append(r.Nested, n)
		}
	}
	return r, f.fail
}

func (f *fake) Close(ctx context.Context, id string) (session.Receipt, error) {
	r, _ := f.WouldClose(ctx, id)
	if f.fail == nil {
		f.gone(id)
	}
	return r, f.did("close %s", id)
}

func (f *fake) gone(id string) {
	f.sessions = slices.DeleteFunc(f.sessions, func(i session.Info) bool { return i.ID == id || i.Parent == id })
}

// hand is somebody at the keyboard.
type hand struct {
	t     *testing.T
	f     *fake
	m     *model
	ticks []tea.Msg // that would come
}

// sit starts the program for a screen of that size and lets it look twice.
func sit(t *testing.T, f *fake, width, height int, color bool) *hand {
	t.Helper()
	h := &hand{t: t, f: f, m: newModel(t.Context(), f, 2*time.Second, color)}
	h.m.after = func(_ time.Duration, msg tea.Msg) tea.Cmd {
		h.ticks = append(h.ticks, msg)
		return nil
	}
	h.send(tea.WindowSizeMsg{Width: width, Height: height})
	h.run(h.m.Init())
	h.tick()
	return h
}

func (h *hand) send(msg tea.Msg) {
	_, cmd := h.m.Update(msg)
	h.run(cmd)
}

// run runs commands at once, and those that come of their answers.
func (h *hand) run(cmd tea.Cmd) {
	if cmd == nil {
		return
	}
	if msg := cmd(); msg != nil {
		if _, quit := msg.(tea.QuitMsg); quit {
			h.f.done = append(h.f.done, "quit")
			return
		}
		h.send(msg)
	}
}

// tick lets two seconds pass, and the look come that is due.
func (h *hand) tick() {
	h.f.pass(2 * time.Second)
	due := h.ticks
	h.ticks = nil
	for _, msg := range due {
		h.send(msg)
	}
}

// press presses keys: letters, or names of one key.
func (h *hand) press(keys ...string) {
	h.t.Helper()
	named := map[string]tea.Key{"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "up": {Code: tea.KeyUp}, "down": {Code: tea.KeyDown},
		"left": {Code: tea.KeyLeft}, "right": {Code: tea.KeyRight}, "space": {Code: tea.KeySpace, Text: " "}, "backspace": {Code: tea.KeyBackspace},
		"ctrl+c": {Code: 'c', Mod: tea.ModCtrl}, "end": {Code: tea.KeyEnd}, "pgup": {Code: tea.KeyPgUp}}
	for _, k := range keys {
		if key, ok := named[k]; ok {
			h.send(tea.KeyPressMsg(key))
			continue
		}
		for _, r := range k {
			h.send(tea.KeyPressMsg{Code: r, Text: string(r)})
		}
	}
}

// at moves the cursor to the line with a key.
func (h *hand) at(key string) {
	h.t.Helper()
	for i := range h.m.rows {
		if h.m.rows[i].key == key {
			h.m.move(i - h.m.at)
			return
		}
	}
	h.t.Fatalf("no line %s in:\n%s", key, h.text())
}

func (h *hand) text() string { return h.m.View().Content }

// sees wants texts on the screen.
func (h *hand) sees(texts ...string) {
	h.t.Helper()
	for _, text := range texts {
		if !strings.Contains(h.text(), text) {
			h.t.Errorf("no %q in:\n%s", text, h.text())
		}
	}
}

func (h *hand) seesNot(texts ...string) {
	h.t.Helper()
	for _, text := range texts {
		if strings.Contains(h.text(), text) {
			h.t.Errorf("%q in:\n%s", text, h.text())
		}
	}
}

func (h *hand) did(want ...string) {
	h.t.Helper()
	if diff := cmp.Diff(want, h.f.done); diff != "" {
		h.t.Errorf("done (-want +got):\n%s", diff)
	}
	h.f.done = nil
}

// keys are the lines in order.
func (h *hand) keys() []string {
	var all []string
	for _, r := range h.m.rows {
		all = append(all, r.key)
	}
	return all
}

// fits checks that nothing is outside of the screen and no control character on it.
func (h *hand) fits() {
	h.t.Helper()
	lines := strings.Split(h.text(), "\n")
	if len(lines) > h.m.height {
		h.t.Errorf("%d lines on a screen of %d", len(lines), h.m.height)
	}
	for _, l := range lines {
		if n := ansi.StringWidth(l); n > h.m.width {
			h.t.Errorf("%d columns of %d: %q", n, h.m.width, l)
		}
		if strings.ContainsFunc(ansi.Strip(l), func(r rune) bool { return r < ' ' }) {
			h.t.Errorf("a control character in %q", l)
		}
	}
}
