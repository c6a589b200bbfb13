package tui

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// opened is the screen with everything open, after some looks.
func opened(t *testing.T, width, height int, color bool) *hand {
	h := sit(t, world(), width, height, color)
	for _, key := range []string{"agent00000", "agent00000/2", "web0000000", "web0000000/1"} {
		h.at(key)
		h.press("right")
	}
	for range 4 {
		h.tick()
	}
	h.at("web0000000")
	return h
}

func TestScreens(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {200, 50}, {40, 10}} {
		for _, color := range []bool{false, true} {
			name := fmt.Sprintf("%dx%d", size[0], size[1])
			if color {
				name += "-colour"
			}
			h := opened(t, size[0], size[1], color)
			golden(t, "top-"+name, h.text()+"\n")
			h.fits()
			h.at("agent00000")
			h.press("x")
			golden(t, "close-"+name, h.text()+"\n")
			h.press("n", "?")
			golden(t, "help-"+name, h.text()+"\n")
		}
	}
}

// Whatever the size of the terminal, nothing is written beside it and the selected
// line is seen.
func TestSizes(t *testing.T) {
	h := opened(t, 80, 24, false)
	h.at("web0000000/1")
	look := func(w, height int) {
		h.send(tea.WindowSizeMsg{Width: w, Height: height})
		h.fits()
		if w >= 10 && !strings.Contains(h.text(), ">") {
			t.Errorf("%d×%d: no cursor in:\n%s", w, height, h.text())
		}
		if w >= 40 && height >= 4 {
			h.sees("CPU", "MEM")
		}
	}
	for w := 1; w <= 250; w++ {
		look(w, 24)
	}
	for height := 1; height <= 60; height++ {
		look(40, height)
		look(250, height)
	}
	for _, keys := range [][]string{{"x"}, {"n", "?"}} {
		h.press(keys...)
		for _, size := range [][2]int{{1, 1}, {5, 2}, {40, 3}, {40, 6}, {250, 5}} {
			h.send(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
			h.fits()
		}
	}
}

func TestUnfold(t *testing.T) {
	h := sit(t, world(), 120, 30, false)
	if want := []string{"agent00000", "inner00000", "web0000000", "cold000000", "bad0000000"}; !slices.Equal(h.keys(), want) {
		t.Fatalf("%v; want %v", h.keys(), want)
	}
	if len(h.f.wanted) > 0 {
		t.Errorf("processes of %v were looked for, which nobody sees", h.f.wanted)
	}
	h.press("enter") // on agent
	if !slices.Equal(h.f.wanted, []string{"agent00000"}) {
		t.Errorf("looked for the processes of %v", h.f.wanted)
	}
	// An ended task that left nothing is not shown.
	if want := []string{"agent00000", "agent00000/2", "agent00000/10", "inner00000"}; !slices.Equal(h.keys()[:4], want) {
		t.Errorf("%v; want %v", h.keys(), want)
	}
	h.press("right", "right", "right") // to the first task, opens it, to its first process
	if got := h.m.selected().name; got != "4711" {
		t.Errorf("at %s; want process 4711", got)
	}
	h.press("right", "enter") // nothing is below a process
	h.press("left")
	if got := h.m.selected().key; got != "agent00000/2" {
		t.Errorf("at %s; want its task", got)
	}
	h.press("left", "left", "left") // closes the task, goes to the session, closes it
	if want := []string{"agent00000", "inner00000", "web0000000", "cold000000", "bad0000000"}; !slices.Equal(h.keys(), want) {
		t.Errorf("%v; want all closed", h.keys())
	}
	h.press("end")
	if got := h.m.selected().key; got != "bad0000000" {
		t.Errorf("at %s", got)
	}
	h.press("k", "up", "j", "space") // nothing is below a session in which nothing runs
	if got := h.m.selected().key; got != "cold000000" {
		t.Errorf("at %s", got)
	}
	if len(h.keys()) != 5 {
		t.Errorf("%v", h.keys())
	}
}

func TestFreezeThaw(t *testing.T) {
	h := sit(t, world(), 120, 30, false)
	h.at("web0000000")
	h.press("f")
	h.did("freeze web0000000")
	h.sees("web (frozen)", "froze web")
	h.press("t")
	h.did("thaw web0000000")
	h.sees("thawed web")
	h.seesNot("web (frozen)")

	h.f.fail = &session.Error{Kind: session.ErrUsage, Session: "web", Text: "this would freeze the caller", Hint: "freeze it from outside"}
	h.press("f")
	h.did()
	if !h.m.status.bad {
		t.Error("a failure is not shown as one")
	}
	h.f.fail = nil
	h.press("j", "f") // on the session below; the message has gone
	h.did("freeze cold000000")
}

// A failed look is said, and does not end the looking.
func TestLookFails(t *testing.T) {
	h := sit(t, world(), 120, 30, false)
	h.f.blind = &session.Error{Text: "no permission", Hint: "ask root"}
	h.tick()
	h.sees("look: no permission (ask root)", "web") // what was seen before stays
	h.f.blind = nil
	h.tick()
	h.seesNot("no permission")
	h.f.gone("web0000000")
	h.tick()
	h.seesNot("web")
}

func TestKill(t *testing.T) {
	h := opened(t, 120, 30, false)
	h.at("agent00000")
	h.press("K") // no task
	h.did()
	h.sees("this is no task")

	h.at("4711:4711")
	h.press("K")
	h.sees("Kill task agent/2? This ends 2 processes", "4711 npm run dev", "4712 node vite", "y: yes")
	h.seesNot("4800")
	for _, no := range []string{"n", "esc", "enter", "q"} {
		h.press(no)
		h.did()
		h.sees("nothing was ended", "SESSION")
		h.press("K")
	}
	h.press("x", "f", "j") // no other key means anything
	h.did()
	h.press("y")
	h.did("kill agent00000/2")
	h.sees("killed agent/2")
	h.seesNot("4711")
}

func TestClose(t *testing.T) {
	h := opened(t, 120, 30, false)
	h.at("agent00000/10") // of a task its session
	h.press("x")
	// with the session inside
	h.sees("Close session agent? This ends 5 processes", "4712 node vite", "4801 vitest", "session inner:", "    4900 cargo test")
	h.press("y")
	h.did("close agent00000")
	h.sees("closed agent: ", "5 processes ended")
	h.seesNot("vitest", "inner  cargo")
	if got := h.m.selected().key; got == "" {
		t.Error("nothing is selected")
	}

	h.at("cold000000")
	h.press("x")
	h.sees("Close session cold000000? This ends nothing")
	h.f.fail = &session.Error{Kind: session.ErrSurvivors, Text: "1 process survived", Hint: "it waits for nfs"}
	h.press("y")
	h.did()
	h.sees("close cold000000: 1 process survived (it waits for nfs)")
}

// What would end cannot be found out: nothing is asked, and it is said why.
func TestAskFails(t *testing.T) {
	h := sit(t, world(), 120, 30, false)
	h.f.fail = errors.New("no such session")
	h.press("x")
	if h.m.question != nil {
		t.Errorf("asked %q", h.m.question.text)
	}
}

// More than fits is counted.
func TestManyWouldEnd(t *testing.T) {
	f := world()
	for pid := range 100 {
		f.alive["web0000000"] = append(f.alive["web0000000"], session.Process{PID: 10000 + pid, Start: 1, Task: 1, Argv: []string{"esbuild"}})
	}
	h := sit(t, f, 80, 12, false)
	h.at("web0000000")
	h.press("x")
	h.sees("This ends 103 processes", "and 96 more", "y: yes")
	h.fits()
}

// The session that is selected, or asked about, is closed by somebody else.
func TestClosedMeanwhile(t *testing.T) {
	h := opened(t, 120, 30, false)
	h.at("web0000000")
	before := h.m.at
	h.press("x")
	h.sees("Close session web?")
	h.f.gone("web0000000")
	h.tick()
	h.sees("it has ended meanwhile")
	h.seesNot("Close session", "5001")
	if h.m.at != before || h.m.selected().key != "cold000000" {
		t.Errorf("at line %d, %s; want what moved to line %d", h.m.at, h.m.selected().key, before)
	}
	h.press("y") // too late to mean anything
	h.did()
	for len(h.f.sessions) > 0 {
		h.f.gone(h.f.sessions[0].ID)
		h.tick()
		h.fits()
	}
	h.sees("No session is open")
	h.press("x", "K", "f", "t", "enter", "left", "right", "j", "pgup", "s")
	h.did()
}

func TestFilter(t *testing.T) {
	h := sit(t, world(), 120, 30, false)
	h.press("/", "VITEST")
	h.sees("filter: VITEST_")
	// Its processes were looked for in all sessions; what is around them is shown.
	if want := []string{"agent00000", "agent00000/10"}; !slices.Equal(h.keys(), want) {
		t.Errorf("%v; want %v", h.keys(), want)
	}
	h.press("backspace", "backspace", "backspace", "backspace", "backspace", "backspace", "server.js", "enter")
	h.seesNot("_")
	if want := []string{"web0000000", "web0000000/1", "5001:5001"}; !slices.Equal(h.keys(), want) {
		t.Errorf("%v; want none, then %v", h.keys(), want)
	}
	h.press("esc")
	if len(h.keys()) != 5 {
		t.Errorf("%v; want all sessions", h.keys())
	}
	h.press("/", "zzz")
	h.sees("Nothing matches")
	h.press("qx", "esc") // letters, while it is typed
	h.did()
}

func TestSort(t *testing.T) {
	h := sit(t, world(), 120, 30, false)
	h.at("web0000000")
	for _, want := range [][]string{
		{"agent00000", "inner00000", "web0000000", "cold000000", "bad0000000"}, // by CPU
		{"agent00000", "inner00000", "web0000000", "cold000000", "bad0000000"}, // by memory
		{"agent00000", "inner00000", "bad0000000", "cold000000", "web0000000"}, // by name
		{"agent00000", "inner00000", "web0000000", "cold000000", "bad0000000"}, // by age
	} {
		h.press("s")
		if diff := cmp.Diff(want, h.keys()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", h.m.status.text, diff)
		}
		if h.m.selected().key != "web0000000" {
			t.Errorf("%s: the cursor is at %s", h.m.status.text, h.m.selected().key)
		}
	}
	if natural("9", "10") >= 0 || natural("b", "a") <= 0 || natural("10", "a") >= 0 {
		t.Error("9 comes before 10, and a before b")
	}
}

// There is one tick at a time, however many looks were asked for, and a look that
// comes late does not take the place of a newer one.
func TestLooks(t *testing.T) {
	h := sit(t, world(), 120, 30, false)
	h.press("f", "t", "f")
	live := slices.DeleteFunc(slices.Clone(h.ticks), func(msg tea.Msg) bool { return msg.(tickMsg).number != h.m.asked })
	if len(live) != 1 {
		t.Errorf("%d ticks that will look", len(live))
	}
	late, _ := h.f.Look(t.Context(), func(string) bool { return false })
	h.tick()
	now := h.m.snap.At
	h.send(lookedMsg{number: 1, snap: late})
	if !h.m.snap.At.Equal(now) {
		t.Error("an old look took the place of a newer one")
	}
}

func TestQuit(t *testing.T) {
	h := sit(t, world(), 80, 24, false)
	h.press("q")
	h.did("quit")
	if h.m.stopped {
		t.Error("q is no interrupt")
	}
	h.press("x", "ctrl+c") // also while something is asked
	h.did("quit")
	if !h.m.stopped {
		t.Error("Ctrl-C is one")
	}
}
