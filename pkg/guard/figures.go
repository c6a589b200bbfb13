package guard

import "github.com/sessionbox/sessionbox/pkg/memlimit"

// figures are what is known of all places now, by kind, id and name.
func (m *metrics) figures() (hard, limit, level counts) {
	hard, limit, level = counts{}, counts{}, counts{}
	m.mu.Lock()
	mem := m.memory
	m.mu.Unlock()
	if mem == nil {
		return hard, limit, level
	}
	mem.looking.Lock()
	defer mem.looking.Unlock()
	for _, s := range mem.order {
		if !s.known {
			continue
		}
		key := []string{string(s.Kind), s.Session, s.Name}
		if s.Kind == memlimit.KindAncestor {
			key[1] = s.path // two may have one name
		}
		hard.add(float64(s.sample.Hard), key...)
		level.add(float64(s.verdict.Level), key...)
		if s.sample.Max != memlimit.Infinity {
			limit.add(float64(s.sample.Max), key...)
		}
	}
	return hard, limit, level
}

// warned counts a warning that was given.
func (m *metrics) warned(w *memlimit.Warning) {
	if m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.warnings.add(1, w.Level.String())
	}
}

// did counts something that was done for want of memory.
func (m *metrics) did(d memlimit.Deed) {
	if m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.deeds.add(1, string(d))
	}
}

// watches says whose figures are to be told.
func (m *metrics) watches(mem *memory) {
	if m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.memory = mem
	}
}
