package darwinjob

import (
	"context"
	"fmt"
)

// WaitEmpty returns when two readings in a row found nobody alive in a leaf, or with the
// error of ctx.
func (j *Lineage) WaitEmpty(ctx context.Context, leaf string) error {
	for clean := 0; ; {
		p, err := j.Look(ctx, false)
		if err != nil {
			return err
		}
		alive := p.Alive(leaf)
		if len(alive) > 0 {
			clean = 0
			j.t.Wait(ctx, ids(alive), activePace)
		} else if clean++; clean >= 2 {
			return nil
		} else {
			j.t.Wait(ctx, nil, j.o.Apart)
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("wait for %q to be empty: %w", leaf, err)
		}
	}
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
