package store

import (
	"math"
	"strings"
	"testing"
)

func TestNewID(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := NewID()
		if !ValidID(id) || !ValidName(id) || id[0] < 'a' || seen[id] {
			t.Fatalf("NewID() = %q", id)
		}
		seen[id] = true
	}
	if c := NewCookie(); len(c) != 32 || c == NewCookie() {
		t.Errorf("NewCookie() = %q", c)
	}
}

func TestValid(t *testing.T) {
	for s, want := range map[string]struct{ id, name bool }{
		"":                      {false, false},
		".":                     {false, false},
		"..":                    {false, false},
		"-x":                    {false, false},
		"_x":                    {false, false},
		"a":                     {false, true},
		"A.b_c-d":               {false, true},
		"0":                     {false, true},
		"abcdefghij":            {true, true},
		"0123456789":            {true, true},
		"Abcdefghij":            {false, true},
		"abcdefghijk":           {false, true},
		"a/b":                   {false, false},
		"a b":                   {false, false},
		"a\x00":                 {false, false},
		"ä":                     {false, false},
		strings.Repeat("a", 64): {false, true},
		strings.Repeat("a", 65): {false, false},
	} {
		if got := ValidID(s); got != want.id {
			t.Errorf("ValidID(%q) = %v", s, got)
		}
		if got := ValidName(s); got != want.name {
			t.Errorf("ValidName(%q) = %v", s, got)
		}
	}
}

func TestSplitRef(t *testing.T) {
	for ref, want := range map[string]struct {
		session string
		task    int
		ok      bool
	}{
		"web": {"web", 0, true}, "web/3": {"web", 3, true}, "./12": {".", 12, true}, ".": {".", 0, true},
		"": {}, "/3": {}, "web/": {}, "web/0": {}, "web/-1": {}, "web/+1": {}, "web/01": {}, "web/x": {},
		"web/1/2": {}, "web/99999999999999999999": {}, "web/4294967297": {},
	} {
		session, task, err := SplitRef(ref)
		if (err == nil) != want.ok || err == nil && (session != want.session || task != want.task) {
			t.Errorf("SplitRef(%q) = %q, %d, %v; want %+v", ref, session, task, err, want)
		}
	}
}

func TestCheck(t *testing.T) {
	ok := newSession("web")
	if err := ok.Check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Session){
		"schema 0":     func(s *Session) { s.Schema = 0 },
		"newer schema": func(s *Session) { s.Schema = 2 },
		"id":           func(s *Session) { s.ID = "../../../x" },
		"name":         func(s *Session) { s.Name = "." },
		"parent":       func(s *Session) { s.Parent = "x" },
		"own parent":   func(s *Session) { s.Parent = s.ID },
		"state":        func(s *Session) { s.State = "" },
		"grace":        func(s *Session) { s.Grace = -1 },
		"pid -1":       func(s *Session) { s.Creator.PID = -1 },
		"pid 2^31-1":   func(s *Session) { s.Creator.PID = math.MaxInt32 },
	} {
		rec := ok
		if spoil(&rec); rec.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for name, spoil := range map[string]func(*Task){
		"schema":     func(t *Task) { t.Schema = 9 },
		"number":     func(t *Task) { t.N = -1 },
		"state":      func(t *Task) { t.State = "done" },
		"pid -1":     func(t *Task) { t.PID = -1 },
		"pid 1":      func(t *Task) { t.PID = 1 },
		"pid 2^31-1": func(t *Task) { t.PID = math.MaxInt32 },
		"timeout":    func(t *Task) { t.Timeout = -1 },
		"supervisor": func(t *Task) { t.Supervisor.PID = -7 },
	} {
		rec := newTask()
		rec.Schema = 1
		if spoil(&rec); rec.Check() == nil {
			t.Errorf("task %s: accepted", name)
		}
	}
}
