package guard

import (
	"maps"
	"time"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// cycleTime is for how long a deed may not have been done for the next one to be news.
const cycleTime = 5 * time.Minute

// cycles knows what is said of brakes already: who stands at one for days has it lifted, and
// gets it back, every 70 seconds. That is said once, and again when something is another way:
// what it is set to, why it fails, or what else was done to the session.
type cycles map[string]map[memlimit.Deed]turn

// turn is the last time that something was done.
type turn struct {
	high uint64
	err  string
	at   time.Time
}

// known says whether a deed is what was done to its session before, and notes it.
func (c cycles) known(a memlimit.Action, failed string, now time.Time) bool {
	maps.DeleteFunc(c, func(_ string, of map[memlimit.Deed]turn) bool {
		maps.DeleteFunc(of, func(_ memlimit.Deed, t turn) bool { return now.Sub(t.at) >= cycleTime })
		return len(of) == 0
	})
	switch a.Do {
	case memlimit.Arm, memlimit.Brake, memlimit.Lift, memlimit.Restore:
	case memlimit.Helpless: // nothing was done
		return false
	default:
		delete(c, a.Session)
		return false
	}
	of := c[a.Session]
	if of == nil {
		of = map[memlimit.Deed]turn{}
		c[a.Session] = of
	}
	before, was := of[a.Do]
	of[a.Do] = turn{a.High, failed, now}
	return was && before.high == a.High && before.err == failed
}
