package session

import (
	"encoding/json"
	"os"
	"slices"

	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"github.com/sessionbox/sessionbox/pkg/internal/keeper"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// With its records lost a session is known from its keepers: their command lines name it,
// and each carries a copy of its record in its environment, as a cgroup does in an xattr.

// partFound is the part of a lineage's records that names the keepers of a session whose
// records were lost.
const partFound = "found"

// keeperEnv is the environment of front, keeper and watcher.
func keeperEnv(rec *store.Session) []string {
	env := plainEnv()
	copied := *rec
	copied.State = store.StateOpen
	if meta, err := json.Marshal(copied); err == nil {
		env = append(env, keeper.EnvMeta+"="+string(meta))
	}
	return env
}

// keeperProc is a keeper that was found by its command line.
type keeperProc struct {
	pid  int
	ids  []string
	leaf string
}

// keepers finds those of our user.
func keepers() []keeperProc {
	var all []keeperProc
	for _, pid := range programPIDs() {
		argv := proc.Args(pid)
		ids, ok := keeper.Session(argv)
		if !ok {
			continue
		}
		uid, err := proc.UID(pid)
		if err != nil || uid != os.Geteuid() || !isOurProgram(pid) {
			continue
		}
		all = append(all, keeperProc{pid, ids, argv[4]})
	}
	return all
}

// findLineages gives the sessions that keepers tell of, one each. It reads the process
// table, unless the records say that it is in vain.
func (m *Manager) findLineages(known map[string]store.Kind) []found {
	if m.stateErr == nil && !m.store.MayHaveLineage() {
		return nil
	}
	var all []found
	for _, k := range m.keepers.read(false, keepers) {
		if _, have := known[k.ids[len(k.ids)-1]]; have {
			continue
		}
		id := k.ids[len(k.ids)-1]
		if slices.ContainsFunc(all, func(f found) bool { return f.rec.ID == id }) {
			continue
		}
		if m.keepsForAnother(k, id) {
			continue
		}
		rec, ok := recordOfKeeper(k.pid, id)
		if !ok {
			continue
		}
		if m.stateErr == nil && rec.StateDir != "" && rec.StateDir != m.store.Dirs().State {
			continue // its records are not lost, they are kept elsewhere
		}
		if len(k.ids) > 1 {
			rec.Parent = k.ids[len(k.ids)-2]
		}
		all = append(all, found{rec: rec, ids: k.ids})
	}
	return all
}

// keepsForAnother says of a keeper that its session was closed, or gave it to another: what it
// keeps is that one's then.
func (m *Manager) keepsForAnother(k keeperProc, id string) bool {
	if _, closed := m.lastReceipt(id); closed {
		return true
	}
	st, err := proc.ReadStat(k.pid)
	if err != nil {
		return true // it has ended
	}
	self := darwinjob.ID{PID: k.pid, Start: st.Start}
	recs, _, err := m.store.Sessions()
	if err != nil {
		return false
	}
	for i := range recs {
		parts, err := m.store.Lineage(recs[i].ID)
		if err != nil || recs[i].Kind != store.KindLineage {
			continue
		}
		for _, data := range parts {
			l, err := darwinjob.DecodeLedger(data)
			if err == nil && slices.ContainsFunc(l.Reapers, func(r darwinjob.Reaper) bool { return r.PID == self.PID && r.Start == self.Start }) {
				return true
			}
		}
	}
	return false
}

// recordOfKeeper rebuilds a session's record from what its keeper carries; not ok for one that
// is starting, whose environment is not there yet.
func recordOfKeeper(pid int, id string) (rec store.Session, ok bool) {
	if env, err := proc.Env(pid, keeper.EnvMeta); err == nil {
		if env[keeper.EnvMeta] == "" {
			return rec, false
		}
		if json.Unmarshal([]byte(env[keeper.EnvMeta]), &rec) != nil || rec.Check() != nil || rec.ID != id || rec.Kind != store.KindLineage {
			rec = store.Session{} // not what we wrote
		}
	}
	if rec.ID == "" {
		rec = store.Session{Schema: store.Schema, ID: id, Kind: store.KindLineage, UID: os.Getuid()}
	}
	rec.State = store.StateOpen
	return rec, true
}

// keptBy adds the living keepers of a session to a ledger whose records are lost: whoever
// is their child is a member.
func (b *lineageBox) keptBy(l *darwinjob.Ledger, id string) {
	for _, k := range keepers() {
		if k.ids[len(k.ids)-1] != id {
			continue
		}
		p, err := b.table.Lookup(k.pid)
		if err != nil {
			continue
		}
		if b.inJob() && p.Coalition != 0 { // all keepers are in it, by way of the stub or as it itself
			l.Mode, l.Coalition = darwinjob.Job, p.Coalition
		}
		if keeper.IsStub(proc.Args(k.pid)) {
			l.Stub = p.ID
			continue
		}
		l.Reapers = append(l.Reapers, darwinjob.Reaper{ID: p.ID, Leaf: k.leaf})
		if l.Since == (darwinjob.ID{}) || p.Start < l.Since.Start {
			l.Since = p.ID
		}
	}
}
