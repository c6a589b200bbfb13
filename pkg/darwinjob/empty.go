package darwinjob

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// WaitEmpty returns when two readings in a row found nobody alive in a leaf, nor children
// that came meanwhile, or with the error of ctx.
func (j *Lineage) WaitEmpty(ctx context.Context, leaf string) error {
	for clean := 0; ; {
		began := j.t.Clock()
		p, err := j.Look(ctx, false)
		if err != nil {
			return err
		}
		alive := slices.DeleteFunc(p.Alive(leaf), j.isOwn)
		if len(alive) > 0 {
			clean = 0
			// The end of one of those that are known wakes us.
			j.rest(ctx, emptyRest*(j.t.Clock()-began))
			pace := idlePace
			if len(alive) > wakersMost {
				pace = activePace
			}
			j.t.Wait(ctx, ids(alive), pace)
		} else if clean++; j.restless(leaf) {
			clean = 0
			j.t.Wait(ctx, nil, j.o.Settle)
		} else if clean >= 2 {
			return nil
		} else {
			j.t.Wait(ctx, nil, j.o.Apart)
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("wait for %q to be empty: %w", leaf, err)
		}
	}
}

// emptyRest is how many times as long as it took to look is waited before the next look:
// where many end all the time each would bring one.
const emptyRest = 2

// wakersMost is of how many processes a [Table] surely tells that one ended.
const wakersMost = 250

// restless says whether there are members in a leaf that the last reading does not show.
func (j *Lineage) restless(leaf string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	found, settled := j.children(leaf)
	return !settled || slices.ContainsFunc(found, func(m *Member) bool { return (leaf == "" || m.Leaf == leaf) && !j.isOwn(m) })
}

// Holding is what one process holds, in bytes, see [Table.Memory].
type Holding struct {
	*Member
	Bytes uint64
}

// Holdings are what processes hold, the most first. Who cannot be asked is left out: another user's,
// or one that has ended.
func Holdings(t interface{ Memory(id ID) (int64, error) }, ms []*Member) []Holding {
	var all []Holding
	for _, m := range ms {
		if n, err := t.Memory(m.ID); err == nil && n >= 0 {
			all = append(all, Holding{m, uint64(n)})
		}
	}
	slices.SortStableFunc(all, func(a, b Holding) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return all
}

// Memory is what the living members of a leaf hold together, in bytes, and of how many
// it could not be read: of other users' processes it cannot.
func (j *Lineage) Memory(ctx context.Context, leaf string) (bytes int64, unread int, err error) {
	p, err := j.Look(ctx, false)
	if err != nil {
		return 0, 0, err
	}
	for _, m := range p.Alive(leaf) {
		n, err := j.t.Memory(m.ID)
		if err != nil {
			unread++
			continue
		}
		bytes += n
	}
	return bytes, unread, nil
}
