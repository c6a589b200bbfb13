package session

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// survey is what a look at one session needs to know of all: their ledgers, as another one
// may have a better claim to a process, and which lie inside which. It costs reading the
// records of all sessions and the command lines of all processes, and serves for a while.
type survey struct {
	m     *Manager
	table darwinjob.Table
	here  *darwinjob.Snapshot
	// whole is of one look at all sessions: what was read once serves for good, the process
	// table as well.
	whole  bool
	all    about[[]*darwinjob.Ledger]
	nested about[[]nestedLineage]
}

func newSurvey(m *Manager) (*survey, error) {
	table, err := m.table()
	if err != nil {
		return nil, err
	}
	here, err := darwinjob.Here(context.Background(), table)
	if err != nil {
		return nil, err
	}
	return &survey{m: m, table: table, here: here}, nil
}

// surveyAll reads everything for one look at all sessions. The process table comes last: who
// is in it is in the ledgers before, or descends from one who is.
func surveyAll(m *Manager) (*survey, error) {
	s, err := newSurvey(m)
	if err != nil {
		return nil, err
	}
	s.ledgers()
	s.inside("")
	s.whole = true
	s.table, err = darwinjob.Still(s.table)
	return s, err
}

// forget has all read anew: something went from one session to another.
func (s *survey) forget() {
	s.all.forget()
	s.nested.forget()
}

// othersTime is for how long at least what was read of other sessions serves: a close looks
// many times within it, and nobody else can keep something out of a session that is being
// closed, nor open one inside. Where reading takes long, as many do it, it serves othersShare times as
// long as that: else it would be all that is done.
const (
	othersTime  = 300 * time.Millisecond
	othersShare = 5
)

// about is what was read of other sessions, and until when it serves.
type about[T any] struct {
	mu     sync.Mutex
	is     T
	serves time.Time
}

func (a *about[T]) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.serves = time.Time{}
}

// read gives what is known, or reads it anew.
func (a *about[T]) read(whole bool, anew func() T) T {
	a.mu.Lock()
	defer a.mu.Unlock()
	if began := time.Now(); a.serves.IsZero() || !whole && began.After(a.serves) {
		a.is = anew()
		now := time.Now()
		a.serves = now.Add(max(othersTime, othersShare*now.Sub(began)))
	}
	return a.is
}

// ledgers are those of all sessions.
func (s *survey) ledgers() []*darwinjob.Ledger { return s.all.read(s.whole, s.readLedgers) }

func (s *survey) readLedgers() []*darwinjob.Ledger {
	recs, _, err := s.m.store.Sessions()
	if err != nil {
		return nil
	}
	var all []*darwinjob.Ledger
	for i := range recs {
		if recs[i].Kind != store.KindLineage {
			continue
		}
		b := &lineageBox{m: s.m, rec: recs[i], table: s.table, survey: s}
		l, err := b.readLedger()
		if err != nil {
			continue
		}
		chain := b.chain()
		l.Within = chain[:len(chain)-1]
		all = append(all, l)
	}
	return all
}

// ledger is that of a session as a look at all sees it, nil if it has to be read.
func (s *survey) ledger(id string) *darwinjob.Ledger {
	if !s.whole {
		return nil
	}
	all := s.ledgers()
	i := slices.IndexFunc(all, func(l *darwinjob.Ledger) bool { return l.Session == id })
	if i < 0 {
		return nil
	}
	return all[i].Clone()
}

// nestedLineage is a session inside another.
type nestedLineage struct {
	id    string
	chain []string // of it and the sessions around it, outermost first
}

// inside are the lineage boxes inside a session, the outer ones first: by their records, or
// by their keepers where those are lost.
func (s *survey) inside(id string) []nestedLineage {
	var in []nestedLineage
	for _, n := range s.nested.read(s.whole, s.readNested) {
		if slices.Contains(n.chain[:len(n.chain)-1], id) {
			in = append(in, n)
		}
	}
	return in
}

func (s *survey) readNested() []nestedLineage {
	recs, _, err := s.m.store.Sessions()
	if err != nil {
		return nil
	}
	var all []nestedLineage
	add := func(chain []string) {
		if len(chain) > 1 {
			all = append(all, nestedLineage{chain[len(chain)-1], chain})
		}
	}
	known := map[string]store.Kind{}
	for i := range recs {
		known[recs[i].ID] = recs[i].Kind
		if recs[i].Kind == store.KindLineage && recs[i].Parent != "" {
			add((&lineageBox{m: s.m, rec: recs[i]}).chain())
		}
	}
	for _, f := range s.m.findLineages(known) {
		add(f.ids)
	}
	slices.SortStableFunc(all, func(a, b nestedLineage) int { return len(a.chain) - len(b.chain) })
	return all
}
