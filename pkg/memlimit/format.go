package memlimit

import (
	"strconv"
	"strings"
)

// FormatBytes writes an amount for people, with three significant digits and
// without trailing zeros: "512B", "1.2G", "87.5M", "1023K". Infinity is "max".
// It rounds; Size.String does not.
func FormatBytes(n uint64) string {
	if n == Infinity {
		return "max"
	}
	if n < 1<<10 {
		return strconv.FormatUint(n, 10) + "B"
	}
	i := 0
	for i+1 < len(units) && n >= units[i+1].bytes {
		i++
	}
	v := float64(n) / float64(units[i].bytes)
	if v >= 1023.5 && i+1 < len(units) { // would round to 1024 of this unit
		i++
		v /= 1024
	}
	decimals := 2
	switch {
	case v >= 99.95:
		decimals = 0
	case v >= 9.995:
		decimals = 1
	}
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	if decimals > 0 {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text + units[i].letter
}
