package guard

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// watchMemory starts to watch memory beside the loop, and gives the way to end that.
// Where it cannot be watched the rest is all the same.
func (g *guard) watchMemory() (stop func()) {
	src, err := newSource(g.holding)
	if err != nil {
		if !errors.Is(err, proc.ErrUnsupported) {
			g.log.Warn("go on without watching memory", "err", err)
		}
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := newTeller(g.store, g.log, g.metrics)
	g.memory = newMemory(src, g.clock, g.log)
	d := &deeds{ctx: ctx, keeper: g.keeper, log: g.log, hold: g.hold, write: t.write, say: t.say, count: g.metrics.did, after: g.memory.again, busy: map[string]memlimit.Deed{}, missed: map[string][]memlimit.Action{}, cycles: cycles{}}
	g.memory.rules, g.memory.told, g.memory.act = g.rules, t.tell, d.do
	g.metrics.watches(g.memory)
	var all sync.WaitGroup
	watch, unwatch := context.WithCancel(ctx)
	all.Go(func() {
		g.memory.run(watch)
		d.end()
		g.liftAll(d)
		late := time.AfterFunc(windUp, cancel) // what is cut short is taken up by the next guard
		d.all.Wait()
		late.Stop()
		cancel()
	})
	all.Go(func() { t.serve(ctx) })
	return func() {
		g.metrics.watches(nil)
		unwatch()
		all.Wait()
		g.memory = nil
	}
}

// liftAll takes away all brakes: without a guard there are none. What is true is in the
// records by now, those among them of sessions that it never got to look at.
func (g *guard) liftAll(d *deeds) {
	all, err := g.sessions.Watches()
	if err != nil {
		g.log.Warn("look for brakes", "err", err)
	}
	for i := range all {
		w := &all[i]
		if w.Memory.Brake == 0 {
			continue
		}
		place := memlimit.Place{Kind: memlimit.KindSession, Name: cmp.Or(w.Name, w.Session), Session: w.Session}
		d.do(memlimit.Action{Do: memlimit.Lift, Session: w.Session, Name: place.Name, Place: place, Reason: "nobody watches it any more"}, w.Memory.Inode)
	}
}

// hold says in the lock's file that new sessions are to wait, and why; "" lets them.
func (g *guard) hold(why string) {
	g.noting.Lock()
	defer g.noting.Unlock()
	g.note.Hold = why
	g.sayWho()
}

// sayWho says in the lock's file who holds it. g.noting is held.
func (g *guard) sayWho() {
	if err := g.lock.Note(g.note); err != nil {
		g.log.Warn("say in the lock's file who holds it", "err", err)
	}
}
