package darwinjob

// Evidence is one reason to take a process for a member of a session. The letters
// are those of the table that they come from (facts/darwin.md §7).
type Evidence string

// Hard evidence: the kernel cannot say it of a process that was not forked below
// the session's root.
const (
	ByCoalition Evidence = "coalition"      // H1: in the session's own resource coalition
	ByIdentity  Evidence = "identity"       // H2: recorded before
	ByParentID  Evidence = "parent_unique"  // H3: its parent's unique id is a member's
	ByParent    Evidence = "parent"         // H4: its parent is a member
	ByReaper    Evidence = "reaper"         // H4: its parent collects the session's orphans
	ByVersion   Evidence = "parent_version" // H5: its parent's version at the fork was a member's
	BySession   Evidence = "session"        // H6: in a session that a member made
	ByGroup     Evidence = "group"          // H6: in a process group within such a session
)

// Soft evidence: it can be copied, or be held by others.
const (
	ByCookie   Evidence = "cookie"   // S1: the session's random cookie in its environment
	BySentinel Evidence = "sentinel" // S2: holds the session's pipe
	ByTerminal Evidence = "terminal" // S3: the session's terminal is its own
	ByCwd      Evidence = "cwd"      // W: works in the session's directory
	ByWindow   Evidence = "window"   // W: an orphan that started during the session
)

// Bars of the score: from killBar on a process is a member and ended, from suspectBar
// on it is reported. W alone is a hint, which is all there is of an escape without a
// trace (facts/darwin.md §9.1), so hints are reported as well.
const (
	hardScore  = 100
	killBar    = 80
	suspectBar = 20
)

// Weight of one piece of evidence. Pieces do not add up: two weak ones may have one cause.
func (e Evidence) Weight() int {
	switch e {
	case ByCookie, BySentinel:
		return killBar
	case ByTerminal:
		return 60
	case ByCwd:
		return suspectBar
	case ByWindow:
		return 5
	}
	return hardScore
}

// Hard says whether it proves descent.
func (e Evidence) Hard() bool { return e.Weight() == hardScore }

// score is the weight of the heaviest piece.
func score(es []Evidence) int {
	n := 0
	for _, e := range es {
		n = max(n, e.Weight())
	}
	return n
}
