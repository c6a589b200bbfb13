package darwinjob

import (
	"fmt"
	"slices"
)

// View is what a ledger makes of one snapshot.
type View struct {
	Snapshot *Snapshot
	// Members are the session's processes in the order in which they were found,
	// zombies included.
	Members []*Member
	// Joined are those that were not known before; Left was known and is not there.
	Joined []*Member
	Left   []ID

	l      *Ledger
	pid    map[int]*Proc
	in     map[int]*Member // by pid
	shield map[int]string  // pid → why it is never signalled
	away   map[int]bool    // pids that are another session's, see Ledger.Away
	ours   map[int]*Member // session number → a member that is in it now
	groups map[int]*Member
	by     links
	todo   []*Member
}

// Member is a process of the session.
type Member struct {
	Proc
	Leaf     string
	Depth    int
	Score    int
	Evidence []Evidence
	// Shield says why it must not be signalled though it is a member, "" if it may.
	Shield string

	node  *Node
	fresh bool // not known before this snapshot
}

// links finds the processes of a snapshot by what they say of others.
type links struct {
	parent, sid, pgid map[int][]*Proc
	parentUnique      map[uint64][]*Proc
	parentVersion     map[int32][]*Proc
}

// Observe judges a snapshot and records what it shows: members are found from those
// known already, by the hard evidence alone, until nobody is added any more.
//
// A false "is missing" only delays; a false member would be killed. So whatever could
// not be read, or might have changed hands while it was read, counts for nothing.
func (l *Ledger) Observe(s *Snapshot) (*View, error) {
	if l.Boot != s.Boot {
		return nil, fmt.Errorf("session %s: %w", l.Session, ErrOtherBoot)
	}
	if l.Namespace != s.Namespace {
		return nil, fmt.Errorf("session %s: %w", l.Session, ErrElsewhere)
	}
	v := newView(l, s)
	v.seed()
	v.spread()
	v.sweepJob()
	v.record()
	return v, nil
}

func newView(l *Ledger, s *Snapshot) *View {
	v := &View{Snapshot: s, l: l, pid: make(map[int]*Proc, len(s.Procs)), in: map[int]*Member{},
		ours: map[int]*Member{}, groups: map[int]*Member{},
		by: links{parent: map[int][]*Proc{}, sid: map[int][]*Proc{}, pgid: map[int][]*Proc{},
			parentUnique: map[uint64][]*Proc{}, parentVersion: map[int32][]*Proc{}}}
	for i := range s.Procs {
		p := &s.Procs[i]
		v.pid[p.PID] = p
		v.by.parent[p.PPID] = append(v.by.parent[p.PPID], p)
		v.by.sid[p.SID] = append(v.by.sid[p.SID], p)
		v.by.pgid[p.PGID] = append(v.by.pgid[p.PGID], p)
		if p.ParentUnique != 0 {
			v.by.parentUnique[p.ParentUnique] = append(v.by.parentUnique[p.ParentUnique], p)
		}
		if p.ParentVersion != 0 {
			v.by.parentVersion[p.ParentVersion] = append(v.by.parentVersion[p.ParentVersion], p)
		}
	}
	v.shield = shields(s, v.pid)
	v.giveAway()
	return v
}

// giveAway finds those who were given to another session, and what they have started.
func (v *View) giveAway() {
	var todo []*Proc
	for _, id := range v.l.Away {
		if p := v.pid[id.PID]; p != nil && id.Same(p.ID) {
			todo = append(todo, p)
		}
	}
	if len(todo) > 0 {
		v.away = map[int]bool{}
	}
	for len(todo) > 0 {
		p := todo[0]
		todo = todo[1:]
		if v.away[p.PID] {
			continue
		}
		v.away[p.PID] = true
		for _, child := range v.by.parent[p.PID] {
			if v.parentOf(p, child) {
				todo = append(todo, child)
			}
		}
	}
}

// seed takes in who is known, and tries all that something recorded points to.
func (v *View) seed() {
	for _, n := range v.l.Nodes {
		if p := v.pid[n.PID]; p != nil && n.Same(p.ID) && !v.away[p.PID] {
			v.join(p, claim{score: n.Score, evidence: []Evidence{ByIdentity}, leaf: n.Leaf, depth: n.Depth, sealed: n.Sealed, node: n})
		}
	}
	for _, r := range v.l.Reapers {
		v.tryAll(v.by.parent[r.PID])
	}
	for _, n := range v.l.Nodes {
		v.tryLinks(n)
	}
	for n := range v.l.Sessions {
		v.tryAll(v.by.sid[n])
	}
	for n := range v.l.Groups {
		v.tryAll(v.by.pgid[n])
	}
}

// sweepJob takes in whoever else is in the job's coalition: after those whose ancestry shows
// which leaf they are of, which the coalition does not.
func (v *View) sweepJob() {
	if v.l.Mode != Job || v.l.Coalition == 0 {
		return
	}
	for i := range v.Snapshot.Procs {
		v.try(&v.Snapshot.Procs[i])
	}
	v.spread()
}

// spread follows all links from new members until there are none.
func (v *View) spread() {
	for len(v.todo) > 0 {
		m := v.todo[0]
		v.todo = v.todo[1:]
		v.tryLinks(m.node)
		v.tryAll(v.by.parent[m.PID])
		if v.anchors(m) {
			if m.SID > 1 && v.ours[m.SID] == nil && !v.foreign(m.SID) {
				v.ours[m.SID] = m
				v.tryAll(v.by.sid[m.SID])
			}
			if m.PGID > 1 && v.groups[m.PGID] == nil && v.ours[m.SID] != nil {
				v.groups[m.PGID] = m
				v.tryAll(v.by.pgid[m.PGID])
			}
		}
	}
}

func (v *View) tryLinks(n *Node) {
	if n.Unique != 0 {
		v.tryAll(v.by.parentUnique[n.Unique])
	}
	for _, ver := range n.Versions {
		v.tryAll(v.by.parentVersion[ver])
	}
}

func (v *View) tryAll(ps []*Proc) {
	for _, p := range ps {
		v.try(p)
	}
}

func (v *View) try(p *Proc) {
	if v.in[p.PID] != nil || v.away[p.PID] {
		return
	}
	if c := v.prove(p); c.score >= killBar {
		v.join(p, c)
	}
}

// join makes a process a member.
func (v *View) join(p *Proc, c claim) {
	m := &Member{Proc: *p, Leaf: c.leaf, Depth: c.depth, Score: c.score, Evidence: c.evidence, Shield: v.shield[p.PID], node: c.node}
	if m.node == nil {
		m.node = &Node{ID: p.ID, Leaf: c.leaf, Depth: c.depth, Sealed: c.sealed, Score: c.score, Evidence: c.evidence}
		m.fresh = true
		v.l.add(m.node)
		v.Joined = append(v.Joined, m)
	}
	v.l.versions(m.node, p.Version)
	v.in[p.PID] = m
	v.Members = append(v.Members, m)
	v.todo = append(v.todo, m)
}

// anchors says whether the session and group numbers of a member are the session's:
// it descends from a root that made a session of its own, so every number it can have
// come to was made by a member; and nobody else can have got it during the reading.
func (v *View) anchors(m *Member) bool {
	return m.Pinned && m.node.Sealed && m.Score == hardScore
}

// foreign says whether a session number cannot be ours, whatever speaks for it: it is
// that of ourselves or of one who started us, or its leader is older than we are.
func (v *View) foreign(sid int) bool {
	for pid := range v.shield {
		if p := v.pid[pid]; p != nil && p.SID == sid && v.in[pid] == nil {
			return true
		}
	}
	for _, r := range v.l.Reapers {
		if p := v.pid[r.PID]; p != nil && p.SID == sid {
			return true
		}
	}
	leader := v.pid[sid]
	return leader != nil && v.tooOld(leader)
}

// record notes what the reading showed of each member, and who is missing.
func (v *View) record() {
	l := v.l
	for _, m := range v.Members {
		m.node.Absent, m.node.Comm, m.node.UID = 0, m.Comm, m.UID
		if m.Score == hardScore && m.alive() && m.Coalition != 0 && l.Mode == Direct && !slices.Contains(l.Coalitions, m.Coalition) {
			l.Coalitions = append(l.Coalitions, m.Coalition)
		}
	}
	v.recordNumbers(l.Sessions, v.ours, func(m *Member) int { return m.SID }, v.by.sid)
	v.recordNumbers(l.Groups, v.groups, func(m *Member) int { return m.PGID }, v.by.pgid)
	for _, n := range l.Nodes {
		if m := v.in[n.PID]; m != nil && m.node == n {
			continue
		}
		if n.Absent == 0 {
			v.Left = append(v.Left, n.ID)
		}
		n.Absent++
	}
	v.remember()
	l.prune()
	l.LastForks, l.LastEnded = v.Snapshot.Forks, v.Snapshot.Ended
}

// recordNumbers keeps the numbers that members are in, and drops those that nobody
// is in, or that cannot be told from another's any more.
func (v *View) recordNumbers(have map[int]Number, now map[int]*Member, of func(*Member) int, users map[int][]*Proc) {
	for n, m := range now {
		is, known := have[n]
		if !known {
			is = Number{Leaf: m.Leaf, Depth: m.Depth}
		}
		if lead := v.in[n]; lead != nil && of(lead) == n && (lead.fresh || lead.Unique != 0) {
			is = Number{Leaf: lead.Leaf, Depth: lead.Depth, Forks: max(is.Forks, v.l.forksAt(lead.ID))}
		}
		have[n] = is
	}
	for n, is := range have {
		if now[n] == nil && (len(users[n]) == 0 || !v.holds(is, v.Snapshot.Forks)) {
			delete(have, n)
		}
	}
}

// Kin is what a process said of its parent.
type Kin struct {
	Unique uint64 `json:"unique"` // its ParentUnique
	PID    int    `json:"pid"`
}

// remember keeps what strangers said of their parents when they were first seen: an
// honest answer only ever changes to pid 1. Those of other coalitions need no watching.
func (v *View) remember() {
	l, s := v.l, v.Snapshot
	if !s.Caps.Unique {
		return
	}
	first := make(map[uint64]Kin)
	for i := range s.Procs {
		p := &s.Procs[i]
		if p.Unique == 0 || p.ParentUnique == 0 || v.in[p.PID] != nil || !v.coalitionFits(p) {
			continue
		}
		first[p.Unique] = Kin{p.ParentUnique, p.PPID}
		if was, ok := l.Strangers[p.Unique]; ok {
			first[p.Unique] = was
		}
	}
	l.Strangers = first
}

// forget is after how many readings without it an ended process is not needed any
// more: its children live since before its end, so the next reading has judged them
// all. One more, for what was not readable at that moment.
const forget = 3

// prune drops ended processes that nothing can point to any more. Their session
// numbers are kept on their own, see recordNumbers.
func (l *Ledger) prune() {
	n := len(l.Nodes)
	l.Nodes = slices.DeleteFunc(l.Nodes, func(n *Node) bool { return !n.Root && n.Absent >= forget })
	if len(l.Nodes) != n {
		l.idx = nil
	}
}
