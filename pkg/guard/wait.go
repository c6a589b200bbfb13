package guard

import (
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
)

// waiter is what a guard sleeps in. But for Wake it is used by one goroutine.
type waiter interface {
	// Hold has the end of a process told by Wait. The error is [proc.ErrGone] or
	// [proc.ErrReused] if it has ended, [proc.ErrElsewhere] if nothing can be told.
	Hold(id proc.ID) error
	// Release undoes Hold. Had the process ended, and was that not told yet, it gives
	// how, if that is known.
	Release(id proc.ID) (status syscall.WaitStatus, known bool)
	// Follow has changes of a session's records told by Changes; Forget no longer.
	Follow(session string)
	Forget(session string)
	// Wait returns at the time until, on [proc.Clock] (0 is never), or before that
	// when something happens or Wake is called.
	Wait(until time.Duration) (wake, error)
	// Changes tells of which sessions the records have changed since it was asked
	// last; all: of any, and there may be others. Until it is asked, Wait does not
	// tell of further ones.
	Changes() (sessions []string, all bool)
	// Sure says that every change is told. Else somebody has to look.
	Sure() bool
	Wake()
	Close() error
}

// wake is why Wait has returned.
type wake struct {
	ended   []proc.ID // have ended, and are held no longer
	changed bool      // see Changes
	// status is how those of them ended of whom the kernel tells it.
	status map[proc.ID]syscall.WaitStatus
}

// lookInterval is how often is looked at what cannot be waited for.
const lookInterval = time.Second
