package session

import (
	"context"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/keeper"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// keeperHooks have a keeper write down what becomes of its task.
func keeperHooks() keeper.Hooks {
	return keeper.Hooks{
		Abandoned: func(st *store.Store, o *keeper.Order) { recordAbandoned(st, o.ID(), o.Task) },
		Ended:     recordUnwaited,
	}
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
