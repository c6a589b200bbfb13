package memlimit

import (
	"cmp"
	"math/bits"
	"slices"
	"time"
)

// Candidate is a session as the ladder sees it. Only what lies in the box of a
// session can be one: the guard, who started it, the user's manager and login shells
// never are.
type Candidate struct {
	ID, Name string
	Under    []int // the places of the Scene that it is charged to, its own included

	Hard, Swap, Soft, Anon uint64
	Slope                  float64 // bytes per second
	Ceiling                uint64  // its own, whether in force or not; Infinity for none

	May       Steps // what may be done to it
	Age, Idle time.Duration
	InUse     bool // a command that somebody waits for runs in it
	Attached  bool // a person has it in front
	Protected bool // never to be touched

	Frozen     bool          // by whomever
	FrozenAt   time.Duration // when the ladder froze it; 0: it did not
	ThawedAt   time.Duration // when somebody thawed it by hand; 0: never
	Hibernated bool
	Brake      uint64 // memory.high as the ladder has set it; Infinity for none
	High       uint64 // memory.high as its user wants it; Infinity for none
	Lifted     bool   // and the ladder has lifted that
}

// Holds adds a session that is inside: what is done to the one is done to the other. The age,
// by which the oldest is let on, stays its own.
func (c *Candidate) Holds(inner *Candidate) {
	c.Protected = c.Protected || inner.Protected
	c.Attached = c.Attached || inner.Attached
	c.InUse = c.InUse || inner.InUse
	c.Idle = min(c.Idle, inner.Idle)
	c.ThawedAt = max(c.ThawedAt, inner.ThawedAt)
}

// Limits of what is touched.
const (
	tooYoung   = 10 * time.Second
	thawGrace  = 30 * time.Second // who thaws what was frozen wants to see it run
	lookAhead  = 30               // seconds of growth that count as held already
	worthwhile = 4                // a session is no help that holds less than a fourth of the biggest
)

// weight is what a session will hold soon.
func (c *Candidate) weight() uint64 {
	return sum(c.Hard, scale(1, max(0, min(c.Slope, 1<<40))*lookAhead))
}

// over is how far it is beyond its own ceiling, as a ratio; 0 within.
func (c *Candidate) over() float64 {
	if c.Ceiling == Infinity || c.Ceiling == 0 || c.Hard <= c.Ceiling {
		return 0
	}
	return float64(c.Hard) / float64(c.Ceiling)
}

// Spared says why a session is not touched at all, "" if it may be.
func (c *Candidate) Spared(now time.Duration, r *Rules) string {
	switch {
	case c.Protected:
		return "it is protected"
	case c.Attached && !(r.TakeAttached && c.over() > 0):
		return "somebody is attached to it"
	case c.Age < tooYoung:
		return "it was opened just now"
	case c.ThawedAt != 0 && now-c.ThawedAt < thawGrace:
		return "it was thawed by hand just now"
	}
	return ""
}

// Order sorts sessions, those first that something is to be done to first:
//
//   - one beyond its own ceiling, by how far;
//   - the biggest in half a minute, in coarse steps: half as much again is more;
//   - who was idle for longest, in minutes;
//   - the newest.
//
// Neither pressure, which marks the victim, nor page cache has a say.
func Order(all []*Candidate) {
	slices.SortStableFunc(all, func(a, b *Candidate) int {
		return cmp.Or(
			cmp.Compare(b.over(), a.over()),
			cmp.Compare(magnitude(b.weight()), magnitude(a.weight())),
			cmp.Compare(b.Idle/time.Minute, a.Idle/time.Minute),
			cmp.Compare(a.Age, b.Age),
			cmp.Compare(a.ID, b.ID),
		)
	})
}

// magnitude counts half octaves, from 16 MiB on: what is nearer to each other is the
// same. It is a grid, as an order must not turn in circles.
func magnitude(n uint64) int {
	n >>= 24
	if n == 0 {
		return 0
	}
	top := bits.Len64(n)
	half := 0
	if top > 1 && n&(1<<(top-2)) != 0 {
		half = 1
	}
	return 2*top + half
}

// victims gives those of a place that may be touched and are of use, in order. Those
// in use are left out while others would be of help: an idle dwarf beside a busy
// giant is none.
func (sc *Scene) victims(place int, may Steps, r *Rules, of func(*Candidate) bool) []*Candidate {
	var all []*Candidate
	var most uint64
	for i := range sc.Sessions {
		c := &sc.Sessions[i]
		if slices.Contains(c.Under, place) && c.May&may != 0 && of(c) && c.Spared(sc.Now, r) == "" {
			all = append(all, c)
			most = max(most, c.weight())
		}
	}
	idle := func(c *Candidate) bool { return !c.InUse && c.weight() >= most/worthwhile }
	if slices.ContainsFunc(all, idle) {
		all = slices.DeleteFunc(all, func(c *Candidate) bool { return c.InUse && c.over() == 0 })
	}
	Order(all)
	return all
}

// growingShare is the part of a place's growth that a session must have for a freeze
// of it to be worth something.
const growingShare = 1. / 50

// freezable gives those whose freeze would help: freezing gives no memory back, it
// stops who takes it. Of several the oldest is never one, so that somebody gets on
// (Buck2); alone it is, as long as others run.
func (l *Ladder) freezable(sc *Scene, place int) []*Candidate {
	p := &sc.Places[place]
	able := sc.victims(place, MayFreeze, &l.Rules, func(c *Candidate) bool {
		return !c.Frozen && !l.fails(c, Freeze, sc.Now) && (!p.shared() || p.Thrashing || c.Slope > 0 && c.Slope >= p.Slope*growingShare)
	})
	if !p.shared() {
		return able
	}
	var oldest *Candidate
	running := 0
	for i := range sc.Sessions {
		c := &sc.Sessions[i]
		if !slices.Contains(c.Under, place) || c.Frozen {
			continue
		}
		running++
		if oldest == nil || c.Age > oldest.Age {
			oldest = c
		}
	}
	if len(able) > 1 || running < 2 {
		able = slices.DeleteFunc(able, func(c *Candidate) bool { return c == oldest })
	}
	return able
}
