package darwinjob

import (
	"context"
	"errors"
	"slices"
	"syscall"
)

// ErrNotFrozen says that a standstill could not be proven in time.
var ErrNotFrozen = errors.New("not everything stands still")

// Freeze stops all members of a leaf until nobody moves: nothing new can be forked
// then. It is proven by two readings in a row, apart by [Options.Settle], with the same
// members, all of them stopped.
func (j *Lineage) Freeze(ctx context.Context, leaf string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	still, p, err := j.freeze(ctx, leaf)
	if p != nil { // who turned out to be another session's
		alive := p.Alive(leaf)
		j.runOn(func(id ID) bool { return !slices.ContainsFunc(alive, func(m *Member) bool { return m.Same(id) }) })
	}
	if err == nil && !still {
		err = ErrNotFrozen
	}
	return err
}

// freeze gives the last picture, and whether it was proven to stand still.
func (j *Lineage) freeze(ctx context.Context, leaf string) (bool, *Picture, error) {
	end := j.t.Clock() + j.o.FreezeFor
	asked := map[ID]bool{} // was sent SIGSTOP
	var last map[ID]bool   // who stood still in the reading before, all others being gone
	var shown *Picture     // of the reading before: who was stopped must be gone on with
	for deep := true; ; deep = false {
		p, err := j.look(ctx, leaf, deep || last != nil)
		if err != nil {
			return false, shown, err
		}
		shown = p
		if p.Joined > 0 {
			j.changed() //nolint:errcheck // the brake needs no record
		}
		alive := p.Alive(leaf)
		now := map[ID]bool{}
		moves := false
		for _, m := range topDown(j.reach(alive)) {
			now[m.ID] = true
			switch m.State {
			case Running:
				moves = true
				j.send(m, syscall.SIGSTOP)
			case Blocked: // it stops before it can do anything else
				if !asked[m.ID] {
					moves = true
					j.send(m, syscall.SIGSTOP)
				}
			case Exiting:
				moves = true
			}
			asked[m.ID] = true
		}
		met, settled := j.chase(ctx, leaf, syscall.SIGSTOP)
		moves = moves || len(met) > 0 || !settled
		for _, m := range alive {
			// Whom we may not stop can go on forking.
			moves = moves || j.denied[m.ID] && m.State == Running
		}
		switch {
		case !moves && last != nil && equal(last, now):
			return true, p, nil
		case moves:
			last = nil
		default:
			last = now
		}
		if onlyDenied(j, alive) || j.t.Clock() >= end || ctx.Err() != nil {
			return false, p, ctx.Err()
		}
		if last != nil || p.Joined == 0 {
			j.t.Wait(ctx, nil, j.o.Settle)
		}
	}
}

// onlyDenied says whether all that still moves is another user's, so that waiting
// changes nothing.
func onlyDenied(j *Lineage, alive []*Member) bool {
	some := false
	for _, m := range alive {
		if m.State != Running || m.Shield != "" || j.isOwn(m) {
			continue
		}
		if !j.denied[m.ID] {
			return false
		}
		some = true
	}
	return some
}

func equal(a, b map[ID]bool) bool {
	if len(a) != len(b) {
		return false
	}
	for id := range a {
		if !b[id] {
			return false
		}
	}
	return true
}

// RunOn lets those go on that this lineage has stopped, and nobody who stood before.
func (j *Lineage) RunOn() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.runOn(func(ID) bool { return true })
}

// runOn wakes those of whom we have stopped.
func (j *Lineage) runOn(those func(ID) bool) {
	for id := range j.stood {
		if those(id) {
			_ = j.t.Signal(id, syscall.SIGCONT) // most are gone
			delete(j.stood, id)
		}
	}
}

// Thaw lets all members of a leaf go on, children first: a parent that finds its
// child stopped may act on it.
func (j *Lineage) Thaw(ctx context.Context, leaf string) error {
	p, err := j.Look(ctx, false)
	if err != nil {
		return err
	}
	var failed error
	for _, m := range bottomUp(p.Alive(leaf)) {
		if m.Shield != "" {
			continue
		}
		if err := j.t.Signal(m.ID, syscall.SIGCONT); err != nil && !gone(err) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// Frozen says whether members of a leaf are there, and all of them are stopped.
func (j *Lineage) Frozen(ctx context.Context, leaf string) (bool, error) {
	p, err := j.Look(ctx, false)
	if err != nil {
		return false, err
	}
	stopped := 0
	for _, m := range p.Alive(leaf) {
		if m.State == Running && m.Shield == "" && !j.isOwn(m) {
			return false, nil
		}
		stopped++
	}
	return stopped > 0, nil
}
