package memlimit

import (
	"fmt"
	"slices"
	"time"
)

// Level says how near a place is to running out of memory.
type Level uint8

// The levels.
const (
	OK        Level = iota
	Notice          // for the log and metrics: gives the trend
	Warn            // people are told
	Critical        // work may be held
	Emergency       // the kernel is about to kill
)

const levels = int(Emergency) + 1

func levelNames() [levels]string {
	return [...]string{"ok", "notice", "warn", "critical", "emergency"}
}

func (l Level) String() string {
	if names := levelNames(); int(l) < len(names) {
		return names[l]
	}
	return fmt.Sprintf("level(%d)", uint8(l))
}

// MarshalText is String.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads what String writes.
func (l *Level) UnmarshalText(text []byte) error {
	names := levelNames()
	i := slices.Index(names[:], string(text))
	if i < 0 {
		return fmt.Errorf("%q is no level: want one of %v", text, names)
	}
	*l = Level(i)
	return nil
}

// Cause is the family of what a level was reached by.
type Cause string

// The causes.
const (
	BySize     Cause = "size"     // little headroom is left
	BySlope    Cause = "slope"    // it will be used up soon
	ByPressure Cause = "pressure" // and processes stall for memory
	ByEvents   Cause = "events"   // the kernel has hit the limit
	ByStall    Cause = "stall"    // memory.high holds it: nothing is killed, and nothing gets on
)

// threshold is when a level is reached, and for how long none of it must hold, in
// its relaxed form, for the level to be left. The figures are those of the lab
// (facts/memory.md §3.4): 80 % warns 5 s before the kill at 20 MB/s, the forecast
// 10 to 25 s; 90 % is where the brake sits; 40 % of stall is below what systemd-oomd
// kills at.
type threshold struct {
	used  float64       // of a ceiling
	host  float64       // of a host's memory: much of it in use is what it is for
	dwell time.Duration // for which a ceiling must be used that much
	left  time.Duration // until it is full
	least float64       // use below which that says nothing: starts are steep
	soon  time.Duration // until it is full, from foreseen on
	clear time.Duration
}

func thresholds() [levels]threshold {
	return [levels]threshold{
		Notice:   {used: .70, host: .75, left: 5 * time.Minute, least: foreseen, clear: time.Minute},
		Warn:     {used: .80, host: .85, dwell: 2 * time.Second, left: time.Minute, least: .70, soon: 10 * time.Second, clear: 30 * time.Second},
		Critical: {used: .90, host: .90, left: 15 * time.Second, least: .70, clear: 10 * time.Second},
		// Soon: there is no time for another look.
		Emergency: {used: .95, host: .95, left: 5 * time.Second, least: .80, soon: 2 * tickLeast, clear: 10 * time.Second},
	}
}

// foreseen is the use from which on a forecast counts at all. A warning wants ten
// seconds of lead; who can wait for it at 70 % does, as half of what grows for a
// while stops there.
const (
	foreseen  = .50
	slackHost = .10 // a host is warned of by forecast that much earlier: it is not one program's start
)

// A level is left below its thresholds by this much: 5 points of use (psi-notify),
// half as much time again, half the stall.
const (
	slackUsed  = .05
	slackLeft  = 1.5
	slackStall = .5
)
