package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"github.com/sessionbox/sessionbox/pkg/internal/anchor"
	"github.com/sessionbox/sessionbox/pkg/internal/keeper"
	"github.com/sessionbox/sessionbox/pkg/internal/park"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// lookTime bounds one reading of the process table.
const lookTime = 30 * time.Second

// partFrozen is the part of a lineage's records that says that its session is frozen.
const partFrozen = "frozen"

// ledger puts together what all keepers of a session have written. What is of another boot
// or unreadable tells nothing; the marks are known without any.
func (b *lineageBox) ledger() (*darwinjob.Ledger, error) {
	if l := b.survey.ledger(b.rec.ID); l != nil {
		return l, nil
	}
	return b.readLedger()
}

// ledgerOf is the ledger of another session.
func (b *lineageBox) ledgerOf(id string) (*darwinjob.Ledger, error) {
	rec, _, err := b.m.load(id)
	if err != nil {
		return nil, err
	}
	return (&lineageBox{m: b.m, rec: rec, table: b.table, survey: b.survey}).ledger()
}

func (b *lineageBox) readLedger() (l *darwinjob.Ledger, err error) {
	rec, id := &b.rec, b.rec.ID
	l = darwinjob.NewLedger(id, b.survey.here)
	l.Cookie = rec.Cookie
	l.LastForks, l.LastEnded = 0, 0
	if home, err := os.UserHomeDir(); rec.Cwd != "/" && (err != nil || rec.Cwd != home) {
		l.Dir = rec.Cwd // an orphan that works there is worth a word
	}
	parts, err := b.m.store.Lineage(id)
	if err != nil {
		b.keptBy(l, id)
	}
	if err != nil {
		b.m.log.Debug("read the lineage", "session", id, "err", err)
	}
	for part, data := range parts {
		if _, moved := parts[keeper.MovedPart(keeper.LeafOf(part))]; moved || !isPart(part) {
			continue // what is given away is another's, also if its keeper has written once more
		}
		p, err := darwinjob.DecodeLedger(data)
		if err == nil {
			err = l.Merge(p)
		}
		if err != nil && !errors.Is(err, darwinjob.ErrOtherBoot) {
			b.m.log.Warn("a record of processes cannot be used", "session", id, "part", part, "err", err)
		}
	}
	if l.Since == (darwinjob.ID{}) && rec.Cookie != "" {
		// No root is known. Marks are believed of what started since the session was opened.
		l.Since = darwinjob.ID{PID: rec.Creator.PID, Start: max(rec.Creator.Start, 1)}
	}
	return l, nil
}

// job is the box's lineage as it is known now. With rivals, those are asked who may have a
// better claim: it costs reading their records.
func (b *lineageBox) job(rivals bool) (*darwinjob.Lineage, error) {
	l, err := b.ledger()
	if err != nil {
		return nil, err
	}
	own := b.chain()
	l.Within = own[:len(own)-1]
	for _, n := range b.survey.inside(b.rec.ID) {
		inner, err := b.ledgerOf(n.id)
		if err == nil {
			err = l.Include(inner, func(leaf string) string { return nestedPlace(n.chain, leaf) })
		}
		if err != nil {
			b.m.log.Debug("read the lineage of a session inside", "session", n.id, "err", err)
		}
	}
	o := darwinjob.Options{Inside: true, Helper: b.others(), Last: b.keepsHere}
	if rivals {
		o.Rivals = b.survey.ledgers
	}
	return darwinjob.New(b.table, l, o), nil
}

// glance is a look at the members; for a still box the first one serves.
func (b *lineageBox) glance() (*darwinjob.Picture, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.picture != nil {
		return b.picture, nil
	}
	j, p, err := b.look()
	if err == nil {
		err = b.addOrphans(j, p)
	}
	if err != nil {
		return nil, err
	}
	if b.still {
		b.picture = p
	}
	return p, nil
}

// oneLook has one look serve all questions from now on, or no more.
func (b *lineageBox) oneLook(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.still, b.picture = on, nil
}

// look shows the members that a listing shows.
func (b *lineageBox) look() (*darwinjob.Lineage, *darwinjob.Picture, error) {
	j, err := b.job(true)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	p, err := j.Look(ctx, false)
	return j, p, err
}

// addOrphans adds children of keepers that a listing missed: what forks and ends all the time
// is another process by the time that it is read, and always its keeper's child.
func (b *lineageBox) addOrphans(j *darwinjob.Lineage, p *darwinjob.Picture) error {
	l := j.Ledger()
	others := b.others()
	for _, r := range l.Reapers {
		if j.Shared(r.ID) {
			continue
		}
		kids, err := b.table.Children(r.ID)
		if errors.Is(err, darwinjob.ErrUnsettled) {
			return fmt.Errorf("list session %s: %w", b.rec.ID, err)
		}
		for _, kid := range kids {
			if !others(&kid, "") {
				b.addOrphan(l, p, kid, r.Leaf)
			}
		}
	}
	return nil
}

func (b *lineageBox) addOrphan(l *darwinjob.Ledger, p *darwinjob.Picture, kid darwinjob.Proc, leaf string) {
	known := slices.ContainsFunc(p.Members, func(m *darwinjob.Member) bool { return m.Same(kid.ID) })
	unclear := slices.ContainsFunc(p.Suspects, func(s darwinjob.Suspect) bool { return s.Same(kid.ID) })
	if !known && !unclear && !slices.ContainsFunc(l.Away, kid.Same) && kid.PID != os.Getpid() {
		p.Members = append(p.Members, &darwinjob.Member{Proc: kid, Leaf: leaf, Score: darwinjob.ByReaper.Weight(), Evidence: []darwinjob.Evidence{darwinjob.ByReaper}})
	}
}

// Members lists who is alive: our own helpers among them in our leaf, those of nested
// sessions in theirs.
func (b *lineageBox) Members(leaf string) ([]proc.Member, error) {
	p, err := b.glance()
	if err != nil {
		return nil, err
	}
	var all []proc.Member
	for _, m := range p.Alive(leaf) {
		at := m.Leaf
		if oursByArgs(m.PID) {
			if leaf != "" {
				continue
			}
			at = helperLeaf
			b.note(m.ID)
		}
		all = append(all, proc.Member{PID: m.PID, Leaf: at})
	}
	return all, nil
}

// suspects are those that something speaks for, but not enough to end them.
func (b *lineageBox) suspects() []Process {
	j, err := b.job(true)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	p, err := j.Look(ctx, true)
	if err != nil {
		return nil
	}
	var all []Process
	for i := range p.Suspects {
		if s := &p.Suspects[i]; !oursByArgs(s.PID) {
			all = append(all, processOf(&s.Proc, b.rec.ID, ""))
		}
	}
	return all
}

// note remembers who is ours: its command line goes when it ends.
func (b *lineageBox) note(id darwinjob.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ours == nil {
		b.ours = map[darwinjob.ID]bool{}
	}
	b.ours[id] = true
}

// oursByArgs says whether a process is one of our own helpers, by its program and what that
// was started as.
func oursByArgs(pid int) bool {
	argv := proc.Args(pid)
	if len(argv) < 2 {
		return false
	}
	switch argv[1] {
	case keeper.Arg, SuperviseArg, LogArg, anchor.Arg, park.Arg:
		return isOurProgram(pid)
	}
	return false
}

// isOurProgram says whether a process runs sessionbox, or the program that we are.
func isOurProgram(pid int) bool {
	return strings.HasPrefix(filepath.Base(proc.Exe(pid)), "sessionbox") || proc.SameProgram(pid)
}

// Populated says whether somebody lives in a leaf.
func (b *lineageBox) Populated(leaf string) (bool, error) {
	members, err := b.Members(leaf)
	return len(members) > 0, err
}

// usage adds up what the members of a leaf use.
func (b *lineageBox) usage(p *darwinjob.Picture, leaf string) memlimit.Usage {
	u := memlimit.Usage{Tier: memlimit.TierProcesses, Unseen: memlimit.UnseenInProcesses()}
	memory, pids := b.memory(p, leaf), uint64(0)
	var cpu time.Duration
	for _, m := range p.Alive(leaf) {
		if oursByArgs(m.PID) {
			continue
		}
		pids++
		if st, err := proc.ReadStat(m.PID); err == nil && st.Start == m.Start {
			cpu += time.Duration(st.UserTicks+st.SystemTicks) * (time.Second / ticksPerSecond)
		}
	}
	u.MemoryBytes, u.Pids, u.CPU = &memory, &pids, &cpu
	return u
}

// lineageSessions are the sessions that the caller runs in, outermost first, by the keepers
// that it descends from: an environment can be copied, ancestors cannot.
func lineageSessions() []string {
	_, ids := belowKeeper()
	return ids
}

// belowKeeper are the caller and those that it descends from, the nearest first, up to a
// keeper, and the sessions that this stands for, outermost first; none: there is no keeper.
func belowKeeper() (chain []darwinjob.ID, ids []string) {
	for pid, depth := os.Getpid(), 0; pid > 1 && depth < 1000; depth++ {
		st, err := proc.ReadStat(pid)
		if err != nil {
			return chain, nil
		}
		chain = append(chain, darwinjob.ID{PID: pid, Start: st.Start})
		pid = st.PPID
		if ids, ok := keeper.Session(proc.Args(pid)); ok && isOurProgram(pid) {
			return chain, ids
		}
	}
	return chain, nil
}

// ownSession are the sessions that the caller runs in, outermost first. Who ran already when
// it was adopted has no keeper above it: records tell of it.
func (m *Manager) ownSession() []string {
	own := ownSession()
	if !m.store.MayHaveLineage() {
		return own
	}
	all, err := newSurvey(m)
	if err != nil {
		return own
	}
	chain, _ := belowKeeper()
	nearest, in := len(chain), ""
	for _, l := range all.ledgers() {
		for _, n := range l.Roots() {
			at := slices.IndexFunc(chain, n.Same)
			if at >= 0 && at < nearest && !slices.ContainsFunc(l.Away, n.Same) {
				nearest, in = at, l.Session
			}
		}
	}
	if in == "" && len(own) == 0 { // an orphan may have no keeper above it, and be in a job
		in = jobAround(all)
	}
	if in == "" || slices.Contains(own, in) {
		return own
	}
	return m.chainOf(in)
}
