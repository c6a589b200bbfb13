package proc

import (
	"bytes"
	"strconv"
)

// Ending says whether a process that was noted earlier is gone or on its way: the
// kernel is taking it apart, or a SIGKILL waits for it. What cannot be told is no.
func Ending(id ID) bool {
	switch FateOf(id) {
	case Gone:
		return true
	case Unknown:
		return false
	}
	// The signal is taken, then the exit begins. Looked for in that order, only who is just
	// between the two is missed.
	if killPending(id.PID) {
		return FateOf(id) != Unknown
	}
	st, err := ReadStat(id.PID)
	if err != nil || st.Start != id.Start {
		return FateOf(id) == Gone // it went meanwhile
	}
	return st.Exiting
}

// killPending says whether a SIGKILL waits for a process.
func killPending(pid int) bool {
	b, err := read(pid, "status")
	if err != nil {
		return false
	}
	const kill = 1 << (9 - 1)
	for line := range bytes.Lines(b) {
		for _, key := range []string{"SigPnd:", "ShdPnd:"} {
			if set, ok := bytes.CutPrefix(line, []byte(key)); ok {
				if n, err := strconv.ParseUint(string(bytes.TrimSpace(set)), 16, 64); err == nil && n&kill != 0 {
					return true
				}
			}
		}
	}
	return false
}
