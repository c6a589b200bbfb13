package darwinjob

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Pace of [Lineage.Watch]: while new processes come, when none came for a while, and
// how often the whole table is read where children can be listed without.
const (
	activePace = 250 * time.Millisecond
	idlePace   = 2 * time.Second
	activeFor  = 10 * time.Second
	fullPace   = 30 * time.Second
)

// Watch records descendants as they come, until ctx is done: at once where the kernel
// tells of a fork, else in intervals. Whom it records can be told later, when nothing
// shows where it came from. Its error is the last of a reading, or of [Options.Changed].
func (j *Lineage) Watch(ctx context.Context) error {
	var failed error
	var full, active time.Duration
	looked := false
	for ctx.Err() == nil {
		now := j.t.Clock()
		joined := -1
		if looked && now-full < fullPace {
			joined = j.quick()
		}
		if joined < 0 {
			p, err := j.Look(ctx, false)
			switch {
			case err == nil && !looked:
				joined, full, active, looked = p.Joined, now, now, true
			case err == nil:
				joined, full = p.Joined, now
			case ctx.Err() == nil:
				failed = err
			}
		}
		if joined > 0 {
			active = now
		}
		pace := idlePace
		if now-active < activeFor {
			pace = activePace
		}
		took := j.t.Clock() - now
		if j.o.Reaper {
			// All orphans of a reaper that lives are its own: the record is for the case that it
			// does not, and must not cost more than what it keeps.
			j.t.Wait(ctx, nil, max(pace, restFor*took))
			continue
		}
		// In a storm somebody ends all the time.
		j.rest(ctx, leastRest*took)
		j.t.Wait(ctx, j.watched(), pace)
	}
	return failed
}

// How many times as long as it has looked a reaper rests, and others do at least.
const (
	restFor   = 50
	leastRest = 5
)

// rest lets time pass that looking took.
func (j *Lineage) rest(ctx context.Context, d time.Duration) {
	if d > 0 {
		j.t.Wait(ctx, nil, d)
	}
}

// quick looks for new children only; -1 if the table cannot.
func (j *Lineage) quick() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.l.Reapers) == 0 && len(j.live) == 0 {
		return 0
	}
	if !j.canList() {
		return -1
	}
	found, _ := j.children("")
	n := len(found)
	if n > 0 || j.dirty {
		j.changed() //nolint:errcheck // the reading that follows within fullPace says it again
	}
	return n
}

// canList says whether the table lists children.
func (j *Lineage) canList() bool {
	ask := func(id ID) bool {
		_, err := j.t.Children(id)
		return err == nil || errors.Is(err, ErrUnsettled)
	}
	if slices.ContainsFunc(j.l.Reapers, func(r Reaper) bool { return ask(r.ID) }) {
		return true
	}
	for id := range j.live {
		if ask(id) {
			return true
		}
	}
	return false
}

// watched are the processes whose acts are worth waking up for.
func (j *Lineage) watched() []ID {
	j.mu.Lock()
	defer j.mu.Unlock()
	is := make([]ID, 0, len(j.live))
	for id := range j.live {
		is = append(is, id)
	}
	return is
}
