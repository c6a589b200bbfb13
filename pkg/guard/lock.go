package guard

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

const (
	// lockTime is how long the lock is waited for before it counts as held: those who
	// only look hold it for a moment.
	lockTime = 300 * time.Millisecond
	// yieldTime is how long a guard that was asked to end may take.
	yieldTime = 30 * time.Second
)

// heldError says who has the lock.
func heldError(n store.GuardNote) error {
	text := "a guard watches already"
	if n.Process.PID != 0 {
		text = fmt.Sprintf("a guard watches already: process %d, since %s", n.Process.PID, n.Since.Local().Format(time.DateTime))
	}
	return &session.Error{Kind: session.ErrHeld, Text: text, Hint: "one is enough: end that one first, or leave it"}
}

// tryLock takes the lock if nobody has it.
func (g *guard) tryLock(ctx context.Context) (*store.GuardLock, error) {
	wait, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	l, err := g.store.LockGuard(wait)
	if err == nil || wait.Err() == nil {
		return l, err
	}
	n, _, err := g.store.Guard()
	if err != nil {
		return nil, err
	}
	return nil, heldError(n)
}

// givesWay says whether the guard that has the lock is one that we may take over from.
func (g *guard) givesWay(ctx context.Context) bool {
	n, err := g.holder(ctx)
	return err == nil && !g.onDemand && (n.OnDemand || n.Process.PID == 0)
}

// takeOver asks the guard that has the lock to end, and takes its place.
func (g *guard) takeOver(ctx context.Context) (*store.GuardLock, error) {
	n, err := g.holder(ctx)
	if err != nil {
		return nil, err
	}
	if n.OnDemand { // else it has ended meanwhile
		h, err := proc.Open(proc.ID(n.Process))
		if err == nil {
			err = h.Signal(syscall.SIGTERM)
			h.Close()
		}
		if err != nil && !errors.Is(err, proc.ErrGone) && !errors.Is(err, proc.ErrReused) {
			return nil, &session.Error{Kind: session.ErrHeld, Text: fmt.Sprintf("the guard that runs (process %d) cannot be asked to end", n.Process.PID), Err: err}
		}
		g.log.Info(fmt.Sprintf("taking over from the guard of process %d, which was started on demand", n.Process.PID))
	}
	wait, cancel := context.WithTimeout(ctx, yieldTime)
	defer cancel()
	l, err := g.store.LockGuard(wait)
	if err != nil && wait.Err() != nil {
		if n, err = g.holder(ctx); err == nil {
			err = heldError(n)
		}
	}
	return l, err
}

// holder says who has the lock, once that one has said so; nobody is the zero value.
func (g *guard) holder(ctx context.Context) (store.GuardNote, error) {
	for began := time.Now(); ; {
		n, held, err := g.store.Guard()
		if err != nil || !held || n.Process.PID != 0 || time.Since(began) > lockTime {
			return n, err
		}
		select {
		case <-ctx.Done():
			return n, context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
