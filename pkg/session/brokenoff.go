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

// takeReceipt takes over what an earlier close of the session has done; whole says that this
// one came to its end.
func (c *closing) takeReceipt(whole bool) {
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
	c.r.resume(&earlier, whole, c.judged)
	c.r.TookSeconds += earlier.TookSeconds
}

// resume puts what an earlier close told before what this one does. Who was left then, and is
// not found now, has ended in between: in the box if this close has judged who is left there,
// elsewhere if it came to its end as a whole. If not, what was told of them stands.
func (r *Receipt) resume(earlier *Receipt, whole, judged bool) {
	r.Processes = joined(earlier.Processes, r.Processes, sameFated, when(judged, func(p *Fated) { hasEnded(&p.Fate, nil) }))
	r.Strays = joined(earlier.Strays, r.Strays, sameFated, when(whole, func(p *Fated) { hasEnded(&p.Fate, nil) }))
	told, jobs := earlier.Containers, earlier.Jobs
	if whole { // who was not heard is heard now, and was nothing of that kind itself
		told = slices.DeleteFunc(slices.Clone(told), func(c HiredContainer) bool { return c.ID == "" })
		jobs = slices.DeleteFunc(slices.Clone(jobs), func(j JobInfo) bool { return j.ID == "" && j.Line == "" })
	}
	r.Containers = joined(told, r.Containers,
		func(a, b *HiredContainer) bool { return a.Engine == b.Engine && a.ID == b.ID }, when(whole, func(c *HiredContainer) { hasEnded(&c.Fate, &c.Why) }))
	r.Units = joined(earlier.Units, r.Units,
		func(a, b *UnitInfo) bool { return a.Manager == b.Manager && a.Name == b.Name }, when(whole, func(u *UnitInfo) { hasEnded(&u.Fate, &u.Why) }))
	r.Jobs = joined(jobs, r.Jobs,
		func(a, b *JobInfo) bool { return a.Kind == b.Kind && a.ID == b.ID && a.Line == b.Line }, when(whole, func(j *JobInfo) { hasEnded(&j.Fate, &j.Why) }))
	r.Kept = joined(earlier.Kept, r.Kept, sameProcess, nil)
	r.Served = joined(earlier.Served, r.Served, func(a, b *Served) bool { return sameProcess(&a.Process, &b.Process) }, nil)
	r.Notes = joined(earlier.Notes, r.Notes, func(a, b *string) bool { return *a == *b }, nil)
	if !judged {
		r.Survivors = joined(earlier.Survivors, r.Survivors, func(a, b *proc.Survivor) bool { return a.PID == b.PID && a.Start == b.Start }, nil)
	}
	nested := r.Nested
	r.Nested = make([]Receipt, 0, len(earlier.Nested)+len(nested))
	for i := range earlier.Nested {
		r.Nested = append(r.Nested, earlier.Nested[i].settled(whole))
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

// settled is the receipt of a session inside one whose close came to its end: so did its own.
func (r *Receipt) settled(whole bool) Receipt {
	if !whole {
		return *r
	}
	n := Receipt{Schema: r.Schema, ID: r.ID, Name: r.Name, Box: r.Box, Opened: r.Opened, Closed: r.Closed, AgeSeconds: r.AgeSeconds,
		TookSeconds: r.TookSeconds, Reason: r.Reason, Usage: r.Usage,
		Tasks: r.Tasks, Processes: []Fated{}, Strays: []Fated{}, Survivors: []proc.Survivor{}}
	n.resume(r, true, true)
	return n
}

func sameProcess(a, b *Process) bool { return a.PID == b.PID && a.Start == b.Start }

func sameFated(a, b *Fated) bool { return sameProcess(&a.Process, &b.Process) }

// hasEnded says of what was left that it has ended.
func hasEnded(fate, why *string) {
	if *fate != FateSurvived && *fate != fateAlive {
		return
	}
	*fate = FateEnded
	if why != nil {
		*why = ""
	}
}

func when[T any](known bool, settle func(*T)) func(*T) {
	if !known {
		return nil
	}
	return settle
}

// joined is what was told earlier and is not now, then what is: settle, if not nil, says of
// one of the former what has become of it since.
func joined[T any](earlier, now []T, same func(a, b *T) bool, settle func(*T)) []T {
	if len(earlier) == 0 {
		return now
	}
	all := make([]T, 0, len(earlier)+len(now))
	for i := range earlier {
		e := earlier[i]
		if slices.ContainsFunc(now, func(n T) bool { return same(&n, &e) }) {
			continue
		}
		if settle != nil {
			settle(&e)
		}
		all = append(all, e)
	}
	return append(all, now...)
}
