package darwinjob

import "slices"

// verdict of a contest between two sessions that both claim a process.
type verdict int

const (
	ours verdict = iota
	theirs
	open // neither: it is reported
)

// contest decides between our claim and that of a rival (facts/darwin.md §7, Conflict):
// descent beats marks; of two that can show descent it belongs to the innermost, the one
// with fewer steps to its root; two marks, or two equal distances, decide nothing.
func contest(m, r *Member) verdict {
	mine, other := m.Score == hardScore, r.Score == hardScore
	switch {
	case mine && !other:
		return ours
	case !mine && other:
		return theirs
	case !mine:
		return open
	case m.Depth < r.Depth:
		return ours
	case m.Depth > r.Depth:
		return theirs
	}
	return open
}

// rivals says whether another session may have a better claim than ours.
func (l *Ledger) rivals(r *Ledger) bool {
	return r.Session != l.Session && !slices.Contains(r.Within, l.Session) && !slices.Contains(l.Within, r.Session)
}

// vicinity are the numbers by which another session could lay claim to one of our members:
// those of the members, of who they descend from, and of their sessions and groups. With
// unique ids there are more ways, so that nobody is ruled out by it then: it is nil.
type vicinity map[int]bool

func (v *View) vicinity() vicinity {
	if v.Snapshot.Caps.Unique {
		return nil
	}
	near := vicinity{}
	for _, m := range v.Members {
		near[m.SID], near[m.PGID] = true, true
		for p := &m.Proc; p != nil && p.PID > 1 && !near[-p.PID]; p = v.pid[p.PPID] {
			near[p.PID], near[-p.PID] = true, true // the negative: it was followed
			near[p.PPID] = true
		}
	}
	delete(near, 0)
	delete(near, 1)
	return near
}

// meets says whether a ledger knows one of the numbers. Most do not: judging by each is what
// a look at one session would spend its time with where there are hundreds.
func (n vicinity) meets(l *Ledger) bool {
	if n == nil {
		return true
	}
	for _, node := range l.Nodes {
		if n[node.PID] {
			return true
		}
	}
	for _, r := range l.Reapers {
		if n[r.PID] {
			return true
		}
	}
	for _, numbers := range []map[int]Number{l.Sessions, l.Groups} {
		for number := range numbers {
			if n[number] {
				return true
			}
		}
	}
	return false
}

// yield takes out of the members who is rather another session's, and gives those
// that nobody can have. A session nested in ours is ours as well, and one that we are
// nested in has no better claim than ours.
func (v *View) yield(rivals []*Ledger) (unclear []*Member) {
	near := v.vicinity()
	for _, r := range rivals {
		if !v.l.rivals(r) || !near.meets(r) {
			continue
		}
		rv, err := r.Clone().Observe(v.Snapshot)
		if err != nil {
			continue // of another boot or namespace: it claims nobody here
		}
		v.Members = slices.DeleteFunc(v.Members, func(m *Member) bool {
			other := rv.in[m.PID]
			if other == nil {
				// Its supervisor is no member of it, and what it holds depends on it.
				return slices.ContainsFunc(r.Reapers, func(k Reaper) bool { return k.Same(m.ID) })
			}
			is := contest(m, other)
			if is == open {
				unclear = append(unclear, m)
			}
			return is != ours
		})
	}
	return unclear
}
