package darwinjob

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
)

// blank are the single pieces of a process's evidence, as if they could not be read.
var blank = map[string]func(*Proc){
	"parent":         func(p *Proc) { p.PPID = 0 },
	"group":          func(p *Proc) { p.PGID = 0 },
	"session":        func(p *Proc) { p.SID = 0 },
	"user":           func(p *Proc) { p.UID = -1 },
	"start":          func(p *Proc) { p.Start = 0 },
	"unique":         func(p *Proc) { p.Unique = 0 },
	"parent unique":  func(p *Proc) { p.ParentUnique = 0 },
	"version":        func(p *Proc) { p.Version = 0 },
	"parent version": func(p *Proc) { p.ParentVersion = 0 },
	"coalition":      func(p *Proc) { p.Coalition = 0 },
	"pinned":         func(p *Proc) { p.Pinned = false },
	"all numbers":    func(p *Proc) { p.PPID, p.PGID, p.SID = 0, 0, 0 },
}

// No gap makes a member of a stranger: whatever single thing is missing, of one process,
// or of what was recorded.
func TestMissingEvidence(t *testing.T) {
	ctx := context.Background()
	n, seed, tried := envInt("SESSIONBOX_SIM_HISTORIES", 1500)/8, envInt("SESSIONBOX_SIM_SEED", 1), 0
	for i := seed; i < seed+n && !t.Failed(); i++ {
		d := rand.New(rand.NewPCG(uint64(i), 11))
		e := eras[i%len(eras)]
		w := newWorld(d, e, e.coalition && d.IntN(3) == 0)
		table, l := w.open()
		j := New(table, l, Options{})
		w.busy = true
		for range 40 {
			w.step()
			if w.chance(6) {
				j.Look(ctx, w.chance(3))
			}
		}
		s, _ := table.List(ctx)
		w.busy = false
		check := func(what string, l *Ledger, s *Snapshot) {
			tried++
			v, err := l.Observe(s)
			if err != nil {
				return
			}
			v.search(table, &seen{})
			for _, m := range v.Members {
				if p := w.at(m.ID); p != nil && !p.member && m.Shield == "" {
					t.Errorf("seed %d, %s: without the %s, %+v is a member by %v", i, e.name, what, m.Proc, m.Evidence)
				}
			}
		}
		for range 12 {
			at := d.IntN(len(s.Procs))
			for what, do := range blank {
				cut := *s
				cut.Procs = slices.Clone(s.Procs)
				do(&cut.Procs[at])
				check(what, l.Clone(), &cut)
			}
			cut := *s
			cut.Procs = slices.Delete(slices.Clone(s.Procs), at, at+1)
			check("process", l.Clone(), &cut)
		}
		for at := range l.Nodes {
			c := l.Clone()
			c.Nodes = slices.Delete(c.Nodes, at, at+1)
			check("node", c, s)
		}
		for n := range l.Sessions {
			c := l.Clone()
			delete(c.Sessions, n)
			check("session number", c, s)
		}
		for what, do := range map[string]func(*Ledger){
			"cookie": func(l *Ledger) { l.Cookie = "" }, "sentinel": func(l *Ledger) { l.Sentinel = 0 }, "first root": func(l *Ledger) { l.Since = ID{} },
			"coalitions": func(l *Ledger) { l.Coalitions = nil }, "coalition": func(l *Ledger) { l.Coalition = 0 }, "reaper": func(l *Ledger) { l.Reapers = nil },
			"forks": func(l *Ledger) { l.LastForks = 0 },
		} {
			c := l.Clone()
			do(c)
			check(what, c, s)
		}
	}
	t.Logf("%d histories, %d gaps", n, tried)
}
