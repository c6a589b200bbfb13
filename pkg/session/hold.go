package session

import (
	"context"
	"time"
)

// holdTime is how long an open waits while a guard holds new sessions for want of
// memory, holdPause how long between two looks.
const (
	holdTime  = 10 * time.Second
	holdPause = 200 * time.Millisecond
)

// unheld waits until new sessions may be opened. Who holds them is the guard that has
// the lock: without one nobody does.
func (m *Manager) unheld(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, holdTime)
	defer cancel()
	for {
		note, held, err := m.store.Guard()
		if err != nil || !held || note.Hold == "" {
			return nil
		}
		if sleep(ctx, holdPause) != nil {
			return &Error{Kind: ErrTimeout, Text: "no session is opened while memory is short: " + note.Hold, Retry: true,
				Hint: "close one (`sessionbox ls`), or try again; `sessionbox events --event memory_warning` says what takes it"}
		}
	}
}
