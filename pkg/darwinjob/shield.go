package darwinjob

import "slices"

// shields are the processes that are never signalled, whoever they belong to: pid 1,
// ourselves, those we descend from, and our own process group. A close from inside its
// session finds them among the members.
func shields(s *Snapshot, pid map[int]*Proc) map[int]string {
	safe := map[int]string{1: "it is pid 1"}
	self := pid[s.Caps.Self]
	if self == nil {
		safe[s.Caps.Self] = "it is the closer"
		return safe
	}
	why := "it is the closer"
	for p := self; p != nil && p.PID > 1 && safe[p.PID] == ""; p = pid[p.PPID] {
		safe[p.PID] = why
		why = "the closer descends from it"
	}
	for i := range s.Procs {
		if p := &s.Procs[i]; p.PGID == self.PGID && p.PGID != 0 && safe[p.PID] == "" {
			safe[p.PID] = "it is in the closer's process group"
		}
	}
	return safe
}

// unshield is for a caller that is, or may be, a member: see [Options.Inside].
func (v *View) unshield() {
	self := v.Snapshot.Caps.Self
	v.Members = slices.DeleteFunc(v.Members, func(m *Member) bool { return m.PID == self })
	for _, m := range v.Members {
		if m.Score == hardScore && m.PID > 1 {
			m.Shield = ""
			delete(v.shield, m.PID)
		}
	}
}
