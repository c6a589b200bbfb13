package guard

import (
	"time"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// glance is what is known of the machine between the looks at places: what any session
// takes is missing there, so that one look shows whether one that was at rest has stirred.
type glance struct {
	due   time.Duration // 0: nobody is in need of it
	at    time.Duration // of the last one
	left  uint64        // what was available then
	quiet time.Duration // the last one until which next to nothing had been taken
}

// calm is how much may be missing of the machine's memory from one glance to the next for
// nobody to have begun anything.
const calm = 8 << 20

// look takes a glance, if one is due, and has those looked at who may have stirred.
func (m *memory) look(now, horizon time.Duration) {
	g := &m.glance
	if g.due == 0 || g.due > horizon {
		return
	}
	left, err := m.src.Available()
	if err != nil {
		*g = glance{} // the host's sample says so
		return
	}
	missing := g.left - min(g.left, left)
	if now-g.at >= restTime {
		missing = 0 // there was none for a while
	}
	if missing > calm {
		for _, s := range m.sessions {
			if s.rests() && memlimit.Stirs(s.verdict.Headroom, missing) {
				s.judge.Calm(g.quiet)
				s.due = min(s.due, now)
			}
		}
	} else {
		g.quiet = now
	}
	g.at, g.left = now, left
	g.due = m.nextGlance(now)
}

// rests says whether a session has a limit and may start to fill it unseen.
func (s *spot) rests() bool {
	return s.known && s.watch.Policy && !s.sample.Frozen && s.verdict.Headroom != memlimit.Infinity
}

// nextGlance is when the next one is due, 0 if nobody is in need of it.
func (m *memory) nextGlance(now time.Duration) time.Duration {
	var every time.Duration
	for _, s := range m.sessions {
		if s.rests() {
			every = sooner(every, memlimit.Glance(s.verdict.Headroom))
		}
	}
	if every == 0 {
		return 0
	}
	return now + every
}
