package memlimit

import (
	"bytes"
	"fmt"
	"math"
)

// ScanFlat calls f for each line "key value" of a flat-keyed control file such
// as memory.stat, without allocating: key is a part of b. It stops at the first
// line that is none and says which.
func ScanFlat(b []byte, f func(key []byte, value uint64)) error {
	for len(b) > 0 {
		line := b
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			line, b = b[:i], b[i+1:]
		} else {
			b = nil
		}
		if len(line) == 0 {
			continue
		}
		i := bytes.IndexByte(line, ' ')
		if i <= 0 {
			return fmt.Errorf("line %q is no key and value", clip(line))
		}
		value, ok := parseUint(line[i+1:])
		if !ok {
			return errNumber(line)
		}
		f(line[:i], value)
	}
	return nil
}

// ParseFlat reads a flat-keyed file into a map. Where only known keys matter,
// ParseStat and ParseEvents do not allocate.
func ParseFlat(b []byte) (map[string]uint64, error) {
	m := make(map[string]uint64, bytes.Count(b, []byte{'\n'})+1)
	if err := ScanFlat(b, func(key []byte, value uint64) { m[string(key)] = value }); err != nil {
		return nil, err
	}
	return m, nil
}

// parseUint is strconv.ParseUint for bytes.
func parseUint(b []byte) (n uint64, ok bool) {
	if len(b) == 0 {
		return 0, false
	}
	for _, c := range b {
		d := uint64(c - '0')
		if c < '0' || c > '9' || n > (math.MaxUint64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

func errNumber(line []byte) error { return fmt.Errorf("line %q has no number", clip(line)) }

// clip keeps garbage out of error texts.
func clip(line []byte) []byte { return line[:min(len(line), 80)] }
