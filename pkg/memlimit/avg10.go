package memlimit

import (
	"bytes"
	"strconv"
)

// Avg10 reads from a pressure file in which share of the last ten seconds, in
// percent, something waited ("some"). It is for people to look at: it lags.
func Avg10(b []byte) (percent float64, ok bool) {
	for line := range bytes.Lines(b) {
		rest, some := bytes.CutPrefix(line, []byte("some avg10="))
		if !some {
			continue
		}
		number, _, _ := bytes.Cut(rest, []byte(" "))
		percent, err := strconv.ParseFloat(string(bytes.TrimSpace(number)), 64)
		return percent, err == nil && percent >= 0 && percent <= 100
	}
	return 0, false
}
