package darwinjob

import (
	"errors"
	"slices"
	"testing"
)

// mac is a snapshot of a Mac with pid 1, a terminal's shell (pid 20) and ourselves (pid 30).
func mac(ps ...Proc) *Snapshot {
	s := &Snapshot{Boot: "b", Caps: Caps{Unique: true, ParentVersion: true, Coalition: true, Wrap: 1000, Self: 30, UID: 501}}
	all := append([]Proc{
		{ID: ID{PID: 1, Start: 1, Unique: 1}, SID: 1, PGID: 1},
		{ID: ID{PID: 20, Start: 20, Unique: 20}, PPID: 1, SID: 20, PGID: 20, Coalition: 5},
		{ID: ID{PID: 30, Start: 30, Unique: 30}, PPID: 20, SID: 20, PGID: 30, Coalition: 5},
	}, ps...)
	for _, p := range all {
		if p.Start == 0 {
			p.Start = p.Unique
		}
		if p.State == 0 {
			p.State = Running
		}
		if p.UID == 0 {
			p.UID = 501
		}
		p.Pinned = !p.Pinned // in these tests true means that it was not
		s.Procs = append(s.Procs, p)
	}
	return s
}

// at is a process of a Mac.
func at(pid int, unique uint64, ppid int, more Proc) Proc {
	more.ID = ID{PID: pid, Unique: unique}
	more.PPID = ppid
	if more.Coalition == 0 {
		more.Coalition = 5
	}
	return more
}

// root is the session's first process: pid 100, unique id 100, a session of its own.
var root = at(100, 100, 30, Proc{SID: 100, PGID: 100, Version: 1100, ParentUnique: 30})

// openMac is a ledger that has seen the snapshots.
func openMac(t *testing.T, before ...*Snapshot) *Ledger {
	t.Helper()
	l := NewLedger("s", mac())
	first := mac(root)
	l.AddRoot(first.Procs[3], "task-1")
	for _, s := range append([]*Snapshot{first}, before...) {
		if _, err := l.Observe(s); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// Each rule of facts/darwin.md §7, and what takes it away.
func TestRules(t *testing.T) {
	stopped := at(100, 100, 30, Proc{SID: 100, PGID: 100, Version: 1100})
	for _, c := range []struct {
		name   string
		before []*Snapshot
		now    *Snapshot
		pid    int
		want   []Evidence
	}{
		{"H3, the parent lives", nil, mac(stopped, at(200, 200, 100, Proc{ParentUnique: 100, SID: 200, Pinned: true})), 200, []Evidence{ByParentID}},
		{"H3, the parent has ended", nil, mac(at(200, 200, 1, Proc{ParentUnique: 100, SID: 200})), 200, []Evidence{ByParentID}},
		{"H3, the parent lives and is not its parent", nil, mac(stopped, at(200, 200, 1, Proc{ParentUnique: 100, SID: 200})), 200, nil},
		{"H3, another is its parent", nil, mac(stopped, at(200, 200, 20, Proc{ParentUnique: 100, SID: 200})), 200, nil},
		{"H3, of a job of launchd's", nil, mac(at(200, 200, 1, Proc{ParentUnique: 100, SID: 200, Coalition: 9})), 200, nil},
		{"H3, older than its parent", nil, mac(at(99, 99, 1, Proc{ParentUnique: 100, SID: 99})), 99, nil},
		{"H3, it had another parent before", []*Snapshot{mac(root, at(200, 200, 20, Proc{ParentUnique: 20, SID: 200}))},
			mac(at(200, 200, 1, Proc{ParentUnique: 100, SID: 200})), 200, nil},
		{"H3, it showed the member while another was its parent", []*Snapshot{mac(root, at(200, 200, 20, Proc{ParentUnique: 100, SID: 200}))},
			mac(at(200, 200, 1, Proc{ParentUnique: 100, SID: 200})), 200, nil},
		{"H4", nil, mac(stopped, at(200, 200, 100, Proc{ParentUnique: 1, SID: 200})), 200, []Evidence{ByParent}},
		{"H4, the pid has changed hands", nil, mac(at(100, 1199, 20, Proc{SID: 100}), at(200, 1200, 100, Proc{ParentUnique: 1199, SID: 100})), 200, nil},
		{"H6, the number is another's pid", nil, mac(at(100, 199, 20, Proc{SID: 20}), at(200, 200, 1, Proc{ParentUnique: 1, SID: 100})), 200, nil},
		{"H4, the parent's pid may have changed hands", nil,
			mac(at(100, 100, 30, Proc{SID: 100, Pinned: true}), at(200, 200, 100, Proc{ParentUnique: 1, SID: 200})), 200, nil},
		{"H5", nil, mac(at(200, 200, 1, Proc{ParentUnique: 1, ParentVersion: 1100, SID: 200})), 200, []Evidence{ByVersion}},
		{"H6, with a member", []*Snapshot{mac(root, at(150, 150, 100, Proc{ParentUnique: 100, SID: 100, PGID: 100}))},
			mac(at(150, 150, 1, Proc{SID: 100, PGID: 100}), at(5000, 5000, 1, Proc{ParentUnique: 1, SID: 100})), 5000, []Evidence{BySession}},
		{"H6, with a member that may have left it", []*Snapshot{mac(root, at(150, 150, 100, Proc{ParentUnique: 100, SID: 100, PGID: 100}))},
			mac(at(150, 150, 1, Proc{SID: 100, PGID: 100, Pinned: true}), at(5000, 5000, 1, Proc{ParentUnique: 1, SID: 100})), 5000, nil},
		{"H6, before the pids came round", nil, mac(at(200, 200, 1, Proc{ParentUnique: 1, SID: 100})), 200, []Evidence{BySession}},
		{"H6, after the pids came round", nil, mac(at(200, 1100, 1, Proc{ParentUnique: 1, SID: 100})), 200, nil},
		{"H6, the leader is another", nil, mac(at(100, 199, 1, Proc{ParentUnique: 1, SID: 100})), 100, nil},
		{"H6 by the group, the session is not known", []*Snapshot{mac(root, at(150, 150, 100, Proc{ParentUnique: 100, SID: 100, PGID: 150}))},
			mac(at(150, 150, 1, Proc{SID: 100, PGID: 150}), at(5000, 5000, 1, Proc{ParentUnique: 1, PGID: 150})), 5000, []Evidence{ByGroup}},
		{"a stranger's group with the number", nil, mac(stopped, at(200, 200, 1, Proc{ParentUnique: 1, SID: 20, PGID: 100})), 200, nil},
		{"no unique id", nil, mac(stopped, Proc{ID: ID{PID: 200, Start: 200}, PPID: 100, SID: 100}), 200, nil},
		{"nothing", nil, mac(stopped, at(200, 200, 1, Proc{ParentUnique: 1, SID: 20, PGID: 20})), 200, nil},
	} {
		v, err := openMac(t, c.before...).Observe(c.now)
		if err != nil {
			t.Fatal(err)
		}
		var got []Evidence
		if m := v.in[c.pid]; m != nil {
			got = m.Evidence
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A chain that was forked between two readings is found in one, whatever the order.
func TestFixpoint(t *testing.T) {
	v, err := openMac(t).Observe(mac(
		at(103, 203, 102, Proc{ParentUnique: 202, SID: 103}), at(102, 202, 101, Proc{ParentUnique: 201, SID: 100}),
		at(101, 201, 100, Proc{ParentUnique: 100, SID: 100}), root, at(104, 204, 1, Proc{ParentUnique: 1, SID: 103})))
	if err != nil {
		t.Fatal(err)
	}
	for pid, depth := range map[int]int{100: 0, 101: 1, 102: 2, 103: 3, 104: 4} {
		if m := v.in[pid]; m == nil || m.Leaf != "task-1" || m.Depth != depth {
			t.Errorf("pid %d: %+v; want a member of task-1, %d steps from the root", pid, m, depth)
		}
	}
}

// In Job mode the coalition alone makes a member, and ours does not.
func TestJobMode(t *testing.T) {
	l := openMac(t)
	l.Mode, l.Coalition = Job, 77
	v, err := l.Observe(mac(at(200, 200, 1, Proc{ParentUnique: 1, SID: 200, Coalition: 77}), at(201, 201, 1, Proc{ParentUnique: 1, SID: 201, Coalition: 5})))
	if err != nil {
		t.Fatal(err)
	}
	if v.in[200] == nil || v.in[201] != nil {
		t.Errorf("members %v, want pid 200 alone", v.Members)
	}
}

// The coalition says that one is of the session, not of which leaf: what ancestry tells counts.
func TestJobLeaf(t *testing.T) {
	l := openMac(t)
	l.Mode, l.Coalition = Job, 77
	in := func(p Proc) Proc { p.Coalition = 77; return p }
	v, err := l.Observe(mac(in(root), in(at(101, 201, 100, Proc{ParentUnique: 100, SID: 100})), in(at(200, 300, 1, Proc{ParentUnique: 1, SID: 200}))))
	if err != nil {
		t.Fatal(err)
	}
	for pid, leaf := range map[int]string{100: "task-1", 101: "task-1", 200: ""} {
		if m := v.in[pid]; m == nil || m.Leaf != leaf {
			t.Errorf("pid %d: %+v, want a member in leaf %q", pid, m, leaf)
		}
	}
}

// What was kept in another session stays in the coalition, and is the other's: not ended with the
// job, and no reason to say that the job is not empty.
func TestJobKept(t *testing.T) {
	l := openMac(t)
	l.Mode, l.Coalition = Job, 77
	l.Coalitions = nil
	kept := l.Part("task-1", "k", "task-3")
	if kept.Mode != Direct || kept.Coalition != 0 || !slices.Contains(kept.Coalitions, 77) {
		t.Fatalf("what was given away: %+v", kept)
	}
	job := NewLedger("s", mac())
	job.Mode, job.Coalition = Job, 77
	in := func(p Proc) Proc { p.Coalition = 77; return p }
	s := mac(in(root), in(at(101, 201, 100, Proc{ParentUnique: 100, SID: 100})), in(at(200, 300, 1, Proc{ParentUnique: 1, SID: 200})))
	v, err := job.Observe(s)
	if err != nil {
		t.Fatal(err)
	}
	if unclear := v.yield([]*Ledger{kept}); len(unclear) > 0 || len(v.Members) != 1 || v.Members[0].PID != 200 {
		t.Errorf("of the job: %+v; unclear: %+v; want pid 200 alone", v.Members, unclear)
	}
	v, err = kept.Observe(s)
	if err != nil {
		t.Fatal(err)
	}
	if unclear := v.yield([]*Ledger{job}); len(unclear) > 0 || len(v.Members) != 2 || v.in[100] == nil || v.in[101] == nil {
		t.Errorf("kept: %+v; unclear: %+v; want 100 and 101", v.Members, unclear)
	}
}

// A ledger that a stub has written makes the session's a job's; one of a session inside does not.
func TestJobMerge(t *testing.T) {
	stub := NewLedger("s", mac())
	stub.Mode, stub.Coalition, stub.Stub = Job, 77, ID{PID: 50, Start: 50, Unique: 50}
	l := NewLedger("s", mac())
	if err := l.Merge(stub); err != nil || l.Mode != Job || l.Coalition != 77 || l.Stub != stub.Stub {
		t.Errorf("%+v, %v", l, err)
	}
	around := NewLedger("r", mac())
	if err := around.Include(stub, func(leaf string) string { return leaf }); err != nil || around.Mode != Direct {
		t.Errorf("of the session around it: %+v, %v", around, err)
	}
}

// Ourselves and those we descend from are never signalled, also as members.
func TestShields(t *testing.T) {
	inside := mac(root, at(110, 110, 100, Proc{ParentUnique: 100, SID: 100, PGID: 110}), at(111, 111, 110, Proc{ParentUnique: 110, SID: 100, PGID: 110}),
		at(112, 112, 100, Proc{ParentUnique: 100, SID: 100, PGID: 112}))
	inside.Caps.Self = 111
	v, err := openMac(t).Observe(inside)
	if err != nil {
		t.Fatal(err)
	}
	for pid, shielded := range map[int]bool{100: true, 110: true, 111: true, 112: false} {
		if m := v.in[pid]; m == nil || (m.Shield != "") != shielded {
			t.Errorf("pid %d: %+v, want a member, shielded: %v", pid, m, shielded)
		}
	}
}

// Children of the one that collects orphans are members; a helper in its own session does
// not make that session ours, and neither does anything if its session cannot be read.
func TestReaper(t *testing.T) {
	for _, sid := range []int{20, 0} {
		l := openMac(t)
		s := mac(root, at(200, 200, 30, Proc{SID: 200}), at(201, 201, 30, Proc{SID: 20}), at(202, 202, 20, Proc{SID: 20}), at(203, 203, 1, Proc{SID: 200}))
		l.Reapers = []Reaper{{ID: s.Procs[2].ID}}
		s.Procs[2].SID = sid
		v, err := l.Observe(s)
		if err != nil {
			t.Fatal(err)
		}
		for pid, want := range map[int]bool{200: true, 201: true, 202: false, 20: false, 203: sid != 0} {
			if got := v.in[pid] != nil; got != want {
				t.Errorf("the reaper's session is %d: pid %d a member: %v, want %v", sid, pid, got, want)
			}
		}
		if !v.foreign(20) || v.foreign(100) {
			t.Errorf("foreign: the shell's session %v, the root's %v", v.foreign(20), v.foreign(100))
		}
	}
}

// A root that leads no session of its own makes none of its numbers the session's.
func TestAdoptedRootSealsNothing(t *testing.T) {
	l := NewLedger("s", mac())
	l.AddRoot(mac(at(100, 100, 20, Proc{SID: 20, PGID: 100})).Procs[3], "")
	v, err := l.Observe(mac(at(100, 100, 20, Proc{SID: 20, PGID: 100, ParentUnique: 20}), at(200, 200, 20, Proc{SID: 20, PGID: 100, ParentUnique: 20}),
		at(201, 201, 100, Proc{SID: 20, PGID: 201, ParentUnique: 100})))
	if err != nil {
		t.Fatal(err)
	}
	if v.in[200] != nil || v.in[20] != nil || v.in[201] == nil {
		t.Errorf("members %+v, want the root and its child", v.Members)
	}
}

// marked is a table whose processes carry marks.
type marked struct {
	Table
	marks map[int]Marks
}

func (m marked) Marks(id ID, _ Marks) (Marks, error) { return m.marks[id.PID], nil }

func TestMarks(t *testing.T) {
	const cookie = "c00kie"
	alone := func(p Proc) *Snapshot { return mac(at(200, 200, 1, p)) }
	other := Proc{ParentUnique: 1, SID: 200}
	elsewhere, foreign, older := other, other, mac(at(99, 99, 1, other))
	elsewhere.Coalition, foreign.UID = 9, 502
	tty := other
	tty.TTY = 16
	for _, c := range []struct {
		name    string
		s       *Snapshot
		m       Marks
		member  bool
		suspect bool
	}{
		{"the cookie", alone(other), Marks{Cookie: cookie}, true, false},
		{"another's cookie", alone(other), Marks{Cookie: "other"}, false, false},
		{"the pipe", alone(other), Marks{Sentinel: 7}, true, false},
		{"the cookie, handed to a job of launchd's", alone(elsewhere), Marks{Cookie: cookie}, false, true},
		{"the cookie, of another user", alone(foreign), Marks{Cookie: cookie}, false, false},
		{"the cookie, older than the session", older, Marks{Cookie: cookie}, false, false},
		{"the cookie, a program of the system", alone(other), Marks{Cookie: cookie, Exe: "/System/Library/x"}, false, true},
		{"the cookie, a shared server", alone(other), Marks{Cookie: cookie, Exe: "/opt/homebrew/bin/tmux"}, false, true},
		{"the cookie, to be kept", alone(other), Marks{Cookie: cookie, Keep: true}, false, true},
		{"the terminal alone", alone(tty), Marks{}, false, true},
		{"the directory alone", alone(other), Marks{Cwd: "/work"}, false, true},
		{"nothing", alone(other), Marks{}, false, false},
	} {
		l := openMac(t)
		l.Cookie, l.Sentinel, l.TTY, l.Dir = cookie, 7, 16, "/work"
		v, err := l.Observe(c.s)
		if err != nil {
			t.Fatal(err)
		}
		suspects := v.search(marked{marks: map[int]Marks{200: c.m, 99: c.m}}, &seen{})
		if got := v.in[200] != nil || v.in[99] != nil; got != c.member {
			t.Errorf("%s: a member: %v, want %v", c.name, got, c.member)
		}
		if got := len(suspects) > 0; got != c.suspect {
			t.Errorf("%s: suspects %+v", c.name, suspects)
		}
	}
}

// A mark decides nothing of who, or whose parent, changed while it was read: by that it may be
// seen to be another session's a moment later. Nor of who started from one that is not there.
func TestMarkedMoves(t *testing.T) {
	for _, c := range []struct {
		name   string
		ps     []Proc
		member bool
	}{
		{"stands", []Proc{at(200, 200, 1, Proc{ParentUnique: 1, SID: 200})}, true},
		{"stands below one that stands", []Proc{at(190, 190, 1, Proc{ParentUnique: 1, SID: 190}), at(200, 200, 190, Proc{ParentUnique: 190, SID: 200})}, true},
		{"moves", []Proc{at(200, 200, 1, Proc{ParentUnique: 1, SID: 200, Pinned: true})}, false},
		{"stands below one that moves", []Proc{at(190, 190, 1, Proc{ParentUnique: 1, SID: 190, Pinned: true}), at(200, 200, 190, Proc{ParentUnique: 190, SID: 200})}, false},
		{"stands below nobody", []Proc{at(200, 200, 190, Proc{ParentUnique: 190, SID: 200})}, false},
	} {
		l := openMac(t)
		l.Cookie = "c"
		v, err := l.Observe(mac(c.ps...))
		if err != nil {
			t.Fatal(err)
		}
		suspects := v.search(marked{marks: map[int]Marks{200: {Cookie: "c"}}}, &seen{})
		if got := v.in[200] != nil; got != c.member {
			t.Errorf("%s: a member: %v, want %v", c.name, got, c.member)
		}
		if !c.member && (len(suspects) != 1 || suspects[0].Why != whyBlurred) {
			t.Errorf("%s: suspects %+v", c.name, suspects)
		}
	}
}

// Who was found by a mark brings its children along, which then weigh as much as it.
func TestMarkedFamily(t *testing.T) {
	l := openMac(t)
	l.Cookie = "c"
	v, err := l.Observe(mac(at(200, 200, 1, Proc{ParentUnique: 1, SID: 200}), at(201, 201, 200, Proc{ParentUnique: 200, SID: 201}), at(202, 202, 1, Proc{ParentUnique: 1, SID: 200})))
	if err != nil {
		t.Fatal(err)
	}
	v.search(marked{marks: map[int]Marks{200: {Cookie: "c"}}}, &seen{})
	if m := v.in[201]; m == nil || m.Score != killBar {
		t.Errorf("the child: %+v, want a member with its parent's score", m)
	}
	if v.in[202] != nil {
		t.Error("somebody is a member for being in the session of one that a mark made a member")
	}
}

func TestContest(t *testing.T) {
	hard := func(depth int) *Member { return &Member{Score: hardScore, Depth: depth} }
	soft := &Member{Score: killBar, Depth: 1}
	for _, c := range []struct {
		mine, other *Member
		want        verdict
	}{{hard(3), soft, ours}, {soft, hard(3), theirs}, {soft, soft, open}, {hard(1), hard(2), ours}, {hard(2), hard(1), theirs}, {hard(2), hard(2), open}} {
		if got := contest(c.mine, c.other); got != c.want {
			t.Errorf("%+v against %+v: %v, want %v", c.mine, c.other, got, c.want)
		}
	}
}

// What another session adopted of ours is not ours any more; what is nested in ours is.
func TestRivals(t *testing.T) {
	now := func() *Snapshot {
		return mac(root, at(110, 110, 100, Proc{ParentUnique: 100, SID: 100}), at(111, 111, 110, Proc{ParentUnique: 110, SID: 100}))
	}
	for _, within := range [][]string{nil, {"s"}} {
		l := openMac(t)
		r := NewLedger("r", mac())
		r.Within = within
		r.AddRoot(now().Procs[4], "")
		v, err := l.Observe(now())
		if err != nil {
			t.Fatal(err)
		}
		v.yield([]*Ledger{r})
		want := 1
		if within != nil {
			want = 3
		}
		if len(v.Members) != want {
			t.Errorf("rival within %q: %d members, want %d", within, len(v.Members), want)
		}
	}
}

func TestOtherBootAndNamespace(t *testing.T) {
	l := openMac(t)
	s := mac(root)
	s.Boot = "another"
	if _, err := l.Observe(s); !errors.Is(err, ErrOtherBoot) {
		t.Errorf("of another boot: %v", err)
	}
	s = mac(root)
	s.Namespace = 4
	if _, err := l.Observe(s); !errors.Is(err, ErrElsewhere) {
		t.Errorf("of another namespace: %v", err)
	}
}

// A ledger that was written out and read back knows the same, and stays small: ended
// processes leave it when nothing can point to them.
func TestLedgerLivesOn(t *testing.T) {
	l := openMac(t, mac(root, at(150, 150, 100, Proc{ParentUnique: 100, SID: 150, PGID: 150, Version: 7})))
	b, err := l.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := DecodeLedger(b)
	if err != nil {
		t.Fatal(err)
	}
	v, err := again.Observe(mac(at(150, 150, 1, Proc{SID: 150, PGID: 150}), at(200, 200, 1, Proc{ParentVersion: 7, SID: 200})))
	if err != nil || v.in[150] == nil || v.in[200] == nil {
		t.Errorf("after it was read back: %+v, %v", v, err)
	}
	for i := range 5000 {
		n := uint64(300 + i)
		if _, err := again.Observe(mac(at(150, 150, 1, Proc{SID: 150, PGID: 150}), at(300+i, n, 150, Proc{ParentUnique: 150, SID: 150, PGID: 150}))); err != nil {
			t.Fatal(err)
		}
	}
	if len(again.Nodes) > 20 {
		t.Errorf("%d nodes after 5,000 short commands", len(again.Nodes))
	}
	for _, bad := range []string{"", "{", `{"schema":1}`, `[]`} {
		if l, err := DecodeLedger([]byte(bad)); err == nil {
			t.Errorf("DecodeLedger(%q) = %+v, want an error", bad, l)
		}
	}
}

func TestMerge(t *testing.T) {
	a, b := openMac(t), NewLedger("s", mac())
	second := mac(at(120, 120, 30, Proc{SID: 120, PGID: 120})).Procs[3]
	b.AddRoot(second, "task-2")
	if err := a.Merge(b); err != nil {
		t.Fatal(err)
	}
	v, err := a.Observe(mac(root, at(120, 120, 30, Proc{SID: 120, PGID: 120}), at(130, 130, 1, Proc{ParentUnique: 1, SID: 120})))
	if err != nil {
		t.Fatal(err)
	}
	if m := v.in[130]; len(v.Members) != 3 || m == nil || m.Leaf != "task-2" {
		t.Errorf("members %+v, want both roots and what is in the second's session", v.Members)
	}
	other := NewLedger("s", &Snapshot{Boot: "another"})
	if err := a.Merge(other); !errors.Is(err, ErrOtherBoot) {
		t.Errorf("Merge of another boot: %v", err)
	}
}

// Parents are stopped before their children and killed after them, also when the table
// shows a circle.
func TestOrder(t *testing.T) {
	ms := []*Member{{Proc: at(5, 5, 4, Proc{})}, {Proc: at(3, 3, 1, Proc{})}, {Proc: at(4, 4, 3, Proc{})}, {Proc: at(8, 8, 9, Proc{})}, {Proc: at(9, 9, 8, Proc{})}}
	at := func(ms []*Member, pid int) int {
		return slices.IndexFunc(ms, func(m *Member) bool { return m.PID == pid })
	}
	if d := topDown(ms); len(d) != 5 || at(d, 3) > at(d, 4) || at(d, 4) > at(d, 5) {
		t.Errorf("topDown = %v", d)
	}
	if u := bottomUp(ms); at(u, 5) > at(u, 4) || at(u, 4) > at(u, 3) {
		t.Errorf("bottomUp = %v", u)
	}
}

// crowd is a table of 30,000 entries, a third of them one chain of descendants in the
// worst order.
func crowd() *Snapshot {
	ps := make([]Proc, 0, 30_001)
	for i := 30_000; i > 0; i-- {
		n := uint64(1000 + i)
		p := at(1000+i, n, 1, Proc{ParentUnique: 1, SID: 1000 + i})
		if i <= 10_000 {
			p = at(1000+i, n, 999+i, Proc{ParentUnique: n - 1, SID: 1000 + i})
		}
		ps = append(ps, p)
	}
	return mac(append(ps, at(1000, 1000, 30, Proc{SID: 1000}))...)
}

func observeCrowd(t testing.TB, s *Snapshot) {
	l := NewLedger("s", mac())
	l.AddRoot(s.Procs[len(s.Procs)-1], "")
	v, err := l.Observe(s)
	if err != nil || len(v.Members) != 10_001 {
		t.Fatalf("%d members, %v; want 10,001", len(v.Members), err)
	}
	if up := bottomUp(v.Members); up[0].PID != 11_000 || up[10_000].PID != 1000 {
		t.Fatalf("from %d to %d, want the deepest first", up[0].PID, up[10_000].PID)
	}
}

func TestCrowd(t *testing.T) { observeCrowd(t, crowd()) }

func BenchmarkCrowd(b *testing.B) {
	s := crowd()
	for b.Loop() {
		observeCrowd(b, s)
	}
}
