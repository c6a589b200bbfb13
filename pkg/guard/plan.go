package guard

import (
	"slices"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/session"
)

// plan is what a guard knows: which sessions there are, what is awaited of them, and
// what is to be done about which. It asks nobody and has no clock.
type plan struct {
	sessions map[string]*watched
	// waiting are the sessions that want to know of the end of a process: one owner
	// may have hundreds.
	waiting map[proc.ID]map[string]bool
}

// watched is one session.
type watched struct {
	session.Watch
	// cause is when the oldest thing happened that was not acted on yet, 0 if nothing.
	cause time.Duration
	// busy says that it is being reconciled.
	busy bool
	// tries counts failures in a row; nothing is done before the time after.
	tries int
	after time.Duration
	// ended are those of Ends whose end was noticed: nothing more is to come of them.
	ended map[proc.ID]bool
}

func newPlan() *plan {
	return &plan{sessions: map[string]*watched{}, waiting: map[proc.ID]map[string]bool{}}
}

// job is a session to be reconciled, and since when that is so.
type job struct {
	id    string
	cause time.Duration
}

// set takes what is known of a session. It gives the processes that nobody waited for
// before, and those that nobody waits for any more.
func (p *plan) set(w session.Watch) (hold, release []proc.ID) {
	s := p.sessions[w.Session]
	if s == nil {
		s = &watched{ended: map[proc.ID]bool{}}
		p.sessions[w.Session] = s
	}
	old := s.Ends
	s.Watch = w
	for _, id := range w.Ends {
		if s.ended[id] {
			continue
		}
		if p.waiting[id] == nil {
			p.waiting[id] = map[string]bool{}
			hold = append(hold, id)
		}
		p.waiting[id][w.Session] = true
	}
	for _, id := range old {
		if !slices.Contains(w.Ends, id) {
			delete(s.ended, id)
			release = append(release, p.unwait(id, w.Session)...)
		}
	}
	return hold, release
}

func (p *plan) unwait(id proc.ID, session string) (release []proc.ID) {
	if p.waiting[id] == nil {
		return nil
	}
	delete(p.waiting[id], session)
	if len(p.waiting[id]) > 0 {
		return nil
	}
	delete(p.waiting, id)
	return []proc.ID{id}
}

// drop forgets a session that is no more.
func (p *plan) drop(id string) (release []proc.ID) {
	s := p.sessions[id]
	if s == nil {
		return nil
	}
	for _, e := range s.Ends {
		release = append(release, p.unwait(e, id)...)
	}
	delete(p.sessions, id)
	return release
}

// end notes that a process has ended, for all sessions that wait for it.
func (p *plan) end(id proc.ID, now time.Duration) {
	for name := range p.waiting[id] {
		s := p.sessions[name]
		s.ended[id] = true
		s.tries, s.after = 0, 0 // this is news
		if s.cause == 0 {
			s.cause = now
		}
	}
	delete(p.waiting, id)
}

// news notes that there is something to be done about a session.
func (p *plan) news(session string, now time.Duration) {
	if s := p.sessions[session]; s != nil && s.cause == 0 {
		s.cause = now
	}
}

// begin gives the sessions to be reconciled now, those that wait longest first, at
// most room of them. They are busy until [plan.finish].
func (p *plan) begin(now time.Duration, room int) []job {
	var jobs []job
	for id, s := range p.sessions {
		if at := s.at(); at != 0 && at <= now {
			jobs = append(jobs, job{id, s.since()})
		}
	}
	slices.SortFunc(jobs, func(a, b job) int { return int(a.cause - b.cause) })
	jobs = jobs[:min(len(jobs), room)]
	for _, j := range jobs {
		s := p.sessions[j.id]
		s.busy, s.cause = true, 0
	}
	return jobs
}

// finish notes how the reconcile of a session went, after what is known of it now was
// [plan.set]. A session that still is due was not done with: it must not be tried in
// a circle.
func (p *plan) finish(j job, now time.Duration, failed bool) {
	s := p.sessions[j.id]
	if s == nil || !s.busy {
		return // it is gone
	}
	s.busy = false
	if failed && s.cause == 0 {
		s.cause = j.cause
	}
	if failed || s.Due != 0 && s.Due <= now {
		s.after = now + backoff(s.tries)
		s.tries++
		return
	}
	s.tries, s.after = 0, 0
}

// firstFailure says whether a session is there and has not failed before.
func (p *plan) firstFailure(id string) bool {
	s := p.sessions[id]
	return s != nil && s.tries == 0
}

// backoff is how long to wait after that many failures in a row before.
func backoff(tries int) time.Duration {
	const least, most = time.Second, time.Minute
	if tries > 5 {
		return most
	}
	return min(most, least<<tries)
}

// at is when something is to be done about a session, 0 if nothing is.
func (s *watched) at() time.Duration {
	switch {
	case s.busy:
		return 0
	case s.cause != 0:
		return max(s.cause, s.after)
	case s.Due != 0:
		return max(s.Due, s.after)
	}
	return 0
}

// since is when the reason for that came up.
func (s *watched) since() time.Duration {
	if s.cause != 0 {
		return s.cause
	}
	return s.Due
}

// next is when something is to be done about the first session, 0 if nothing is.
func (p *plan) next() time.Duration {
	var first time.Duration
	for _, s := range p.sessions {
		first = sooner(first, s.at())
	}
	return first
}

// policies counts the sessions that somebody must watch.
func (p *plan) policies() int {
	n := 0
	for _, s := range p.sessions {
		if s.Policy {
			n++
		}
	}
	return n
}

// sooner is the earlier of two times, of which 0 is never.
func sooner(a, b time.Duration) time.Duration {
	switch {
	case a == 0:
		return b
	case b == 0:
		return a
	}
	return min(a, b)
}
