package memlimit

import (
	"fmt"
	"time"
)

// Intent says, for a warning about a place, what will be done if it goes on like
// that, and how to prevent it.
func (l *Ladder) Intent(sc *Scene, place int) (next, prevent string) {
	p := &sc.Places[place]
	if p.Level < Critical {
		if next, prevent, ok := l.parking(sc, place); ok {
			return next, prevent
		}
	}
	next = "if it goes on, the kernel kills a process of it"
	switch {
	case p.Frozen:
		next = "it stands still: sessionbox thaw " + p.Name + " lets it run"
	case p.Kind == KindHost:
		next = "if it goes on, the kernel kills a process"
	case p.Tier == TierProcesses:
		next = "nothing is done about it here"
	}
	at := Emergency
	if able := l.freezable(sc, place); len(able) > 0 {
		if p.shared() {
			at = Critical
		}
		next = "session " + able[0].Name + " will be frozen" + when(p, at)
	} else if able := l.closable(sc, place); len(able) > 0 {
		next = "session " + able[0].Name + " will be closed" + when(p, at)
	}
	switch p.Kind {
	case KindSession:
		prevent = fmt.Sprintf("end what it does not need or raise the ceiling: sessionbox limit %s --memory-max %v", p.Name, Suggest(max(p.Peak, p.Max)))
	case KindHost:
		prevent = "close sessions that are idle: sessionbox ls, sessionbox close"
	default:
		prevent = "close sessions that are idle or raise the limit of " + p.Name
	}
	return next, prevent
}

// when says when a place reaches a level if it goes on like that.
func when(p *Spot, at Level) string {
	th := thresholds()[at]
	switch {
	case p.Now >= at:
		return " now"
	case p.Full == 0 || p.Slope <= 0:
		return fmt.Sprintf(" at %d %%", percent(th.used))
	}
	reach := func(used float64) time.Duration { // from Used on
		return p.Full - time.Duration((1-used)*float64(p.Max)/p.Slope*float64(time.Second))
	}
	in := min(reach(th.used), max(reach(th.least), p.Full-th.left))
	return " in about " + about(max(0, in).Seconds())
}

// Suggest is a ceiling for what has used that much: half as much again, in round
// figures.
func Suggest(peak uint64) Size {
	step := uint64(64 << 20)
	if peak >= 1<<30 {
		step = 512 << 20
	}
	n := sum(peak, peak/2)
	return Bytes(max(1, (n+step-1)/step) * step)
}
