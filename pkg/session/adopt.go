package session

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
)

// Root names a running process that is to be adopted with all its descendants.
type Root struct {
	PID int
	// Start is when it started, in clock ticks since boot (field 22 of
	// /proc/PID/stat): a pid noted earlier may be another's by now. 0 takes whoever
	// has the pid.
	Start uint64
}

// AdoptOptions say what may be adopted.
type AdoptOptions struct {
	// FromSession also takes processes of other sessions; those of the sessions
	// around this one are taken without it.
	FromSession bool
	// OtherUsers also takes processes of other users; for root only.
	OtherUsers bool
	// LeaveCaller says that the calling process, if it is one of the tree, is about to
	// end by itself and stays out. Without it the caller is moved last.
	LeaveCaller bool
}

// Adopted is what an adoption did.
type Adopted struct {
	Schema  int    `json:"schema"`
	Session string `json:"session"` // id
	Name    string `json:"name,omitempty"`
	// Task is the new task, 0 when there was nothing to bring in.
	Task      int              `json:"task,omitempty"`
	Processes []AdoptedProcess `json:"processes"`
	// Already counts those of the tree that were in the session before.
	Already int `json:"already"`
	// Skipped are those that stayed where they were, and why.
	Skipped []SkippedProcess `json:"skipped"`
	// ChargedElsewhereBytes is what the processes held when they came. Memory stays
	// charged to the cgroup in which it was first touched: the session's figures and
	// ceilings know only what is touched from now on.
	ChargedElsewhereBytes int64    `json:"charged_elsewhere_bytes"`
	Notes                 []string `json:"notes,omitempty"`
}

// AdoptedProcess is one that was brought in.
type AdoptedProcess struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot
	Comm  string `json:"comm"`
}

// SkippedProcess is one that was not.
type SkippedProcess struct {
	AdoptedProcess
	Reason string `json:"reason"`
}

func adopted(st *proc.Stat) AdoptedProcess {
	return AdoptedProcess{PID: st.PID, Start: st.Start, Comm: st.Comm}
}

// tree is what is known of a process tree that is being adopted: every process that was
// seen in it, also those that have ended, whose children it keeps claiming.
type tree struct {
	seen  map[proc.ID]bool
	alien map[proc.ID]bool // not followed: what they started is not ours either
	order []proc.ID
}

func newTree() *tree { return &tree{seen: map[proc.ID]bool{}, alien: map[proc.ID]bool{}} }

func idOf(st *proc.Stat) proc.ID { return proc.ID{PID: st.PID, Start: st.Start} }

func (t *tree) add(id proc.ID) {
	if !t.seen[id] {
		t.seen[id] = true
		t.order = append(t.order, id)
	}
}

// walk visits all of the tree that a table of processes shows, parents before their
// children, and adds the descendants that are new. Those whose parent visit calls alien
// are not visited.
func (t *tree) walk(table []proc.Stat, visit func(st *proc.Stat) (alien bool)) {
	byPID := make(map[int]*proc.Stat, len(table))
	children := make(map[int][]*proc.Stat, len(table))
	for i := range table {
		st := &table[i]
		byPID[st.PID] = st
		children[st.PPID] = append(children[st.PPID], st)
	}
	listed := map[int]bool{}
	var queue []*proc.Stat
	for _, id := range t.order {
		if st := byPID[id.PID]; st != nil && st.Start == id.Start {
			queue = append(queue, st)
		}
	}
	// Of those known, a parent is older than its child, and pids only break ties.
	slices.SortStableFunc(queue, func(a, b *proc.Stat) int { return cmp.Compare(a.Start, b.Start) })
	for len(queue) > 0 {
		st := queue[0]
		queue = queue[1:]
		if listed[st.PID] {
			continue
		}
		listed[st.PID] = true
		t.add(idOf(st))
		if t.alien[idOf(st)] = visit(st); t.alien[idOf(st)] {
			continue
		}
		for _, c := range children[st.PID] {
			if c.Start >= st.Start { // else it is the child of an earlier owner of the pid
				queue = append(queue, c)
			}
		}
	}
}

// orphans finds those that were born in the tree and lost their parent. Only who was
// given to one of the tree's ancestors can be one.
//
// Whoever is in a session (setsid) whose leader is of the tree descends from it: there
// is no other way into a session. A process group is weaker, as a shell puts neighbours
// in one: its members count if the leader is of the tree and they were born after the
// first look, and as suspects if they merely share a group or a terminal with the tree.
// What daemonised itself before the first look cannot be told from anybody's daemon.
func (t *tree) orphans(table []proc.Stat, began uint64, ancestors map[int]bool) (own, likely, suspects []proc.Stat) {
	inTree, shared := map[int]bool{}, map[int]bool{}
	for i := range table {
		if st := &table[i]; t.seen[idOf(st)] && !t.alien[idOf(st)] {
			inTree[st.PID] = true
			shared[st.PGID], shared[st.SID] = true, true
		}
	}
	leaders := map[int]bool{}
	for _, id := range t.order { // a group outlives its leader, whose number stays taken
		leaders[id.PID] = !t.alien[id]
	}
	for _, st := range table {
		switch {
		case t.seen[idOf(&st)], inTree[st.PPID], !ancestors[st.PPID]:
		case leaders[st.SID]:
			own = append(own, st)
		case st.Start < began:
		case leaders[st.PGID]:
			likely = append(likely, st)
		case shared[st.PGID], shared[st.SID]:
			suspects = append(suspects, st)
		}
	}
	return own, likely, suspects
}

// refusal is an error about one process.
func refusal(kind error, pid int, comm, why, hint string) *Error {
	who := fmt.Sprintf("process %d", pid)
	if comm != "" {
		who += " (" + comm + ")"
	}
	return &Error{Kind: kind, Text: who + " cannot be adopted: " + why, Hint: hint}
}
