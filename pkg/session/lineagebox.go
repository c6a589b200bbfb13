package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"github.com/sessionbox/sessionbox/pkg/internal/keeper"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// lineageBox holds a session's processes where there is no cgroup to hold them: by their
// ancestry, which a keeper of each task records, see packages darwinjob and keeper. The
// kernel does not enforce it: what it cannot promise, mayEscape says.
//
// It has no kernel object. All it knows is in the session's directory, and in the process
// table: each question reads both anew.
type lineageBox struct {
	m     *Manager
	rec   store.Session
	table darwinjob.Table

	survey *survey

	mu       sync.Mutex
	ties     map[string]*keeper.Tie
	commands map[string]*keeper.Command
	still    bool               // one look serves all questions, see glance
	picture  *darwinjob.Picture // of a still box
	after    []*darwinjob.Report
	ours     map[darwinjob.ID]bool // our own helpers that were seen among the members
}

var _ Box = (*lineageBox)(nil)

// makeLineage makes the box of a new session, which is nothing but a promise to look.
func (m *Manager) makeLineage(rec *store.Session, at place) (*lineageBox, error) {
	if _, err := m.helper(); err != nil {
		return nil, err
	}
	if err := m.store.MarkLineage(); err != nil {
		m.log.Warn("were its record lost, the session could not be found", "id", rec.ID, "err", err)
	}
	if rec.Parent == "" && len(at.parents) > 0 {
		rec.Parent = at.parents[len(at.parents)-1]
	}
	return m.openLineage(rec)
}

// openLineage opens the box of a session that runs in this boot.
func (m *Manager) openLineage(rec *store.Session) (*lineageBox, error) {
	s, err := newSurvey(m)
	if err != nil {
		return nil, &Error{Kind: ErrUnsupported, Session: rec.ID, Text: "the process table cannot be read", Err: err,
			Hint: "the lineage box needs a /proc of its own pid namespace"}
	}
	return m.lineageIn(rec, s)
}

// lineageIn is the box of a session, as a survey sees it.
func (m *Manager) lineageIn(rec *store.Session, s *survey) (*lineageBox, error) {
	if rec.Creator.NS != 0 && s.here.Namespace != 0 && s.here.Namespace != rec.Creator.NS {
		return nil, &Error{Kind: ErrUnsupported, Session: rec.ID, Text: "its processes cannot be seen from here",
			Hint: "it was opened in another pid namespace; close it there. With that namespace it has ended: then `sessionbox close --forget " + rec.ID + "`"}
	}
	return &lineageBox{m: m, rec: *rec, table: s.table, survey: s, ties: map[string]*keeper.Tie{}, commands: map[string]*keeper.Command{}}, nil
}

// mayEscape is what a lineage box cannot hold, for people.
func mayEscape() []string {
	all := []string{"work that another daemon does on request: containers, cron, at, ssh to this machine, a tmux server that was there before"}
	if runtime.GOOS != "linux" {
		return append(all, "a daemon whose parents no reading showed, and that hides its environment")
	}
	return append(all, "if its keepers are killed: a daemon that starts after that, in a session of its own, with an environment that was cleared")
}

// The box has no kernel object.
func (b *lineageBox) Path() string  { return "" }
func (b *lineageBox) Inode() uint64 { return 0 }

// Prepare has nothing to make: a leaf is a word in the records.
func (b *lineageBox) Prepare(context.Context, string) (uint64, error) { return 0, nil }

// chain are the sessions around the box and its own, outermost first.
func (b *lineageBox) chain() []string {
	ids := []string{b.rec.ID}
	for parent, depth := b.rec.Parent, 0; parent != "" && depth < maxNesting; depth++ {
		ids = append(ids, parent)
		rec, err := b.m.store.Get(parent)
		if err != nil {
			break
		}
		parent = rec.Parent
	}
	slices.Reverse(ids)
	return ids
}

// chainOf are a session and those around it, by their records, outermost first.
func (m *Manager) chainOf(id string) []string {
	b := &lineageBox{m: m}
	b.rec.ID = id
	if rec, err := m.store.Get(id); err == nil {
		b.rec = rec
	}
	return b.chain()
}

// maxNesting bounds following records that name each other as parents.
const maxNesting = 64

// Start starts cmd below a keeper, which has it recorded before it answers. Our own helpers
// have none: they are no members, and end with what they serve.
func (b *lineageBox) Start(ctx context.Context, leaf string, cmd *exec.Cmd) error {
	if leaf == helperLeaf {
		own := sessionEnv(&b.rec)
		cmd.Env = slices.DeleteFunc(slices.Clone(cmd.Env), func(kv string) bool { return slices.Contains(own, kv) })
		return cmd.Start()
	}
	helper, err := b.m.helper()
	if err != nil {
		return err
	}
	b.mu.Lock()
	tie := b.ties[leaf]
	b.mu.Unlock()
	self, err := proc.Self()
	if err != nil {
		return err
	}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	o := keeper.Order{Sessions: b.chain(), Leaf: leaf, Task: taskOfLeaf(leaf), Dirs: b.m.store.Dirs(), UID: b.rec.UID, Cookie: b.rec.Cookie,
		Setsid: ownSid(cmd.SysProcAttr), Supervisor: self, Job: b.jobDir()}
	c, err := keeper.Start(ctx, helper, keeperEnv(&b.rec), cmd, o, tie)
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.commands[leaf] = c
	b.mu.Unlock()
	return nil
}

// command is what was started in a leaf by this value, nil for none.
func (b *lineageBox) command(leaf string) *keeper.Command {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.commands[leaf]
}

// tie binds what is started next in a leaf to us.
func (b *lineageBox) tie(leaf string) (bond, error) {
	t, err := keeper.NewTie()
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ties[leaf] = t
	return t, nil
}

// EnsureAnchor has nothing to do: each task has its keeper.
func (b *lineageBox) EnsureAnchor(context.Context) error { return nil }

// RenewAnchor writes down which keepers live, for a session whose records were lost and that
// has new ones.
func (b *lineageBox) RenewAnchor(context.Context) error {
	here, err := darwinjob.Here(context.Background(), b.table)
	if err != nil {
		return err
	}
	l := darwinjob.NewLedger(b.rec.ID, here)
	b.keptBy(l, b.rec.ID)
	data, err := l.Encode()
	if err != nil {
		return err
	}
	return errors.Join(b.m.store.MarkLineage(), b.m.store.PutLineage(b.rec.ID, partFound, data))
}

// Leaves are those that somebody lives in, or that a keeper has.
func (b *lineageBox) Leaves() ([]string, error) {
	l, err := b.ledger()
	if err != nil {
		return nil, err
	}
	leaves := map[string]bool{}
	for _, r := range l.Reapers {
		leaves[r.Leaf] = true
	}
	for _, n := range l.Nodes {
		leaves[n.Leaf] = true
	}
	delete(leaves, "")
	return slices.Sorted(maps.Keys(leaves)), nil
}

// Signal sends sig once to each member but our own.
func (b *lineageBox) Signal(ctx context.Context, leaf string, sig syscall.Signal) (int, error) {
	j, err := b.job(true)
	if err != nil {
		return 0, err
	}
	return j.Signal(ctx, leaf, sig)
}

// WaitEmpty returns when two looks in a row found nobody.
func (b *lineageBox) WaitEmpty(ctx context.Context, leaf string) error {
	j, err := b.job(true)
	if err != nil {
		return err
	}
	return j.WaitEmpty(ctx, leaf)
}

// Usage adds up what the living members use.
func (b *lineageBox) Usage(leaf string) (memlimit.Usage, error) {
	p, err := b.glance()
	if err != nil {
		return memlimit.Usage{}, err
	}
	return b.usage(p, leaf), nil
}

// Bound is nil: no ceiling of ours is in force.
func (b *lineageBox) Bound() *memlimit.Bound { return nil }

// SetLimits sets none: it says of each that it is watched and not enforced.
func (b *lineageBox) SetLimits(_ context.Context, r *specs.LinuxResources) ([]memlimit.Ceiling, error) {
	want, err := memlimit.FromOCI(r)
	if err != nil {
		return nil, err
	}
	return b.Limits(want)
}

// Limits says that none is in force.
func (b *lineageBox) Limits(want memlimit.Limits) ([]memlimit.Ceiling, error) {
	all := memlimit.Ceilings(want, memlimit.Limits{})
	for i := range all {
		all[i].Why = "the lineage box has no ceilings: what it uses is watched, not enforced"
	}
	return all, nil
}

// SetMeta has nothing to mark: with the records gone its processes say by their
// environment which session they are of.
func (b *lineageBox) SetMeta(string) error { return nil }

// Meta is "".
func (b *lineageBox) Meta() (string, error) { return "", nil }

// RemoveLeaf forgets a leaf that nobody keeps any more; a keeper does so itself.
func (b *lineageBox) RemoveLeaf(leaf string) error {
	l, err := b.ledger()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(l.Reapers, func(r darwinjob.Reaper) bool { return r.Leaf == leaf && b.lives(r.ID) }) {
		return nil
	}
	parts, err := b.m.store.Lineage(b.rec.ID)
	if err == nil && !hasLeaf(parts, leaf) {
		return nil
	}
	members, err := b.Members(leaf) // its keeper was killed: the record is all there is
	if err == nil && len(members) > 0 {
		err = fmt.Errorf("%d processes: %w", len(members), syscall.EBUSY)
	}
	if err != nil {
		return fmt.Errorf("forget %s of session %s: %w", leaf, b.rec.ID, err)
	}
	return b.forget(leaf)
}

// lives says whether a process of ours is there still.
func (b *lineageBox) lives(id darwinjob.ID) bool {
	p, err := b.table.Lookup(id.PID)
	return err == nil && id.Same(p.ID) && p.State != darwinjob.Zombie
}

// Close releases nothing.
func (b *lineageBox) Close() error { return nil }

// nestedPlace is the name of a nested session's leaf in this box.
func nestedPlace(chain []string, leaf string) string {
	return fmt.Sprintf("%s/%s", strings.Join(append([]string{"sessionbox"}, chain...), "-")+".slice", leaf)
}
