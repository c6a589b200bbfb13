package session

import (
	"context"
	"errors"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// Holding is what the processes of a session hold that no cgroup counts.
type Holding struct {
	Processes []memlimit.Process // the biggest first; shared memory counts once for each
	Frozen    bool
}

// Holding asks each process of a session in a lineage box. It costs a reading of the
// process table. The error is [ErrNotFound] when there is no such session any more.
func (m *Manager) Holding(id string) (Holding, error) {
	rec, err := m.store.Get(id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return Holding{}, notFound(id)
	case err != nil:
		return Holding{}, err
	}
	b, err := m.openLineage(&rec)
	if err != nil {
		return Holding{}, err
	}
	defer b.Close()
	b.oneLook(true)
	p, err := b.glance()
	if err != nil {
		return Holding{}, err
	}
	h := Holding{Processes: b.holding(p, "")}
	h.Frozen, err = b.Frozen()
	return h, err
}

// Reclaim reclaims nothing: no kernel object holds the session's memory.
func (b *lineageBox) Reclaim(context.Context) (memlimit.Reclaimed, error) {
	return memlimit.Reclaimed{Why: memlimit.WhyNoController}, nil
}

// Mark and Tally know nothing: nobody counts for the session. That a command was killed for
// want of memory the kernel's log may tell, see [logged].
func (b *lineageBox) Mark(bool) memlimit.Mark                          { return memlimit.Mark{} }
func (b *lineageBox) Tally(string, memlimit.Mark, bool) memlimit.Tally { return memlimit.Tally{} }

// OOMGroup and LeafMemory: the kernel kills single processes.
func (b *lineageBox) OOMGroup(string, bool) error { return nil }
func (b *lineageBox) LeafMemory() bool            { return false }
