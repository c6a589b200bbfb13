package session

import (
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// count reads what the leaves of all tasks tell, before anything is ended: the leaves of a
// box that systemd keeps go with the last process.
func (c *closing) count() {
	if c.tallies == nil { // else the box was entered again
		c.tallies = map[int]memlimit.Tally{}
		for i := range c.records {
			if t := &c.records[i]; t.Moved == "" {
				c.tallies[t.N] = c.m.tally(c.box, &c.rec, t)
			}
		}
	}
}

// told is what the leaf of a task tells still, or has told before the kill.
func (c *closing) told(t *store.Task) memlimit.Tally {
	y := c.m.tally(c.box, &c.rec, t)
	if before := c.tallies[t.N]; y.OOM == nil || y.Shared {
		if y.PeakBytes != nil {
			before.PeakBytes = y.PeakBytes
		}
		return before
	}
	return y
}

// tally puts into the record of a task that the close ended what its leaf tells.
func (c *closing) tally(t *store.Task) {
	if c.box == nil {
		return
	}
	y := c.told(t)
	t.PeakBytes = y.PeakBytes
	r := Result{State: t.State, Reason: t.Reason, Signal: syscall.SIGKILL, OOM: y.OOM, shared: y.Shared}
	r.explain(t, true)
	t.State, t.Reason, t.OOM = r.State, r.Reason, r.OOM
}

// running gives the tasks whose end is not recorded.
func running(tasks []store.Task) map[int]bool {
	running := map[int]bool{}
	for i := range tasks {
		if !tasks[i].State.Ended() {
			running[tasks[i].N] = true
		}
	}
	return running
}

// tasks gives the session's tasks for the receipt; what was running was killed.
func (c *closing) tasks() []TaskInfo {
	tasks, _, err := c.m.store.Tasks(c.rec.ID)
	if err != nil {
		return []TaskInfo{}
	}
	infos := make([]TaskInfo, 0, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		if t.Moved != "" {
			continue
		}
		if !t.State.Ended() && !c.o.DryRun {
			now := time.Now()
			t.State, t.Ended, t.Reason = store.TaskKilled, &now, c.why()
			c.tally(t)
		} else if c.r.OOM != nil && c.box != nil { // of what it left, perhaps
			if y := c.told(t); y.OOM != nil && !y.Shared {
				t.OOM = y.OOM
			}
		}
		ti := taskInfo(t)
		for i := range c.r.Processes {
			if p := &c.r.Processes[i]; p.Task == t.N && !c.running[t.N] {
				ti.Leftovers++
			}
		}
		infos = append(infos, ti)
	}
	return infos
}
