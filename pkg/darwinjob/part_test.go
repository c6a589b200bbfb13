package darwinjob

import "testing"

// A part knows its own leaf and nothing of others', and neither shares anything with the whole.
func TestPart(t *testing.T) {
	l := &Ledger{Boot: "b", Session: "old", Sessions: map[int]Number{10: {Leaf: "task-1"}, 20: {Leaf: "task-2"}}, Groups: map[int]Number{10: {Leaf: "task-1"}},
		Reapers: []Reaper{{ID{PID: 5, Start: 1}, "task-1"}, {ID{PID: 6, Start: 1}, "task-2"}}, Away: []ID{{PID: 9, Start: 9}},
		Nodes: []*Node{{ID: ID{PID: 10, Start: 2}, Leaf: "task-1", Root: true}, {ID: ID{PID: 20, Start: 3}, Leaf: "task-2"}}}
	p := l.Part("task-1", "new", "task-7")
	if p.Session != "new" || len(p.Nodes) != 1 || p.Nodes[0].Leaf != "task-7" || len(p.Reapers) != 1 || p.Reapers[0].Leaf != "task-7" ||
		len(p.Sessions) != 1 || p.Sessions[10].Leaf != "task-7" || len(p.Away) != 0 {
		t.Errorf("part: %+v", p)
	}
	if p.node(ID{PID: 10, Start: 2}) == nil || p.node(ID{PID: 20, Start: 3}) != nil {
		t.Error("its index is not of its own nodes")
	}
	if l.Session != "old" || len(l.Nodes) != 2 || l.Nodes[0].Leaf != "task-1" || l.Sessions[10].Leaf != "task-1" || l.Reapers[0].Leaf != "task-1" {
		t.Errorf("the whole was changed: %+v", l)
	}
}

// Who was given away is no member any more, nor is what he starts afterwards; what he
// started before and was not given is.
func TestAway(t *testing.T) {
	root := Proc{ID: ID{PID: 100, Start: 10}, PPID: 1, PGID: 100, SID: 100, State: Running, Pinned: true}
	kept := Proc{ID: ID{PID: 101, Start: 11}, PPID: 100, PGID: 100, SID: 100, State: Running, Pinned: true}
	child := Proc{ID: ID{PID: 102, Start: 12}, PPID: 101, PGID: 100, SID: 100, State: Running, Pinned: true}
	other := Proc{ID: ID{PID: 103, Start: 12}, PPID: 100, PGID: 100, SID: 100, State: Running, Pinned: true}
	s := &Snapshot{Boot: "b", Procs: []Proc{{ID: ID{PID: 1, Start: 1}, State: Running, Pinned: true}, root, kept, child, other}}
	l := NewLedger("x", s)
	l.AddRoot(root, "task-1")
	l.Away = []ID{kept.ID}
	v, err := l.Observe(s)
	if err != nil {
		t.Fatal(err)
	}
	got := map[int]bool{}
	for _, m := range v.Members {
		got[m.PID] = true
	}
	if len(got) != 2 || !got[100] || !got[103] {
		t.Errorf("members %v, want 100 and 103", got)
	}
}
