package memlimit

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// Pressure is a pressure file (memory.pressure, /proc/pressure/memory): for how
// long in all some, and all, of the processes stalled for want of memory. Its
// averages are of no use to us: they lag by seconds.
type Pressure struct {
	Some, Full time.Duration
}

// ParsePressure reads a pressure file without allocating:
//
//	some avg10=0.00 avg60=0.00 avg300=0.00 total=0
//	full avg10=0.00 avg60=0.00 avg300=0.00 total=0
func ParsePressure(b []byte) (Pressure, error) {
	var p Pressure
	found := false
	for len(b) > 0 {
		line := b
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			line, b = b[:i], b[i+1:]
		} else {
			b = nil
		}
		var into *time.Duration
		switch {
		case bytes.HasPrefix(line, []byte("some ")):
			into = &p.Some
		case bytes.HasPrefix(line, []byte("full ")):
			into = &p.Full
		default:
			continue
		}
		i := bytes.LastIndex(line, []byte("total="))
		if i < 0 {
			return Pressure{}, fmt.Errorf("line %q has no total", clip(line))
		}
		usec, ok := parseUint(line[i+len("total="):])
		if !ok || usec > uint64(maxDuration/time.Microsecond) {
			return Pressure{}, errNumber(line)
		}
		*into, found = time.Duration(usec)*time.Microsecond, true
	}
	if !found {
		return Pressure{}, errors.New("no pressure file")
	}
	return p, nil
}

const maxDuration = time.Duration(1<<63 - 1)

// stallRates are the shares of the time between two readings that some, and all,
// stalled. The time is taken from before the first reading to after the second, as
// Buck2 does it: a reader that stalls itself does not make the stall look longer.
func stallRates(then, now *point) (some, full float64) {
	span := max(now.done, now.at) - then.at
	if span <= 0 {
		return 0, 0
	}
	rate := func(from, to time.Duration) float64 { return min(1, max(0, float64(to-from)/float64(span))) }
	return rate(then.some, now.some), rate(then.full, now.full)
}

// The trigger that wakes us: 150 ms of stall within 2 s.
const (
	TriggerStall  = 150 * time.Millisecond
	TriggerWindow = 2 * time.Second
)

// Trigger is what to write to a pressure file to be woken when some processes have
// stalled for so long within a window, in one raw write: it ends in a NUL, without
// which the kernel takes the last digit for the end of line (oven-sh/bun#39654).
// Without CAP_SYS_RESOURCE, and in a container's root, the kernel (since 6.4) only
// takes windows that are multiples of 2 s, up to 10; others are refused here.
//
// Such a trigger fires for the first stall after it was made, however short
// (oven-sh/bun#42783): it says that there is something to measure, and no more.
func Trigger(stall, window time.Duration) ([]byte, error) {
	switch {
	case window <= 0 || window%(2*time.Second) != 0 || window > 10*time.Second:
		return nil, fmt.Errorf("trigger window %v: want 2, 4, 6, 8 or 10 s", window)
	case stall < time.Microsecond || stall > window:
		return nil, fmt.Errorf("trigger stall %v: want more than nothing and at most the window, %v", stall, window)
	}
	return fmt.Appendf(nil, "some %d %d\x00", stall.Microseconds(), window.Microseconds()), nil
}

// Fired says whether a trigger that has fired had cause to: whether as much as it
// asks for was stalled since the reading before. The first edge of an unprivileged
// one has none, most often.
func (p Pressure) Fired(before Pressure, stall time.Duration) bool {
	return p.Some-before.Some >= stall
}
