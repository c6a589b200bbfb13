package session

import (
	"context"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

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
