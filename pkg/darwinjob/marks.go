package darwinjob

import (
	"path"
	"slices"
	"strings"
)

// Suspect is a process that something speaks for, but not enough to end it.
type Suspect struct {
	Proc
	Score    int
	Evidence []Evidence
	Why      string // why it was left alone
}

// whyBlurred is why one was left alone that a look when it stands still may judge.
const whyBlurred = "it changed while it was read"

// serving are programs that serve everybody of a user though one session's command
// happened to start them: with marks alone they are not ended (sharing a tmux server is
// the costliest mistake that has been made, termio#137). Descent does end them.
var serving = []string{"tmux", "screen", "ssh-agent", "gpg-agent", "docker", "dockerd", "colima", "watchman"}

// search looks among strangers for the session's marks. The marked are taken in, with
// all that descends from them; others that something speaks for are given back.
func (v *View) search(t Table, read *seen) []Suspect {
	var found []Suspect
	marked := false
	for i := range v.Snapshot.Procs {
		p := &v.Snapshot.Procs[i]
		if v.in[p.PID] != nil || !v.searchable(p) {
			continue
		}
		s := v.suspect(t, read, p)
		switch {
		case s.Score >= killBar && s.Why == "":
			v.join(p, claim{evidence: s.Evidence, score: s.Score, depth: 1})
			marked = true
		case s.Score >= suspectBar:
			found = append(found, s)
		}
	}
	if !marked {
		return found
	}
	v.spread()
	v.record()
	return slices.DeleteFunc(found, func(s Suspect) bool { return v.in[s.PID] != nil })
}

// searchable says whose marks are looked at: living processes of the session's user that
// started during it, except ourselves and those we descend from, who may carry them.
func (v *View) searchable(p *Proc) bool {
	return p.alive() && p.UID == v.l.UID && !v.away[p.PID] && !v.nameless(p) && !v.tooOld(p) && v.shield[p.PID] == ""
}

// suspect weighs a stranger's marks.
func (v *View) suspect(t Table, read *seen, p *Proc) Suspect {
	s := Suspect{Proc: *p}
	m := read.marks(t, p, v.l)
	if v.l.Cookie != "" && m.Cookie == v.l.Cookie {
		s.Evidence = append(s.Evidence, ByCookie)
	}
	if v.l.Sentinel != 0 && m.Sentinel == v.l.Sentinel {
		s.Evidence = append(s.Evidence, BySentinel)
	}
	if v.l.TTY != 0 && p.TTY == v.l.TTY {
		s.Evidence = append(s.Evidence, ByTerminal)
	}
	if v.l.Dir != "" && p.PPID == 1 && m.Cwd == v.l.Dir {
		s.Evidence = append(s.Evidence, ByCwd, ByWindow)
	}
	if had := read.blurred[p.ID]; had != nil && s.Evidence == nil {
		s.Evidence = had // it may have hidden it since: it is the same process
	}
	s.Score = score(s.Evidence)
	switch {
	case s.Score < killBar:
		s.Why = "what speaks for it proves nothing"
	case v.blurred(p):
		s.Why = whyBlurred
		if read.blurred == nil {
			read.blurred = map[ID][]Evidence{}
		}
		read.blurred[p.ID] = s.Evidence
	case !v.coalitionFits(p):
		// What launchd starts on request has a coalition of its own: it was handed an
		// environment, and is nobody's descendant.
		s.Why = "it was not forked in this session: its coalition is another"
	case m.Keep:
		s.Why = EnvKeep + "=1"
	case strings.HasPrefix(m.Exe, "/System/") || strings.HasPrefix(m.Exe, "/usr/libexec/"):
		s.Why = "it is a program of the system, " + m.Exe
	case slices.Contains(serving, path.Base(m.Exe)):
		s.Why = path.Base(m.Exe) + " may serve others, too"
	}
	return s
}

// blurred says whether a process, or one that it descends from, changed while it was read:
// its parent ended, say. What cannot be followed up to who was there before the session may
// lead to another session's, and marks alone must not decide then.
func (v *View) blurred(p *Proc) bool {
	for range v.Snapshot.Procs { // of loops there are none but in a blurred listing
		switch {
		case p == nil || !p.Pinned:
			return true
		case p.PPID <= 1 || v.tooOld(p):
			return false
		}
		p = v.pid[p.PPID]
	}
	return true
}

// seen remembers what was read of strangers: an environment changes at an exec only,
// and an exec shows in the version, where there is one.
type seen struct {
	was map[ID]seenMarks
	// blurred is what spoke for those who were left alone because they changed meanwhile.
	blurred map[ID][]Evidence
}

type seenMarks struct {
	version int32
	marks   Marks
}

func (c *seen) marks(t Table, p *Proc, l *Ledger) Marks {
	if had, ok := c.was[p.ID]; ok && p.Version != 0 && had.version == p.Version {
		return had.marks
	}
	want := Marks{Cookie: l.Cookie, Exe: "?", Keep: true}
	want.Sentinel = l.Sentinel
	if p.PPID == 1 {
		want.Cwd = l.Dir
	}
	m, err := t.Marks(p.ID, want)
	if err != nil {
		return Marks{} // hidden or gone: nothing is known, so nothing speaks for it
	}
	if c.was == nil {
		c.was = map[ID]seenMarks{}
	}
	c.was[p.ID] = seenMarks{p.Version, m}
	return m
}

// forget drops what was remembered of processes that are not there any more.
func (c *seen) forget(v *View) {
	for id := range c.was {
		if p := v.pid[id.PID]; p == nil || p.ID != id {
			delete(c.was, id)
		}
	}
	for id := range c.blurred {
		if p := v.pid[id.PID]; p == nil || p.ID != id {
			delete(c.blurred, id)
		}
	}
}
