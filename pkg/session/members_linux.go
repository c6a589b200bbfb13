package session

import (
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/anchor"
	"github.com/sessionbox/sessionbox/pkg/internal/keeper"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/scope"
	"github.com/sessionbox/sessionbox/pkg/store"
	"golang.org/x/sys/unix"
)

// helperLeaf is where our own processes in a box are.
const helperLeaf = cgroup.AnchorLeaf

// programPIDs are the processes that may run our program, by the name that the kernel has of
// it: its first 15 bytes.
func programPIDs() []int {
	pids, err := proc.PIDs()
	if err != nil {
		return nil
	}
	own := ""
	if st, err := proc.ReadStat(os.Getpid()); err == nil {
		own = st.Comm
	}
	return slices.DeleteFunc(pids, func(pid int) bool {
		st, err := proc.ReadStat(pid)
		return pid <= 1 || err != nil || st.Comm != own && !strings.HasPrefix(st.Comm, "sessionbox")
	})
}

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
	if len(argv) > 1 && (argv[1] == anchor.Arg || argv[1] == SuperviseArg || argv[1] == LogArg || argv[1] == ContainerArg || argv[1] == ContainerInitArg || argv[1] == keeper.Arg) {
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
			if m.store.MayHaveLineage() { // it costs reading all records
				ids = append(ids, m.recordedInside(rec, store.KindLineage)...)
			}
			return append(ids, m.boxless(rec, ids)...)
		}
	}
	return m.recordedInside(rec, "")
}

// boxless are the sessions inside of one, other than those known, whose close has removed
// their box and is not finished.
func (m *Manager) boxless(rec *store.Session, known []string) (ids []string) {
	recs, err := m.store.Boxless()
	if err != nil {
		m.log.Debug("look for sessions without a box", "err", err)
	}
	for i := range recs {
		if r := &recs[i]; r.Parent == rec.ID && r.State == store.StateClosing && !slices.Contains(known, r.ID) {
			ids = append(ids, r.ID)
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

func isUnitLeft(err error) bool {
	return errors.Is(err, scope.ErrUnitLeft) || errors.Is(err, errJobLeft)
}

// machineID names this machine: records on a shared disk may be another's.
func machineID() string {
	b, _ := os.ReadFile("/etc/machine-id")
	return strings.TrimSpace(string(b))
}
