package session

import (
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/anchor"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/scope"
	"github.com/sessionbox/sessionbox/pkg/store"
	"golang.org/x/sys/unix"
)

// helperLeaf is where our own processes in a box are.
const helperLeaf = cgroup.AnchorLeaf

// isHelper says whether a member is one of our own: in our leaf and started as
// what we start there. Whoever pretends to be one is only not listed.
func isHelper(m proc.Member) bool {
	leaf := m.Leaf
	if nestedLeaf(leaf) {
		_, leaf = splitNested(leaf, "")
	}
	if leaf != helperLeaf {
		return false
	}
	argv := proc.Args(m.PID)
	if len(argv) > 1 && (argv[1] == anchor.Arg || argv[1] == SuperviseArg || argv[1] == LogArg) {
		return true
	}
	st, err := proc.ReadStat(m.PID)
	return err != nil || st.State == 'Z' // it has just ended
}

// nestedLeaf says whether a place in the box belongs to a session inside it.
func nestedLeaf(leaf string) bool {
	for part := range strings.SplitSeq(leaf, "/") {
		if _, ok := cgroup.SliceIDs(part); ok {
			return true
		}
	}
	return false
}

// signalGroup signals the members of a leaf that are in a process group.
func signalGroup(box Box, leaf string, pgid int, sig syscall.Signal) error {
	members, err := box.Members(leaf)
	if err != nil {
		return err
	}
	var failed error
	for _, m := range members {
		h, err := proc.OpenPID(m.PID)
		if err != nil {
			continue
		}
		// The pidfd is held: if the pid still is a member now, it is the one.
		st, err := proc.ReadStat(m.PID)
		if err == nil && st.PGID == pgid && isMember(box, leaf, m.PID) {
			if err := h.Signal(sig); err != nil && !errors.Is(err, proc.ErrGone) {
				failed = errors.Join(failed, err)
			}
		}
		h.Close()
	}
	return failed
}

func isMember(box Box, leaf string, pid int) bool {
	now, err := box.Members(leaf)
	return err == nil && slices.ContainsFunc(now, func(m proc.Member) bool { return m.PID == pid })
}

func signalName(s syscall.Signal) string { return unix.SignalName(s) }

// children are the sessions directly inside another: by the boxes in its box
// or, when that is gone, by the records.
func (m *Manager) children(rec *store.Session, box Box) []string {
	var ids []string
	if b, ok := box.(interface {
		Nested() ([]cgroup.NestedBox, error)
	}); ok {
		if nested, err := b.Nested(); err == nil {
			for _, n := range nested {
				// A member may make a directory of any name: it is a session's
				// box only if the session's record says so.
				if r, err := m.store.Get(n.ID); err == nil && r.Path == n.Path && r.Inode == n.Inode || err != nil && m.onlyBox(n) {
					ids = append(ids, n.ID)
				}
			}
			return ids
		}
	}
	recs, _, err := m.store.Sessions()
	if err != nil {
		return nil
	}
	for i := range recs {
		if recs[i].Parent == rec.ID {
			ids = append(ids, recs[i].ID)
		}
	}
	return ids
}

// onlyBox says of a session without a usable record that there is no other directory
// that may be its box, and that this one is marked as it.
func (m *Manager) onlyBox(n cgroup.NestedBox) bool {
	mine := false
	for _, f := range m.findBoxes(nil) {
		switch {
		case f.rec.ID != n.ID:
		case f.path != n.Path || f.rec.Cookie == "":
			return false
		default:
			mine = true
		}
	}
	return mine
}

// unrecorded gives the boxes whose sessions are not among those known.
func (m *Manager) unrecorded(known map[string]store.Kind) []found {
	return slices.DeleteFunc(m.findBoxes(known), func(f found) bool { _, have := known[f.rec.ID]; return have })
}

func isUnitLeft(err error) bool { return errors.Is(err, scope.ErrUnitLeft) }

// machineID names this machine: records on a shared disk may be another's.
func machineID() string {
	b, _ := os.ReadFile("/etc/machine-id")
	return strings.TrimSpace(string(b))
}
