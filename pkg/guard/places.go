package guard

import (
	"cmp"
	"path/filepath"
	"slices"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
)

// learn takes in the sessions that have changed.
func (m *memory) learn() {
	m.mu.Lock()
	news := m.news
	if len(news) > 0 {
		m.news = map[string]*session.Watch{}
	}
	acted := m.acted
	m.acted = nil
	m.mu.Unlock()
	for _, o := range acted {
		m.after(o)
	}
	if len(news) == 0 {
		return
	}
	m.looking.Lock()
	defer m.looking.Unlock()
	linked := true
	for id, w := range news {
		s := m.sessions[id]
		if s != nil && w != nil && s.path == w.Memory.Place() && s.watch.Inode == w.Memory.Inode {
			s.take(w)
			continue
		}
		linked = false
		m.drop(s)
		if w != nil && w.Memory.Place() != "" {
			m.follow(id, w)
		}
	}
	if !linked {
		m.link()
	}
}

// after looks at a session anew that something was done to. What is around it has grown in
// another way before that: nobody else is to be stopped for what this one took.
func (m *memory) after(o outcome) {
	if o.undone {
		m.ladder.Undone(o.Action)
	} else {
		m.ladder.Told(o.Action, o.failed, m.clock())
	}
	s := m.sessions[o.Session]
	if s != nil {
		s.due, s.whole = m.clock(), true
		s.meter.Fresh()
	}
	for _, a := range m.order {
		if o.failed || o.undone || a.Kind == memlimit.KindSession || s != nil && !slices.Contains(s.around, a) {
			continue
		}
		switch {
		case o.Do == memlimit.Hibernate || o.Do == memlimit.Close:
			a.judge.Forget()
		case o.Do == memlimit.Freeze && s != nil:
			a.judge.Without(s.verdict.Slope, s.sample.Demand())
		}
	}
}

func (s *spot) take(w *session.Watch) {
	if s.watch.Brake != w.Memory.Brake || s.watch.High != w.Memory.High || s.watch.Lifted != w.Memory.Lifted {
		s.whole = true
		s.meter.Fresh()
	}
	s.watch, s.Name = w.Memory, cmp.Or(w.Name, w.Session)
	s.due = 0
}

func (m *memory) follow(id string, w *session.Watch) {
	meter, err := m.src.Session(&w.Memory)
	if err != nil {
		m.log.Debug("measure the memory of a session", "session", id, "err", err)
		return
	}
	s := &spot{Place: memlimit.Place{Kind: memlimit.KindSession, Session: id, Hidden: m.host.Hidden}, path: w.Memory.Place(), meter: meter}
	s.take(w)
	m.sessions[id], m.byMeter[meter] = s, s
}

func (m *memory) drop(s *spot) {
	if s == nil {
		return
	}
	delete(m.sessions, s.Session)
	delete(m.groups, s.path)
	delete(m.byMeter, s.meter)
	m.crier.Drop(s.Place)
	s.meter.Close()
}

// link finds out what lies in what.
func (m *memory) link() {
	boxes := map[string]*spot{}
	for _, s := range m.sessions {
		boxes[s.path] = s
	}
	used := map[string]bool{}
	m.order = m.order[:0]
	for _, s := range m.sessions {
		s.around = s.around[:0]
		for _, dir := range m.around(s) {
			a := boxes[dir]
			if a == nil {
				a = m.group(dir)
			}
			if a == nil {
				continue
			}
			used[dir] = true
			s.around = append(s.around, a)
		}
		s.around = append(s.around, m.host)
		m.order = append(m.order, s)
	}
	for dir, g := range m.groups {
		if !used[dir] {
			m.drop(g)
			continue
		}
		g.around = g.around[:0]
		for _, d := range m.src.Around(dir) {
			if a := m.groups[d]; a != nil {
				g.around = append(g.around, a)
			}
		}
		g.around = append(g.around, m.host)
		m.order = append(m.order, g)
	}
	m.order = append(m.order, m.host)
	for _, s := range m.order {
		s.inside = s.inside[:0]
		s.swap = append(s.swap[:0], &s.sample)
		for _, a := range s.around {
			s.swap = append(s.swap, &a.sample)
		}
	}
	for _, s := range m.sessions {
		// What lies in a session counts as that session's for who is further out.
		for _, a := range s.around {
			a.inside = append(a.inside, &s.verdict)
			if a.Kind == memlimit.KindSession {
				break
			}
		}
	}
	slices.SortStableFunc(m.order, func(a, b *spot) int {
		return cmp.Or(cmp.Compare(len(b.around), len(a.around)), cmp.Compare(a.path, b.path))
	})
}

// around are the places around a session, from the inside out.
func (m *memory) around(s *spot) (all []string) {
	for _, id := range s.watch.Around {
		all = append(all, session.PlaceOfLineage(id))
	}
	return append(all, m.src.Around(s.watch.Path)...)
}

// group is the place of a directory around boxes, nil if it cannot be measured.
func (m *memory) group(dir string) *spot {
	if g := m.groups[dir]; g != nil {
		return g
	}
	meter, err := m.src.Group(dir)
	if err != nil {
		m.log.Debug("measure the memory of a cgroup", "path", dir, "err", err)
		return nil
	}
	g := &spot{Place: memlimit.Place{Kind: memlimit.KindAncestor, Name: filepath.Base(dir), Hidden: m.host.Hidden}, path: dir, meter: meter}
	m.groups[dir], m.byMeter[meter] = g, g
	return g
}
