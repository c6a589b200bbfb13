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

// yield takes out of the members who is rather another session's, and gives those
// that nobody can have. A session nested in ours is ours as well, and one that we are
// nested in has no better claim than ours.
func (v *View) yield(rivals []*Ledger) (unclear []*Member) {
	for _, r := range rivals {
		if !v.l.rivals(r) {
			continue
		}
		rv, err := r.clone().Observe(v.Snapshot)
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
