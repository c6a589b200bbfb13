package session

import (
	"errors"
	"slices"
	"syscall"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// recordedInside are the sessions whose records say that they are directly inside another;
// with a kind, those of that kind.
func (m *Manager) recordedInside(rec *store.Session, kind store.Kind) []string {
	var ids []string
	recs, _, err := m.store.Sessions()
	if err != nil {
		return nil
	}
	for i := range recs {
		if recs[i].Parent == rec.ID && (kind == "" || recs[i].Kind == kind) {
			ids = append(ids, recs[i].ID)
		}
	}
	if rec.Kind == store.KindLineage {
		known := map[string]store.Kind{}
		for i := range recs {
			known[recs[i].ID] = recs[i].Kind
		}
		for _, f := range m.findLineages(known) {
			if n := len(f.ids); n > 1 && f.ids[n-2] == rec.ID {
				ids = append(ids, f.rec.ID)
			}
		}
	}
	return ids
}

// signalGroup signals the members of a leaf that are in a process group.
func signalGroup(box Box, leaf string, pgid int, sig syscall.Signal) error {
	if b, ok := box.(*lineageBox); ok {
		return b.signalGroup(leaf, pgid, sig)
	}
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
