package session

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/keeper"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// keeperHooks have a keeper write down what becomes of its task.
func keeperHooks() keeper.Hooks {
	return keeper.Hooks{
		Abandoned: func(st *store.Store, o *keeper.Order) { recordAbandoned(st, o.ID(), o.Task) },
		End:       endAbandoned,
		Ended:     recordUnwaited,
	}
}

// endAbandoned ends a task whose caller died, as the session knows it: what it started in
// other sessions is theirs.
func endAbandoned(ctx context.Context, st *store.Store, o *keeper.Order) bool {
	m := newManager(Config{NoGuard: true, Log: discard()})
	m.store = st
	rec, err := st.Get(o.ID())
	if err != nil {
		return false
	}
	b, err := m.openLineage(&rec)
	if err != nil {
		return false
	}
	defer b.Close()
	err = b.Kill(ctx, o.Leaf)
	// What survives shows up as a leftover of the task.
	return err == nil || errors.As(err, new(*proc.SurvivorsError))
}

// recordUnwaited notes how a command ended whose supervisor has died.
func recordUnwaited(st *store.Store, o *keeper.Order, ws syscall.WaitStatus) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := st.UpdateTask(ctx, o.ID(), o.Task, func(t *store.Task) error {
		if t.State.Ended() {
			return errAlreadyEnded
		}
		r := resultOf(ws)
		r.put(t, time.Now(), false)
		return nil
	})
	_ = err // it is lost with the record then, as it would be without us
}
