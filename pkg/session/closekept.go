package session

import (
	"context"
	"fmt"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// spareMarked moves who wants to be kept out of the way. Where that cannot be done they
// end with the others: nothing stands between a close and its end.
func (c *closing) spareMarked(ctx context.Context) {
	if c.box == nil || c.rec.Cookie == "" || len(c.rec.KeptFrom) > 0 || c.rec.Container != nil {
		return // what was kept once ends with the session that keeps it, and a container with its first process
	}
	spared := c.spared()
	s := &Session{m: c.m, rec: c.rec, box: c.box}
	beside := c.o.around
	if beside == nil {
		beside = s
	}
	wait, cancel := context.WithTimeout(ctx, spareTime)
	defer cancel()
	before := len(c.r.Kept)
	for { // what was forked meanwhile is in the next list
		c.oneLook(true)
		var moved []Process
		var err error
		c.kept, moved, err = s.keepMarked(wait, c.kept, beside, spared)
		c.r.Kept = append(c.r.Kept, moved...)
		if err == nil && len(moved) > 0 {
			err = wait.Err()
		}
		if err != nil {
			c.note("processes that were to be kept could not all be: " + err.Error())
		}
		if err != nil || len(moved) == 0 {
			break
		}
		c.stopHeirs(wait)
	}
	if c.kept == nil || len(c.r.Kept) == before {
		return
	}
	c.sparedNote(c.kept)
	if n := markedKept(c.r.Kept[before:], spared); n > 0 {
		c.note(fmt.Sprintf("%d processes with %s=1 were kept, as %s", n, EnvKeep, c.kept.Name()))
	}
	if c.rec.Shims {
		c.note("what was kept looks for this session's shims, which go with it: what it has docker and others start from now on is marked by nobody")
	}
	c.m.event(store.Event{Event: "kept", ID: c.rec.ID, Name: c.rec.Name}, map[string]any{"session": c.kept.ID(), "name": c.kept.Name(), "processes": len(c.r.Kept) - before})
}

// markedKept counts those that were kept for their own mark.
func markedKept(kept []Process, spared map[proc.ID]bool) (n int) {
	for i := range kept {
		if !spared[proc.ID{PID: kept[i].PID, Start: kept[i].Start}] {
			n++
		}
	}
	return n
}
