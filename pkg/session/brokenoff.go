package session

import (
	"encoding/json"
	"slices"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// A close that is broken off has ended some already, and the one that finishes it does not
// find those any more: its receipt takes over what the earlier one told.

// keepReceipt leaves the receipt of a close that failed to the next one. Where it cannot be
// written that one tells what it finds itself.
func (c *closing) keepReceipt() {
	b, err := json.Marshal(&c.r)
	if err == nil && len(b) > store.MaxRecord {
		b, err = json.Marshal(shortened(c.r))
	}
	if err == nil {
		err = c.m.store.PutBrokenOff(c.rec.ID, b)
	}
	if err != nil {
		c.m.log.Debug("keep the receipt of a close that failed", "session", c.rec.ID, "err", err)
	}
}

// takeReceipt takes over what an earlier close of the session has done.
func (c *closing) takeReceipt() {
	if !c.r.Resumed {
		return
	}
	b, err := c.m.store.BrokenOff(c.rec.ID)
	if len(b) == 0 {
		return
	}
	var earlier Receipt
	if err == nil {
		err = json.Unmarshal(b, &earlier)
	}
	if err != nil {
		c.m.log.Debug("read the receipt of the earlier close", "session", c.rec.ID, "err", err)
		return
	}
	c.r.resume(&earlier)
	c.r.TookSeconds += earlier.TookSeconds
}

// resume puts what an earlier close told before what this one does. Who was left then, and is
// not found now, has ended in between.
func (r *Receipt) resume(earlier *Receipt) {
	r.Processes = joinFated(earlier.Processes, r.Processes)
	r.Strays = joinFated(earlier.Strays, r.Strays)
	r.Containers = joined(earlier.Containers, r.Containers,
		func(a, b *HiredContainer) bool { return a.Engine == b.Engine && a.ID == b.ID }, func(c *HiredContainer) *string { return &c.Fate })
	r.Units = joined(earlier.Units, r.Units,
		func(a, b *UnitInfo) bool { return a.Manager == b.Manager && a.Name == b.Name }, func(u *UnitInfo) *string { return &u.Fate })
	r.Jobs = joined(earlier.Jobs, r.Jobs,
		func(a, b *JobInfo) bool { return a.Kind == b.Kind && a.ID == b.ID && a.Line == b.Line }, func(j *JobInfo) *string { return &j.Fate })
	r.Kept = joined(earlier.Kept, r.Kept, sameProcess, nil)
	r.Served = joined(earlier.Served, r.Served, func(a, b *Served) bool { return sameProcess(&a.Process, &b.Process) }, nil)
	r.Notes = joined(earlier.Notes, r.Notes, func(a, b *string) bool { return *a == *b }, nil)
	nested := r.Nested
	r.Nested = make([]Receipt, 0, len(earlier.Nested)+len(nested))
	for i := range earlier.Nested {
		e := &earlier.Nested[i]
		n := Receipt{Schema: e.Schema, ID: e.ID, Name: e.Name, Box: e.Box, Opened: e.Opened, Closed: e.Closed, AgeSeconds: e.AgeSeconds,
			TookSeconds: e.TookSeconds, Reason: e.Reason, Usage: e.Usage,
			Tasks: e.Tasks, Processes: []Fated{}, Strays: []Fated{}, Survivors: []proc.Survivor{}}
		n.resume(e)
		r.Nested = append(r.Nested, n)
	}
	for i := range nested {
		r.addNested(&nested[i])
	}
	if r.OOM == nil {
		r.OOM = earlier.OOM
	}
	if peak := earlier.Usage.PeakBytes; peak != nil && (r.Usage.PeakBytes == nil || *r.Usage.PeakBytes < *peak) {
		r.Usage.PeakBytes = peak
	}
}

func joinFated(earlier, now []Fated) []Fated {
	return joined(earlier, now, func(a, b *Fated) bool { return sameProcess(&a.Process, &b.Process) }, func(p *Fated) *string { return &p.Fate })
}

func sameProcess(a, b *Process) bool { return a.PID == b.PID && a.Start == b.Start }

// joined is what was told earlier and is not now, then what is: fate, if not nil, is where one
// of them says what became of it.
func joined[T any](earlier, now []T, same func(a, b *T) bool, fate func(*T) *string) []T {
	if len(earlier) == 0 {
		return now
	}
	all := make([]T, 0, len(earlier)+len(now))
	for i := range earlier {
		e := earlier[i]
		if slices.ContainsFunc(now, func(n T) bool { return same(&n, &e) }) {
			continue
		}
		if fate != nil && (*fate(&e) == FateSurvived || *fate(&e) == fateAlive) {
			*fate(&e) = FateEnded
		}
		all = append(all, e)
	}
	return append(all, now...)
}
