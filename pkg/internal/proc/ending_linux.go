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
	st, err := ReadStat(id.PID)
	if err != nil || st.Start != id.Start {
		return false // it is asked again
	}
	if st.Exiting {
		return true
	}
	b, err := read(id.PID, "status")
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
