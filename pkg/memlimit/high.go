package memlimit

import (
	"fmt"
	"time"
)

// restoreAfter is for how long a session must do with less than its memory.high before that
// is set again: what a collector gives back it takes again soon.
const restoreAfter = 10 * time.Second

// parkMost is for how long a session may be parked: it is seen late that it is, and to lift
// takes time on a machine that is short, so that this is less than what is promised.
const parkMost = brakeMost - 2*time.Second

// high sees to a memory.high that the user of a session has asked for. It is no place to
// rest in (facts/memory.md, fact 3): without swap who stands there gets on by half a
// megabyte a second and is never killed, for hours. Where the session may be braked, that
// means for brakeMost at most, whoever has set it; after that it is lifted, and set again
// when the session does with less.
func (l *Ladder) high(sc *Scene, place int, out *[]Action) {
	p := &sc.Places[place]
	if p.Kind != KindSession || p.Tier != TierCgroup {
		return
	}
	for i := range sc.Sessions {
		c := &sc.Sessions[i]
		if c.ID != p.Session || c.High == Infinity {
			continue
		}
		a := l.restore(sc, c, p)
		if l.lifts(sc, c, place) {
			a = c.about(Lift, p, fmt.Sprintf("it stood at its memory.high of %s for %s", bytesText(c.High), about(p.Parked.Seconds())))
		}
		if a.Do == "" || past(sc.Now, l.tried[c.ID]) < brakeTry || l.fails(c, a.Do, sc.Now) {
			continue
		}
		l.tried[c.ID] = sc.Now
		if a.Do == Lift {
			l.lifted[c.ID] = sc.Now
		}
		*out = append(*out, a)
	}
}

// lifts says whether a session's memory.high is to be lifted now: not while it is rather
// stopped, and not at the cost of others.
func (l *Ladder) lifts(sc *Scene, c *Candidate, place int) bool {
	p := &sc.Places[place]
	if p.High == Infinity || p.Parked < parkMost || c.May&MayBrake == 0 || c.Protected || c.Frozen || !sc.easyAround(c, place) {
		return false
	}
	return p.Now < Critical || !l.stops(sc, c, place) || p.Parked >= brakeMost+brakeOver
}

// easyAround says whether what is around a session can do with one that takes more.
func (sc *Scene) easyAround(c *Candidate, own int) bool {
	for _, i := range c.Under {
		if p := &sc.Places[i]; i != own && max(p.Level, p.Now) >= Critical {
			return false
		}
	}
	return true
}

// restore sets a memory.high again that was lifted, nothing while it has to wait. A guard
// that comes anew knows of no rest, but of the record.
func (l *Ladder) restore(sc *Scene, c *Candidate, p *Spot) Action {
	if !c.Lifted || c.Frozen || !FitsHigh(sum(c.Hard, c.Swap), c.High) {
		delete(l.below, c.ID)
		return Action{}
	}
	since, known := l.below[c.ID]
	if !known {
		since = sc.Now
		l.below[c.ID] = since
	}
	if sc.Now-since < restoreAfter || past(sc.Now, l.lifted[c.ID]) < brakeRest {
		return Action{}
	}
	return c.about(Restore, p, "it does with less than its memory.high of "+bytesText(c.High)+" again")
}

// about is an action on the memory.high that the user wants.
func (c *Candidate) about(do Deed, p *Spot, why string) Action {
	return Action{Do: do, Session: c.ID, Name: c.Name, Place: p.Place, High: c.High, Reason: why + "; " + bytesText(sum(c.Hard, c.Swap)) + " is in use"}
}

// parking says, for a warning, what comes of a session that is parked at the memory.high
// that its user wants, and how to prevent it; not ok if it is not.
func (l *Ladder) parking(sc *Scene, place int) (next, prevent string, ok bool) {
	p := &sc.Places[place]
	for i := range sc.Sessions {
		c := &sc.Sessions[i]
		if p.Kind != KindSession || c.ID != p.Session || c.High == Infinity || p.Parked == 0 {
			continue
		}
		switch {
		case c.May&MayBrake == 0 || c.Protected:
			next = "the kernel kills nothing and lets it stand like that for as long as it takes: nothing is done about it"
		case !sc.easyAround(c, place):
			next = "memory.high is lifted when there is room around it"
		default:
			next = "memory.high is lifted in " + about(max(0, parkMost-p.Parked).Seconds())
		}
		raised := Suggest(max(p.Peak, c.High))
		if n, known := raised.Value(); known && n >= p.Max {
			raised = Max()
		}
		return next, fmt.Sprintf("end what it does not need or raise it: sessionbox limit %s --memory-high %v", p.Name, raised), true
	}
	return "", "", false
}
