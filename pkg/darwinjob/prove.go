package darwinjob

import "slices"

// claim is what can be said for a process.
type claim struct {
	evidence []Evidence
	score    int
	leaf     string
	depth    int
	sealed   bool
	node     *Node
}

// add adds a piece of evidence that links to a member (or a number of members) with
// this score and place. No one is more certain than whom it is linked to. The nearest root
// gives the leaf; a shared number tells that only where no ancestor does, as it says
// nothing of the steps in between.
func (c *claim) add(e Evidence, score int, leaf string, depth int, sealed bool) {
	shared := e == BySession || e == ByGroup
	if len(c.evidence) == 0 || depth < c.depth && !shared {
		c.leaf, c.depth = leaf, depth
	}
	c.evidence = append(c.evidence, e)
	c.score = max(c.score, score)
	c.sealed = c.sealed || sealed && score == hardScore
}

// unknownDepth is of who is in the job's coalition and shows no ancestor: it is somewhere below
// the stub. Another session that knows its root, because it was kept in that, is nearer to it.
const unknownDepth = 1 << 20

// prove collects the hard evidence for a process: facts/darwin.md §7, H1 and H3 to H6
// (H2, the same identity, is seed's).
func (v *View) prove(p *Proc) (c claim) {
	l := v.l
	if v.nameless(p) {
		return c
	}
	if l.Mode == Job && l.Coalition != 0 && p.Coalition == l.Coalition {
		c.add(ByCoalition, hardScore, "", unknownDepth, false) // also our stub, which is older than the first root
	}
	if v.tooOld(p) {
		return c
	}
	if n := l.index().unique[p.ParentUnique]; n != nil && p.ParentUnique != 0 && v.honest(p, n) {
		c.add(ByParentID, n.Score, n.Leaf, n.Depth+1, n.Sealed)
	}
	if m := v.in[p.PPID]; m != nil && v.parentOf(&m.Proc, p) {
		c.add(ByParent, m.Score, m.Leaf, m.Depth+1, m.node.Sealed)
	}
	for _, r := range l.Reapers {
		if q := v.pid[r.PID]; q != nil && r.Same(q.ID) && v.parentOf(q, p) {
			// Not if it is in our own session: that is a helper of ours.
			c.add(ByReaper, hardScore, r.Leaf, 1, l.sealed() && p.SID != 0 && q.SID != 0 && p.SID != q.SID)
		}
	}
	if v.Snapshot.Caps.ParentVersion && p.ParentVersion != 0 {
		if n := l.index().version[p.ParentVersion]; n != nil && n.before(p.ID) {
			c.add(ByVersion, n.Score, n.Leaf, n.Depth+1, n.Sealed)
		}
	}
	v.numbers(p, &c)
	return c
}

// nameless says who cannot be signalled as what it is, so that nothing is made of it.
func (v *View) nameless(p *Proc) bool {
	return p.PID <= 1 || !p.proven() || v.Snapshot.Caps.Unique && p.Unique == 0
}

// tooOld says who is older than the session.
func (v *View) tooOld(p *Proc) bool {
	return v.l.Since == (ID{}) || p.before(v.l.Since)
}

// parentOf says whether p named m when it named its parent, and not one who had the pid
// before or after.
func (v *View) parentOf(m, p *Proc) bool {
	return p.PPID > 0 && m.PID == p.PPID && m.Pinned && p.Pinned && m.alive() && !p.before(m.ID)
}

// honest says whether the parent's unique id that p shows, which is the recorded
// process n's, can be that of the one that forked it. At an exec under a debugger it is the debugger's:
// a stranger may then show one of our members, which never was its parent.
//
// So it must fit the rest. Who was forked by n has n for a parent as long as n lives
// (of a traced process a Table tells the real one) and pid 1 afterwards, and never
// showed anyone else but pid 1.
func (v *View) honest(p *Proc, n *Node) bool {
	if init := v.pid[1]; init != nil && n.Unique == init.Unique || !n.before(p.ID) {
		return false
	}
	if was, ok := v.l.Strangers[p.Unique]; ok && (was.Unique != p.ParentUnique || was.PID != n.PID && was.PID != 1) {
		return false
	}
	m := v.in[n.PID]
	lives := m != nil && m.node == n && m.alive()
	switch {
	case p.PPID == n.PID:
		return true
	case p.PPID == 1 && !lives:
		// A job of launchd's has another coalition, in which no member ever was.
		return v.coalitionFits(p)
	}
	return false
}

// coalitionFits says whether p is in a coalition that members were seen in; without
// coalitions everybody is. A zombie's cannot be read.
func (v *View) coalitionFits(p *Proc) bool {
	if !v.Snapshot.Caps.Coalition {
		return true
	}
	if p.Coalition == 0 {
		return false
	}
	return slices.Contains(v.l.Coalitions, p.Coalition) || v.l.Mode == Job && p.Coalition == v.l.Coalition
}

// numbers adds H6. A kernel gives a pid out again only when it is nobody's pid, session
// or group number, and one joins a session by being forked in it only (setpgid stays
// inside of it). So who shares a number with a member at one moment is of the same
// session; and who carries one whose leader got it less than a round of pids ago is,
// although nobody of it is left to compare with.
func (v *View) numbers(p *Proc, c *claim) {
	if m := v.ours[p.SID]; m != nil && p.Pinned {
		c.add(BySession, m.Score, m.Leaf, m.Depth+1, true)
	} else if n, ok := v.l.Sessions[p.SID]; ok && v.held(p, p.SID, n) && !v.foreign(p.SID) {
		c.add(BySession, hardScore, n.Leaf, n.Depth+1, true)
	}
	if p.SID != 0 {
		return // a group is inside of one session, which was just asked
	}
	if m := v.groups[p.PGID]; m != nil && p.Pinned {
		c.add(ByGroup, m.Score, m.Leaf, m.Depth+1, true)
	} else if n, ok := v.l.Groups[p.PGID]; ok && v.held(p, p.PGID, n) {
		c.add(ByGroup, hardScore, n.Leaf, n.Depth+1, true)
	}
}

// held says whether p got a number from the member that had it: nobody else can have
// had it since, and nobody else has it now.
func (v *View) held(p *Proc, number int, n Number) bool {
	if now := v.pid[number]; now != nil && v.in[number] == nil {
		return false
	}
	return v.holds(n, v.forks(p))
}

// forks is an upper bound of the system's forks when p was forked.
func (v *View) forks(p *Proc) uint64 {
	if p.Unique != 0 {
		return p.Unique
	}
	return v.Snapshot.Forks
}

// holds says whether a number was still its holder's when the system had seen so
// many forks.
func (v *View) holds(n Number, forks uint64) bool {
	return n.Forks != 0 && forks >= n.Forks && forks-n.Forks < v.Snapshot.Caps.Wrap
}

// sealed says whether all roots made sessions of their own.
func (l *Ledger) sealed() bool {
	for _, n := range l.Nodes {
		if n.Root && !n.Sealed {
			return false
		}
	}
	return true
}
