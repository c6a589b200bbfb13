package main

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/integration/membench/plan"
	"github.com/sessionbox/sessionbox/integration/membench/score"
	"golang.org/x/sys/unix"
)

// member is an actor as the player sees it.
type member struct {
	path, session string
	page          *page
	actor         plan.Actor
	fd            int // pidfd
	dead          bool
	looked        bool // at its rate
	reached       bool
	stood         time.Duration // the longest
}

// errNotYet says that an actor has not written who it is.
var errNotYet = errors.New("not yet")

func newMember(s *plan.Scenario, path string) (*member, error) {
	p, err := openPage(path, 0)
	if err != nil {
		return nil, err
	}
	pid := int(p.pid.Load())
	if pid == 0 {
		return nil, errors.Join(errNotYet, unix.Munmap(p.mem))
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, err
	}
	m := &member{path: path, session: sessionOf(path), page: p, fd: fd}
	actors := s.Outside
	if x := s.Session(m.session); x != nil {
		actors = x.Actors
	}
	parts := strings.Split(path, ".")
	i, err := strconv.Atoi(parts[len(parts)-2])
	if err != nil || i >= len(actors) {
		return nil, errors.New("a strange actor: " + path)
	}
	m.actor = actors[i]
	return m, nil
}

// gone says whether the process is no more.
func (m *member) gone() bool {
	fds := []unix.PollFd{{Fd: int32(m.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}

// growing says whether it takes memory at a rate that can be looked at.
func (m *member) growing() bool {
	return m.actor.Rate > 0 && m.actor.Steady > 0 && !m.looked
}

// look looks at all actors; it gives when the first was killed, 0 for none.
func (r *stage) look() (killed time.Duration) {
	now := clock()
	fds := make([]unix.PollFd, len(r.cast))
	for i, m := range r.cast {
		fds[i] = unix.PollFd{Fd: int32(m.fd), Events: unix.POLLIN}
	}
	if n, err := unix.Poll(fds, 0); err == nil && n > 0 {
		for i, m := range r.cast {
			if fds[i].Revents != 0 && !m.dead {
				m.dead = true
				r.died(m, now)
			}
		}
	}
	for _, m := range r.cast {
		if !m.dead {
			r.follow(m, now)
		}
	}
	return r.killed
}

func (r *stage) died(m *member, now time.Duration) {
	if r.closing(m.session) {
		return // it was told to
	}
	if r.killed == 0 {
		r.killed = now
	}
	session := m.session
	if session == outside {
		session = ""
	}
	r.tape.sayAt(now, score.Record{What: score.Died, Session: session, PID: int(m.page.pid.Load()), N: int(m.page.taken.Load() / mib)})
}

func (r *stage) follow(m *member, now time.Duration) {
	taken := int(m.page.taken.Load())
	if m.growing() && taken >= m.actor.Steady*mib {
		m.looked = true
		took := now - r.begun - m.actor.After
		ratio := float64(taken-m.actor.First*mib) / mib / m.actor.Rate / took.Seconds()
		r.tape.sayAt(now, score.Record{What: score.Rate, Session: m.session, PID: int(m.page.pid.Load()), Ratio: ratio, N: taken / mib})
	}
	if !m.reached && m.page.done.Load() != 0 {
		m.reached = true
		r.tape.sayAt(now, score.Record{What: score.Reached, Session: m.session, N: taken / mib})
	}
	m.stall(now)
}
