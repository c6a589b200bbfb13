package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"github.com/sessionbox/sessionbox/pkg/internal/keeper"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// partAway begins the names of the parts of a lineage's records that say who was given to
// other sessions, each time in one more.
const partAway = "away-"

// Enter takes the calling process into a leaf, before it execs in place. It has no keeper
// above it, only a watcher beside it.
func (b *lineageBox) Enter(_ context.Context, leaf string) error {
	if err := b.notIntoJob(); err != nil {
		return err
	}
	self, err := b.table.Lookup(os.Getpid())
	if err != nil {
		return err
	}
	return b.receive(leaf, []darwinjob.Proc{self})
}

// Move takes in a process that runs already. Whose it was has to let go of it, see giveAway.
func (b *lineageBox) Move(_ context.Context, leaf string, pid int) error {
	if err := b.notIntoJob(); err != nil {
		return err
	}
	p, err := b.table.Lookup(pid)
	if err != nil {
		return err
	}
	return b.receive(leaf, []darwinjob.Proc{p})
}

// receive takes processes in as the first ones of a leaf, with what they will start, and has
// them watched. It is written down before it returns.
func (b *lineageBox) receive(leaf string, procs []darwinjob.Proc) error {
	here, err := darwinjob.Here(context.Background(), b.table)
	if err != nil {
		return err
	}
	l := darwinjob.NewLedger(b.rec.ID, here)
	l.Cookie = b.rec.Cookie
	for _, p := range procs {
		l.AddRoot(p, leaf)
	}
	data, err := l.Encode()
	if err == nil {
		err = b.m.store.PutLineage(b.rec.ID, keeper.InPart(leaf), data)
	}
	if err != nil {
		return recordError(err)
	}
	return b.watch(leaf)
}

// watch makes sure that somebody of ours watches a leaf.
func (b *lineageBox) watch(leaf string) error {
	if b.watched(leaf) {
		return nil
	}
	helper, err := b.m.helper()
	if err != nil {
		return err
	}
	return keeper.Watch(helper, keeperEnv(&b.rec), keeper.Order{Sessions: b.chain(), Leaf: leaf, Task: taskOfLeaf(leaf), Dirs: b.m.store.Dirs(), UID: b.rec.UID})
}

// rewatch gives those a watcher whose keeper was killed.
func (b *lineageBox) rewatch() {
	p, err := b.glance()
	if err != nil {
		return
	}
	parts, err := b.m.store.Lineage(b.rec.ID)
	if err != nil {
		return
	}
	done := map[string]bool{}
	for _, m := range p.Alive("") {
		if done[m.Leaf] || !hasLeaf(parts, m.Leaf) {
			continue
		}
		done[m.Leaf] = true
		if err := b.watch(m.Leaf); err != nil {
			b.m.log.Warn("watch what has lost its keeper", "session", b.rec.ID, "leaf", m.Leaf, "err", err)
		}
	}
}

// hasLeaf says whether there is a part about a leaf.
func hasLeaf(parts map[string][]byte, leaf string) bool {
	for part := range parts {
		if keeper.LeafOf(part) == leaf {
			return true
		}
	}
	return false
}

// forget removes all parts about a leaf.
func (b *lineageBox) forget(leaf string) error {
	parts, err := b.m.store.Lineage(b.rec.ID)
	for part := range parts {
		if keeper.LeafOf(part) == leaf {
			err = errors.Join(err, b.m.store.RemoveLineage(b.rec.ID, part))
		}
	}
	return err
}

// watched says whether a leaf has a keeper or a watcher that lives.
func (b *lineageBox) watched(leaf string) bool {
	l, err := b.ledger()
	return err == nil && slices.ContainsFunc(l.Reapers, func(r darwinjob.Reaper) bool { return r.Leaf == leaf && b.lives(r.ID) })
}

// handOver gives a leaf, with its keeper and all that is known of it, to another session.
// Each process is one's or the other's at any moment: the other's records are there first,
// and of two that claim a process neither ends it.
func (b *lineageBox) handOver(ctx context.Context, leaf string, to *lineageBox, as string) error {
	j, err := b.job(true)
	if err != nil {
		return err
	}
	if _, err := j.Look(ctx, false); err != nil {
		return err
	}
	part := j.Ledger().Part(leaf, to.rec.ID, as)
	part.Within = to.chain()[:len(to.chain())-1]
	data, err := part.Encode()
	if err == nil {
		err = to.m.store.PutLineage(to.rec.ID, as, data)
	}
	if err != nil {
		return recordError(err)
	}
	note, err := json.Marshal(keeper.Moved{Sessions: to.chain(), Leaf: as, Task: taskOfLeaf(as)})
	if err == nil {
		err = b.m.store.PutLineage(b.rec.ID, keeper.MovedPart(leaf), note)
	}
	if err == nil {
		err = b.forget(leaf)
	}
	if err != nil {
		return recordError(err)
	}
	b.survey.forget()
	to.survey.forget()
	to.wake(ctx, b, as)
	return to.watch(as)
}

// wake lets those run on that came out of a frozen session into one that is not.
func (b *lineageBox) wake(ctx context.Context, from *lineageBox, leaf string) {
	stood, err := from.Frozen()
	if err != nil || !stood {
		return
	}
	if stands, err := b.Frozen(); err != nil || stands {
		return
	}
	j, err := b.job(false)
	if err == nil {
		err = j.Thaw(ctx, leaf)
	}
	if err != nil {
		b.m.log.Warn("let those run on that were kept out of a frozen session", "session", b.rec.ID, "err", err)
	}
}

// giveAway lets go of processes that another session has received.
func (b *lineageBox) giveAway(ids []darwinjob.ID) error {
	here, err := darwinjob.Here(context.Background(), b.table)
	if err != nil {
		return err
	}
	l := darwinjob.NewLedger(b.rec.ID, here)
	l.Away = ids
	data, err := l.Encode()
	if err != nil {
		return err
	}
	return recordError(b.m.store.PutLineage(b.rec.ID, partAway+store.NewID(), data))
}

// isPart says whether a part of the records is a ledger.
func isPart(name string) bool {
	return name != partFrozen && !strings.HasPrefix(name, keeper.MovedPrefix) && !strings.HasPrefix(name, partStops)
}

// takeLineage moves one member of another lineage box here.
func (s *Session) takeLineage(from *lineageBox, to *lineageBox, toLeaf string, m proc.Member) error {
	p, err := to.table.Lookup(m.PID)
	if err != nil || p.State == darwinjob.Zombie {
		return nil //nolint:nilerr // it has ended
	}
	now, err := from.glance()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(now.Members, func(m *darwinjob.Member) bool { return m.Same(p.ID) }) {
		return nil
	}
	if err := to.receive(toLeaf, []darwinjob.Proc{p}); err != nil {
		return err
	}
	if err := from.giveAway([]darwinjob.ID{p.ID}); err != nil {
		return fmt.Errorf("process %d was received, and not let go of: %w", m.PID, err)
	}
	from.survey.forget()
	to.survey.forget()
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	to.wake(ctx, from, toLeaf)
	return nil
}

// partHeir begins the names of the parts of a lineage's records that name keepers which a
// closed session has left.
const partHeir = "heir-"

// inherit gives what was kept of a session that ends its keepers: the kept have these above
// them still, who get what those start and let go of. Where others were let go of as well,
// whose an orphan is could not be told: then it is nobody's.
func (b *lineageBox) inherit(to *lineageBox) error {
	l, err := b.ledger()
	if err != nil {
		return err
	}
	have, err := to.ledger()
	if err != nil {
		return err
	}
	roots := have.Roots()
	for _, id := range l.Away {
		if b.lives(id) && !slices.ContainsFunc(roots, func(n *darwinjob.Node) bool { return n.Same(id) }) {
			return fmt.Errorf("process %d below the same keeper is another session's", id.PID)
		}
	}
	here, err := darwinjob.Here(context.Background(), b.table)
	if err != nil {
		return err
	}
	heir := darwinjob.NewLedger(to.rec.ID, here)
	for _, r := range l.Reapers {
		if kids, err := b.table.Children(r.ID); err == nil && len(kids) > 0 {
			heir.Reapers = append(heir.Reapers, darwinjob.Reaper{ID: r.ID, Leaf: LeafName(1)})
		}
	}
	if len(heir.Reapers) == 0 {
		return nil
	}
	data, err := heir.Encode()
	if err == nil {
		err = to.m.store.PutLineage(to.rec.ID, partHeir+b.rec.ID, data)
	}
	return err
}
