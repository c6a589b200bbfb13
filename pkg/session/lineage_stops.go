package session

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// A kill stops all before it ends the first. Killed in between it would leave them stopped, so
// it says before that it is under way: whoever reconciles lets them run on then. They are not
// ended: by the time somebody looks they may be wanted.

// partStops begins the names of the parts of a lineage's records that say so.
const partStops = "stops-"

// stopping is what such a part says.
type stopping struct {
	By   proc.ID `json:"by"`
	Leaf string  `json:"leaf,omitempty"`
}

// noteStop says that a leaf is being stopped, and gives the way to take that back. Neither has
// to succeed: the brake needs no record.
func (b *lineageBox) noteStop(leaf string) (over func()) {
	self, err := proc.Self()
	if err != nil {
		return func() {}
	}
	data, err := json.Marshal(stopping{By: self, Leaf: leaf})
	part := partStops + store.NewID()
	if err == nil {
		err = b.m.store.PutLineage(b.rec.ID, part, data)
	}
	if err != nil {
		b.m.log.Debug("note that it is stopped for a kill", "session", b.rec.ID, "err", err)
		return func() {}
	}
	return func() {
		if err := b.m.store.RemoveLineage(b.rec.ID, part); err != nil {
			b.m.log.Debug("forget that it was stopped for a kill", "session", b.rec.ID, "err", err)
		}
	}
}

// pause keeps a session standing still for a moment.
type pause struct {
	b    *lineageBox
	j    *darwinjob.Lineage // nil: it is frozen anyway
	over func()
}

// pause stops all, unless they are frozen. Who comes after that is stopped by again.
func (b *lineageBox) pause(ctx context.Context) (*pause, error) {
	if b.frozenNoted() {
		return &pause{b: b}, nil
	}
	j, err := b.job(true)
	if err != nil {
		return nil, err
	}
	p := &pause{b: b, j: j, over: b.noteStop("")}
	p.again(ctx)
	return p, nil
}

func (p *pause) again(ctx context.Context) {
	if p.j == nil {
		return
	}
	if err := p.j.Freeze(ctx, ""); err != nil {
		p.b.m.log.Debug("have it stand still", "session", p.b.rec.ID, "err", err)
	}
}

// end lets those run on that were stopped.
func (p *pause) end() {
	if p.j != nil {
		p.j.RunOn()
		p.over()
	}
}

// resume lets those run on that a kill has left stopped.
func (b *lineageBox) resume(ctx context.Context) {
	parts, err := b.m.store.Lineage(b.rec.ID)
	if err != nil {
		return
	}
	left := map[string]stopping{}
	for part, data := range parts {
		if !strings.HasPrefix(part, partStops) {
			continue
		}
		var s stopping
		if json.Unmarshal(data, &s) == nil && proc.FateOf(s.By) != proc.Gone {
			return // somebody is at it: whom he has stopped must stand
		}
		left[part] = s
	}
	for part, s := range left {
		if err := b.runOn(ctx, s.Leaf); err != nil {
			b.m.log.Warn("let those run on that a kill has left stopped", "session", b.rec.ID, "err", err)
			continue
		}
		if err := b.m.store.RemoveLineage(b.rec.ID, part); err != nil {
			b.m.log.Debug("forget that it was stopped for a kill", "session", b.rec.ID, "err", err)
		}
	}
}

// runOn wakes a leaf, unless the session, or one around it, is to stand still.
func (b *lineageBox) runOn(ctx context.Context, leaf string) error {
	if b.frozenNoted() {
		return nil
	}
	j, err := b.job(true)
	if err != nil {
		return err
	}
	return j.Thaw(ctx, leaf)
}

// frozenNoted says whether the session, or one around it, was frozen.
func (b *lineageBox) frozenNoted() bool {
	return slices.ContainsFunc(b.chain(), func(id string) bool {
		parts, err := b.m.store.Lineage(id)
		_, is := parts[partFrozen]
		return is && err == nil
	})
}
