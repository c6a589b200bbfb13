//go:build !linux

package guard

import (
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
)

var _ waiter = (*looker)(nil)

// looker waits by looking once a second.
type looker struct {
	looked map[proc.ID]bool
	woken  chan struct{}
}

func newWaiter(string) (waiter, error) {
	return &looker{looked: map[proc.ID]bool{}, woken: make(chan struct{}, 1)}, nil
}

func (l *looker) Hold(id proc.ID) error {
	if proc.FateOf(id) == proc.Gone {
		return proc.ErrGone
	}
	l.looked[id] = true
	return nil
}

func (l *looker) Release(id proc.ID) (status syscall.WaitStatus, known bool) {
	delete(l.looked, id)
	return 0, false
}
func (l *looker) Follow(string) {}
func (l *looker) Forget(string) {}
func (l *looker) Sure() bool    { return true } // Wait says of each look that something may have changed

func (l *looker) Wait(until time.Duration) (wake, error) {
	d := lookInterval
	if until != 0 {
		d = min(d, max(0, until-proc.Clock()))
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.woken:
	}
	w := wake{changed: true}
	for id := range l.looked {
		if proc.FateOf(id) == proc.Gone {
			w.ended = append(w.ended, id)
			delete(l.looked, id)
		}
	}
	return w, nil
}

func (l *looker) Changes() (sessions []string, all bool) { return nil, true }

func (l *looker) Wake() {
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

func (l *looker) Close() error { return nil }
