package memlimit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Deed is what the ladder has somebody do.
type Deed string

// The deeds.
const (
	Hold      Deed = "hold"    // let new sessions wait
	Release   Deed = "release" // and open them after all
	Hibernate Deed = "hibernate"
	Arm       Deed = "arm"     // set memory.high to Action.High, of a session that is below it
	Brake     Deed = "brake"   // and of one that is about to run into its ceiling
	Lift      Deed = "lift"    // take memory.high away
	Restore   Deed = "restore" // set memory.high again, to what its user wants
	Freeze    Deed = "freeze"
	Thaw      Deed = "thaw"
	Close     Deed = "close"
	Helpless  Deed = "helpless" // say that nothing may be done
)

// Action is one thing to do, and why.
type Action struct {
	Do      Deed   `json:"do"`
	Session string `json:"session,omitempty"` // id
	Name    string `json:"name,omitempty"`
	Place   Place  `json:"place"` // that is in trouble
	Reason  string `json:"reason"`
	// High is what memory.high is set to, by Arm, Brake and Restore; of a Lift it is the
	// user's memory.high that is lifted, 0 for the brake.
	High uint64 `json:"high_bytes,omitempty"`
	// Grace is from SIGTERM to SIGKILL, for a close.
	Grace time.Duration `json:"-"`
}

// Rules are those of the ladder that are not of one session. The zero value holds
// nobody up.
type Rules struct {
	Hold bool // new sessions may be held
	// IdleAfter is when a session may be hibernated; 0 is ten minutes.
	IdleAfter time.Duration
	// TakeAttached allows to touch a session that somebody is attached to, if it is
	// beyond its own ceiling.
	TakeAttached bool
}

// Scene is everything at one time.
type Scene struct {
	Now      time.Duration
	Places   []Spot
	Sessions []Candidate
}

// Spot is a place with the verdict on it.
type Spot struct {
	Place
	*Verdict
}

func (s *Spot) shared() bool { return s.Kind != KindSession && s.Kind != KindTask }

// Cooldowns and bounds of the ladder, facts/memory.md §3.6.
const (
	idleAfter    = 10 * time.Minute
	restHib      = 3 * time.Second // between two hibernations
	restThaw     = 3 * time.Second
	restClose    = 15 * time.Second // measure again before another: kills come in storms
	restFreeze   = 500 * time.Millisecond
	freezeHelps  = 5 * time.Second  // after a freeze, before a close
	standstill   = 10 * time.Second // of an emergency that does not get worse
	brakeMost    = 10 * time.Second
	brakeOver    = 5 * time.Second // on top of that, for what is done next to be done
	brakeTry     = 3 * time.Second // between two tries to set or lift one
	brakeLatest  = time.Minute     // of a brake at which nobody is seen to stand
	brakeRest    = time.Minute     // after a lift
	thawLatest   = 2 * time.Minute
	thawAgain    = 30 * time.Second
	thawRoom     = .90
	sayHelpless  = time.Minute
	failLeast    = time.Second // after a deed that failed
	failMost     = time.Minute
	graceHurried = 2 * time.Second
	graceCalm    = 10 * time.Second
)

// Ladder decides what is done about places that run out of memory, one step after
// the other, and takes it back when it is over. It does nothing itself, asks nobody
// and has no clock: the same scenes give the same actions. What it has done is told
// to it again in each scene (Candidate), so that a new one can carry on; what it
// keeps are cooldowns.
type Ladder struct {
	Rules Rules

	holding                          bool
	hibernated, froze, thawed, ended time.Duration
	helpless                         map[Place]time.Duration
	since                            map[Place]time.Duration // of an emergency
	lifted, braked, tried            map[string]time.Duration
	below                            map[string]time.Duration // since when a lifted memory.high would do again
	easy                             map[string]time.Duration // since when what is around a frozen session is at ease
	times                            map[string]int           // how often it was frozen
	failed                           map[string]map[Deed]failure
}

// failure is a deed that could not be done, how often in a row, and until when it is not
// tried again.
type failure struct {
	n     int
	until time.Duration
}

// Told says how it went with an action. What failed is tried again after one second, then
// two, up to a minute; what would come next takes its place meanwhile. Nothing does where a
// session is to be let go: it stalls until that is done.
func (l *Ladder) Told(a Action, failed bool, now time.Duration) {
	if !failed {
		delete(l.failed[a.Session], a.Do)
		return
	}
	if l.failed == nil {
		l.failed = map[string]map[Deed]failure{}
	}
	if l.failed[a.Session] == nil {
		l.failed[a.Session] = map[Deed]failure{}
	}
	f := l.failed[a.Session][a.Do]
	most := failMost
	if a.Do == Lift || a.Do == Thaw {
		most = brakeTry
	}
	f.until = now + min(most, failLeast<<min(f.n, 10))
	f.n++
	l.failed[a.Session][a.Do] = f
	l.Undone(a) // nothing was gained by it that would have to be waited for
}

// Undone says that an action was not even begun, as something else was being done to the
// session: nothing was gained, and nothing has failed.
func (l *Ladder) Undone(a Action) {
	switch a.Do {
	case Freeze:
		l.froze = 0
		if n := l.times[a.Session]; n > 0 {
			l.times[a.Session] = n - 1
		}
	case Close:
		l.ended = 0
	}
}

// fails says whether a deed could not be done just now.
func (l *Ladder) fails(c *Candidate, do Deed, now time.Duration) bool {
	return now < l.failed[c.ID][do].until
}

// Decide gives what is to be done now. At most one session is frozen, one closed, one
// hibernated and one thawed at a time.
func (l *Ladder) Decide(sc *Scene) []Action {
	if l.easy == nil {
		l.since = map[Place]time.Duration{}
		l.helpless, l.lifted, l.easy, l.times = map[Place]time.Duration{}, map[string]time.Duration{}, map[string]time.Duration{}, map[string]int{}
		l.braked, l.tried, l.below = map[string]time.Duration{}, map[string]time.Duration{}, map[string]time.Duration{}
	}
	var out []Action
	l.hold(sc, &out)
	worst := make([]int, len(sc.Places))
	for i := range worst {
		worst[i] = i
	}
	slices.SortStableFunc(worst, func(a, b int) int {
		pa, pb := &sc.Places[a], &sc.Places[b]
		return cmp.Or(cmp.Compare(pb.Now, pa.Now), cmp.Compare(pa.Headroom, pb.Headroom))
	})
	// Of a session one thing is done at a time: who is stopped needs no brake.
	var stops []Action
	acted := slices.ContainsFunc(worst, func(p int) bool { return l.stop(sc, p, &stops) })
	stopped := func(id string) bool {
		return slices.ContainsFunc(stops, func(a Action) bool { return a.Session == id && a.Do != Helpless })
	}
	for _, p := range worst {
		l.hibernate(sc, p, &out)
		if !stopped(sc.Places[p].Session) {
			l.brake(sc, p, &out)
			l.high(sc, p, &out)
		}
	}
	out = append(out, stops...)
	if !acted {
		l.thaw(sc, &out)
	}
	l.tidy(sc)
	return out
}

// Holding says whether new sessions wait.
func (l *Ladder) Holding() bool { return l.holding }

// hold lets new sessions wait while a place that they would share is critical, or
// something stands still for it.
func (l *Ladder) hold(sc *Scene, out *[]Action) {
	var why string
	var where Place
	if l.Rules.Hold {
		for i := range sc.Places {
			if p := &sc.Places[i]; p.shared() && p.Level >= Critical {
				why, where = p.Name+" is "+p.Level.String(), p.Place
			}
		}
		for i := range sc.Sessions {
			if c := &sc.Sessions[i]; c.FrozenAt != 0 && why == "" {
				why = "session " + c.Name + " stands still for want of memory"
			}
		}
	}
	switch {
	case why != "" && !l.holding:
		*out = append(*out, Action{Do: Hold, Place: where, Reason: why})
	case why == "" && l.holding:
		*out = append(*out, Action{Do: Release, Reason: "there is memory again"})
	}
	l.holding = why != ""
}

// hibernate frees what an idle session holds while there is room in swap: also when
// nothing runs out yet, but RAM that others share is full, and the kernel would swap
// out who is at work, too.
func (l *Ladder) hibernate(sc *Scene, place int, out *[]Action) {
	p := &sc.Places[place]
	full := p.shared() && p.RAM >= thresholds()[Warn].host
	if p.Now < Warn && !full || p.SwapRoom == 0 || past(sc.Now, l.hibernated) < restHib {
		return
	}
	after := l.Rules.IdleAfter
	if after == 0 {
		after = idleAfter
	}
	able := sc.victims(place, MayHibernate, &l.Rules, func(c *Candidate) bool {
		return !l.fails(c, Hibernate, sc.Now) && !c.Frozen && !c.Hibernated && !c.InUse && !c.Attached && c.Idle >= after && c.Hard >= 1<<20 && fits(c.Hard, p.SwapRoom)
	})
	if len(able) > 0 {
		c := able[0]
		l.hibernated = sc.Now
		*out = append(*out, c.action(Hibernate, p, fmt.Sprintf("it is idle for %s and holds %s", about(c.Idle.Seconds()), bytesText(c.Hard))))
	}
}

// brake arms the brake of a session that has a ceiling: below it the brake does nothing,
// and who bursts trips it, which wakes us and wins seconds. It is taken away again from
// who stands at it: what cannot be reclaimed never gets out of it by itself.
func (l *Ladder) brake(sc *Scene, place int, out *[]Action) {
	p := &sc.Places[place]
	if p.Kind != KindSession || p.Tier != TierCgroup {
		return
	}
	for i := range sc.Sessions {
		c := &sc.Sessions[i]
		if c.ID != p.Session || p.Max == Infinity && c.Brake == Infinity || past(sc.Now, l.tried[c.ID]) < brakeTry {
			continue
		}
		high := BrakeAt(p.Max)
		may := c.May&MayBrake != 0 && c.High == Infinity && !c.Protected && !c.Frozen
		var a Action
		switch {
		case c.Brake != Infinity:
			if a = l.unbrake(sc, c, place, high, may); a.Do == "" {
				continue
			}
		case !may || past(sc.Now, l.lifted[c.ID]) < brakeRest:
			continue
		case c.Hard < high:
			a = c.action(Arm, p, "it is slowed from "+bytesText(high)+" on")
		case p.Now >= Critical && brakeHelps(c, p, high):
			a = c.action(Brake, p, "")
		default:
			continue
		}
		if l.fails(c, a.Do, sc.Now) {
			continue
		}
		l.tried[c.ID] = sc.Now
		delete(l.braked, c.ID)
		if a.Do == Lift {
			l.lifted[c.ID] = sc.Now
		} else {
			a.High = high
		}
		*out = append(*out, a)
	}
}

// unbrake says what is to be done about a brake that is set, nothing if it may stay.
// Where stalls are not counted how long the session is critical decides.
func (l *Ladder) unbrake(sc *Scene, c *Candidate, place int, high uint64, may bool) Action {
	p := &sc.Places[place]
	if p.Level < Critical {
		delete(l.braked, c.ID)
	} else if _, known := l.braked[c.ID]; !known {
		l.braked[c.ID] = sc.Now
	}
	since, critical := l.braked[c.ID]
	switch {
	case c.Frozen && c.FrozenAt != 0:
		return c.action(Lift, p, "it stands still")
	case c.Frozen: // by somebody: it takes nothing
	case !may:
		return c.action(Lift, p, "it may not be braked any more")
	case p.Max == Infinity:
		return c.action(Lift, p, "it has no ceiling any more")
	case BrakeMoved(c.Brake, p.Max):
		do := Lift
		if c.Hard < high {
			do = Arm
		}
		return c.action(do, p, "its ceiling is another one now")
	case p.Throttled >= brakeMost && !l.stops(sc, c, place), p.Throttled >= brakeMost+brakeOver:
		// else it is frozen, or closed, now
		return c.action(Lift, p, fmt.Sprintf("it stood at its brake for %s", about(p.Throttled.Seconds())))
	case p.Throttled == 0 && critical && sc.Now-since >= brakeLatest:
		return c.action(Lift, p, "it is braked for "+about(brakeLatest.Seconds()))
	}
	return Action{}
}

// stops says whether a session is rather frozen, or closed, than let run on.
func (l *Ladder) stops(sc *Scene, c *Candidate, place int) bool {
	if c.Spared(sc.Now, &l.Rules) != "" {
		return false
	}
	return c.May&MayFreeze != 0 && !l.fails(c, Freeze, sc.Now) ||
		c.May&MayClose != 0 && !l.fails(c, Close, sc.Now) && !l.roomy(sc, c, place)
}

// roomy says whether all places around a session can take it up to its own ceiling.
func (l *Ladder) roomy(sc *Scene, c *Candidate, own int) bool {
	for _, i := range c.Under {
		if p := &sc.Places[i]; i != own && (p.Level >= Warn || p.Headroom <= sc.Places[own].Headroom) {
			return false
		}
	}
	return true
}

// stop freezes a session, or closes one where that did not or cannot help. It says
// whether it did. A place that is nearly full and stays like that is left alone, but
// for one that others depend on, after a while, as a last resort.
func (l *Ladder) stop(sc *Scene, place int, out *[]Action) bool {
	p := &sc.Places[place]
	stuck := p.Throttled >= brakeMost
	filling := p.Full > 0 && p.Full < thresholds()[Critical].left
	bad := p.Now == Emergency || p.Now == Critical && (p.shared() && filling || stuck)
	if !bad {
		delete(l.since, p.Place)
		return false
	}
	since, known := l.since[p.Place]
	if !known {
		since = sc.Now
		l.since[p.Place] = since
	}
	driven := p.Full > 0 || p.Thrashing || stuck
	if driven && l.freeze(sc, place, out) {
		return true
	}
	if p.At < max(l.froze, l.ended) {
		return false // it is not known yet what was gained
	}
	wait := !driven && (!p.shared() || sc.Now-since < standstill)
	if wait || past(sc.Now, l.froze) < freezeHelps && !l.dire(p) || past(sc.Now, l.ended) < restClose {
		return false
	}
	if able := l.closable(sc, place); len(able) > 0 && (p.Now == Emergency || stuck) {
		a := able[0].action(Close, p, "")
		a.Grace = graceCalm
		if p.Now == Emergency {
			a.Grace = graceHurried
		}
		l.ended = sc.Now
		*out = append(*out, a)
		return true
	}
	l.admit(sc, place, out)
	return false
}

// dire says that there is no time to see what a freeze does.
func (l *Ladder) dire(p *Spot) bool { return p.Since.Max > 0 || p.Full > 0 && p.Full < time.Second }

// closable gives those that may be closed. One that stands still below its own ceiling
// harms nobody.
func (l *Ladder) closable(sc *Scene, place int) []*Candidate {
	shared := sc.Places[place].shared()
	return sc.victims(place, MayClose, &l.Rules, func(c *Candidate) bool { return (shared || !c.Frozen) && !l.fails(c, Close, sc.Now) })
}

// freeze stops one session: of those that share a place one after the other, spaced
// so that half of them are stopped when it would be full. It says whether it is at it.
func (l *Ladder) freeze(sc *Scene, place int, out *[]Action) bool {
	p := &sc.Places[place]
	able := l.freezable(sc, place)
	if len(able) == 0 {
		return false
	}
	if p.At < l.froze {
		return true // it is not known yet what the last one did
	}
	space := restFreeze
	if p.Now < Emergency {
		space = max(space, p.Full/time.Duration((len(able)+1)/2))
	}
	if past(sc.Now, l.froze) < space && !l.dire(p) {
		return true // it is seen to
	}
	c := able[0]
	l.froze = sc.Now
	l.times[c.ID]++
	*out = append(*out, c.action(Freeze, p, ""))
	return true
}

// admit says, now and then, that something would have to be done and may not.
func (l *Ladder) admit(sc *Scene, place int, out *[]Action) {
	p := &sc.Places[place]
	if p.Now < Emergency || past(sc.Now, l.helpless[p.Place]) < sayHelpless {
		return
	}
	var why string
	touchable, frozen := 0, 0
	for i := range sc.Sessions {
		c := &sc.Sessions[i]
		if !slices.Contains(c.Under, place) || c.May&(MayFreeze|MayClose) == 0 {
			continue
		}
		touchable++
		if s := c.Spared(sc.Now, &l.Rules); s != "" {
			why = "session " + c.Name + ": " + s
		} else if why == "" && (l.fails(c, Freeze, sc.Now) || l.fails(c, Close, sc.Now)) {
			why = "session " + c.Name + ": what was tried has failed"
		}
		if c.Frozen {
			frozen++
		}
	}
	if touchable == 0 || frozen == touchable {
		return // nobody asked for it, or all that could be done was
	}
	l.helpless[p.Place] = sc.Now
	if why == "" {
		why = "the oldest session is left to run, and none may be closed"
	}
	*out = append(*out, Action{Do: Helpless, Place: p.Place, Session: p.Session, Reason: describe(p) + ", and none of its sessions may be touched: " + why})
}

// thaw lets the session run again that stands still for longest, when everything
// around it is at ease and could take it back.
func (l *Ladder) thaw(sc *Scene, out *[]Action) {
	var first *Candidate
	for i := range sc.Sessions {
		c := &sc.Sessions[i]
		if c.FrozenAt == 0 || !c.Frozen {
			delete(l.easy, c.ID)
			continue
		}
		if l.fails(c, Thaw, sc.Now) {
			continue
		}
		easy, fit := true, true
		for _, k := range c.Under {
			p := &sc.Places[k]
			easy = easy && p.Level < Warn
			back := 1 - float64(p.Headroom-min(p.Headroom, c.Swap))/float64(p.Max)
			fit = fit && (p.Max == Infinity || back < thawRoom)
		}
		if !easy {
			delete(l.easy, c.ID)
			continue
		}
		since, known := l.easy[c.ID]
		if !known {
			since = sc.Now
			l.easy[c.ID] = since
		}
		// Who took it all again after a thaw waits longer each time.
		wait := min(thawLatest, time.Duration(max(0, l.times[c.ID]-1))*thawAgain)
		if (fit && sc.Now-since >= wait || sc.Now-since >= thawLatest) && (first == nil || c.FrozenAt < first.FrozenAt) {
			first = c
		}
	}
	if first == nil || past(sc.Now, l.thawed) < restThaw {
		return
	}
	l.thawed = sc.Now
	delete(l.easy, first.ID)
	*out = append(*out, Action{Do: Thaw, Session: first.ID, Name: first.Name, Reason: "there is memory again"})
}

// tidy forgets sessions and places that are no more.
func (l *Ladder) tidy(sc *Scene) {
	gone := func(id string) bool {
		return !slices.ContainsFunc(sc.Sessions, func(c Candidate) bool { return c.ID == id })
	}
	maps.DeleteFunc(l.lifted, func(id string, _ time.Duration) bool { return gone(id) })
	maps.DeleteFunc(l.braked, func(id string, _ time.Duration) bool { return gone(id) })
	maps.DeleteFunc(l.below, func(id string, _ time.Duration) bool { return gone(id) })
	maps.DeleteFunc(l.tried, func(id string, _ time.Duration) bool { return gone(id) })
	maps.DeleteFunc(l.easy, func(id string, _ time.Duration) bool { return gone(id) })
	maps.DeleteFunc(l.times, func(id string, _ int) bool { return gone(id) })
	maps.DeleteFunc(l.failed, func(id string, _ map[Deed]failure) bool { return gone(id) })
	none := func(p Place, _ time.Duration) bool {
		return !slices.ContainsFunc(sc.Places, func(s Spot) bool { return s.Place == p })
	}
	maps.DeleteFunc(l.helpless, none)
	maps.DeleteFunc(l.since, none)
}

// past is the time since something, for ever if it never was.
func past(now, then time.Duration) time.Duration {
	if then == 0 {
		return maxDuration
	}
	return now - then
}

func (c *Candidate) action(do Deed, p *Spot, why string) Action {
	reason := describe(p)
	if why != "" {
		reason = why + "; " + reason
	}
	return Action{Do: do, Session: c.ID, Name: c.Name, Place: p.Place, Reason: reason}
}

// describe says in a few words how it is with a place.
func describe(p *Spot) string {
	text := fmt.Sprintf("%s is at %d %% of %s", who(p.Place), percent(p.RAM), bytesText(p.Max))
	if p.Max == Infinity {
		text = who(p.Place) + " has " + bytesText(p.Hard)
	}
	if p.Full > 0 {
		text += ", full in about " + about(p.Full.Seconds())
	}
	if p.Throttled > 0 {
		text += ", throttled for " + about(p.Throttled.Seconds())
	}
	return text
}
