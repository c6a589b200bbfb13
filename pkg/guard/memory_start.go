package guard

import (
	"context"
	"errors"
	"sync"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
)

// watchMemory starts to watch memory beside the loop, and gives the way to end that.
// Where it cannot be watched the rest is all the same.
func (g *guard) watchMemory() (stop func()) {
	src, err := newSource()
	if err != nil {
		if !errors.Is(err, proc.ErrUnsupported) {
			g.log.Warn("go on without watching memory", "err", err)
		}
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := newTeller(g.store, g.log, g.metrics)
	g.memory = newMemory(src, g.clock, g.log)
	g.memory.rules, g.memory.told = g.rules, t.tell
	g.metrics.watches(g.memory)
	var all sync.WaitGroup
	watch, unwatch := context.WithCancel(ctx)
	all.Go(func() { g.memory.run(watch); cancel() })
	all.Go(func() { t.serve(ctx) })
	return func() {
		g.metrics.watches(nil)
		unwatch()
		all.Wait()
		g.memory = nil
	}
}
