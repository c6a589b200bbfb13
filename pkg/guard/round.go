package guard

import (
	"errors"
	"time"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
)

// round looks at the places that are due: at the host first, as its room in swap is
// everybody's, and judges from the inside out, as what is around something is told
// what that can still take.
func (m *memory) round(now time.Duration) {
	// What is due within the next moment is looked at now.
	horizon := now + grid/2
	m.look(now, horizon)
	any := false
	for _, s := range m.order {
		any = any || s.due <= horizon
	}
	if !any {
		return
	}
	if !m.host.known || m.host.due <= horizon || now-m.host.sample.At >= whoTime {
		m.readHost()
	}
	looked := false
	m.looking.Lock()
	for _, s := range m.order {
		if s.due > horizon {
			continue
		}
		if s == m.host {
			s.forced, s.whole = now, false
			if s.failed {
				s.due = now + restTime
				continue
			}
		} else if !m.read(s, now) {
			continue
		}
		m.judge(s, now)
		looked = true
	}
	m.looking.Unlock()
	if !looked {
		return
	}
	for _, s := range m.order {
		if s.known && s.verdict.At >= now {
			m.hear(s)
		}
	}
	m.decide()
	m.glance.due = sooner(m.glance.due, m.nextGlance(now))
}

func (m *memory) readHost() {
	h := m.host
	var err error
	m.looking.Lock()
	m.swapFree, m.worth, err = m.src.Host(&h.sample)
	m.looking.Unlock()
	if err != nil && !h.failed {
		m.log.Warn("measure the memory of the host", "err", err)
	}
	h.failed = err != nil
}

// read takes a sample. What cannot be read is tried again later: it is gone, and soon
// somebody says so, or it is for the moment.
func (m *memory) read(s *spot, now time.Duration) bool {
	if !s.whole && m.atRest(s, now) {
		return true
	}
	if s.whole {
		s.forced = now
	}
	var got memlimit.Sample
	err := s.meter.Sample(&got)
	if err != nil {
		if !s.failed && !errors.Is(err, errGone) {
			m.log.Warn("measure memory", "of", s.Name, "err", err)
		}
		s.failed, s.due = true, now+restTime
		return false
	}
	if was := s.sample.Demand(); !s.known || max(was, got.Demand())-min(was, got.Demand()) > stirs {
		s.moved = now
	}
	s.sample, s.failed, s.whole = got, false, false
	s.cost = got.Done - got.At
	m.spent += s.cost
	s.work(now)
	if s.Kind == memlimit.KindSession {
		// One that the kernel does not enforce is warned of all the same.
		s.sample.Max = min(s.sample.Max, s.watch.Ceiling)
	}
	return true
}

// work looks whether a session that may be hibernated is busy: a command that nobody waits
// for is not in use, and may be at work.
func (s *spot) work(now time.Duration) {
	if s.watch.Steps&memlimit.MayHibernate == 0 || now-s.cpuAt < restTime {
		return
	}
	used, ok := s.meter.CPU()
	if !ok {
		return
	}
	if s.cpuAt != 0 && session.IsActive(used-s.cpu, now-s.cpuAt) {
		s.busy = now
	}
	s.cpu, s.cpuAt = used, now
}

// atRest says whether the sample before still holds, and brings it up to date.
func (m *memory) atRest(s *spot, now time.Duration) bool {
	if !s.known || s.verdict.Level > memlimit.OK || s.verdict.Throttled > 0 || s.verdict.Parked > 0 || now-s.moved < restTime { // a slope is made of true samples
		return false
	}
	room, limit := s.sample.SwapRoom, s.sample.Max
	if !s.meter.Still(&s.sample) {
		return false
	}
	s.sample.SwapRoom, s.sample.Max = room, limit
	return true
}

func (m *memory) judge(s *spot, now time.Duration) {
	memlimit.SpreadSwap(s.swap, m.swapFree, m.worth)
	s.sample.Bound = 0
	if len(s.inside) > 0 && s.known {
		s.sample.Bound = memlimit.RoomInside(&s.verdict, s.inside)
	}
	s.judge.Expect(s.wait + m.spent - s.spent) // measuring others takes its time, too
	s.verdict = s.judge.Observe(&s.sample)
	s.known = true
	next := min(s.verdict.Next, restTime)
	if s.sample.Tier == memlimit.TierProcesses {
		next = max(next, min(sumFactor*s.cost, restTime))
		if now-s.moved >= restTime && s.verdict.Level == memlimit.OK {
			next = max(next, sumTime)
		}
	}
	s.due = aligned(now, next)
	s.wait, s.spent = s.due-now, m.spent
	if s.verdict.Gap > 0 {
		m.log.Debug("nothing was known of a place for a while: its past is forgotten", "of", s.Name, "gap", s.verdict.Gap)
	}
	if s.Kind != memlimit.KindSession && s.verdict.Level >= memlimit.Warn { // whose is it?
		for _, o := range m.sessions {
			if at := max(now, o.sample.At+whoTime); at < o.due {
				o.due, o.whole = at, true
			}
		}
	}
}

// hear asks whether the verdict on a place is to be told.
func (m *memory) hear(s *spot) {
	if s.Kind == memlimit.KindSession && !s.watch.Warn {
		return
	}
	t, ok := m.crier.Hear(s.Place, &s.verdict)
	if !ok || m.told == nil {
		return
	}
	w := memlimit.NewWarning(t, s.Place, &s.verdict)
	if t.Change != memlimit.Cleared {
		sc, at := m.scene()
		if s.Kind == memlimit.KindSession {
			w.Name(hogsOf(s.meter.Processes()), nil)
		} else {
			w.Name(nil, m.hogs(s))
		}
		w.Next, w.Prevent = m.ladder.Intent(&sc, at[s])
	}
	m.told(&told{warning: w, quiet: t.Quiet, who: m.concerned(s, &w)})
}
