package session

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"github.com/sessionbox/sessionbox/pkg/internal/keeper"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
)

// others says of our own helpers whether they serve another session than the box's and those
// inside it, or of one leaf, any: they descend from whoever started them, who may be a member
// that uses another session, and would be ended with it. The guard is everybody's.
func (b *lineageBox) others() func(p *darwinjob.Proc, leaf string) bool {
	names := b.m.programs()
	note, held, _ := b.m.store.Guard()
	return func(p *darwinjob.Proc, leaf string) bool {
		if held && note.Process.PID == p.PID && note.Process.Start == p.Start {
			return true
		}
		if !strings.HasPrefix(p.Comm, "sessionbox") && !slices.Contains(names, p.Comm) {
			return false
		}
		ids := b.m.servedBy(p)
		return ids != nil && (leaf != "" || !slices.Contains(ids, b.rec.ID))
	}
}

// programs is what the kernel calls the programs that helpers run: it keeps 15 bytes of a name.
func (m *Manager) programs() (names []string) {
	self, _ := os.Executable()
	for _, path := range []string{self, m.cfg.Helper} {
		if name := filepath.Base(path); path != "" {
			names = append(names, name[:min(len(name), 15)])
		}
	}
	return names
}

// runsHelper says whether a process runs the very file that we do, or that our helpers run. Its
// name and arguments are anybody's to choose, and spare nobody.
func (m *Manager) runsHelper(pid int) bool {
	if proc.SameProgram(pid) {
		return true
	}
	file, err := os.Stat(proc.Exe(pid))
	if err != nil || m.cfg.Helper == "" {
		return false
	}
	helper, err := os.Stat(m.cfg.Helper)
	return err == nil && os.SameFile(file, helper)
}

// servedBy are the session that a helper of ours serves and those around it, outermost first;
// nil for what is none.
func (m *Manager) servedBy(p *darwinjob.Proc) []string {
	argv := proc.Args(p.PID)
	if len(argv) < 2 || !m.runsHelper(p.PID) {
		return nil
	}
	switch argv[1] {
	case keeper.Arg:
		ids, _ := keeper.Session(argv)
		return ids
	case LogArg:
		if len(argv) > 3 {
			return m.chainOf(argv[3])
		}
	case SuperviseArg:
		recs, _, _ := m.store.Sessions()
		for i := range recs {
			tasks, _, _ := m.store.Tasks(recs[i].ID)
			for k := range tasks {
				if s := tasks[k].Supervisor; s.PID == p.PID && s.Start == p.Start {
					return m.chainOf(recs[i].ID)
				}
			}
		}
	}
	return nil
}
