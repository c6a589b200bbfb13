package memlimit

import (
	"fmt"
	"strings"
)

// TooLowError refuses a memory ceiling below what is in use.
type TooLowError struct {
	File  string // "memory.max"
	Want  Size
	InUse uint64 // most hard memory within the last hour, bytes
	Least uint64 // the least ceiling that is taken, bytes
}

func (e *TooLowError) Error() string {
	return fmt.Sprintf("%s %v is too low: it used up to %s of late; the least is %s",
		e.File, e.Want, FormatBytes(e.InUse), FormatBytes(e.Least))
}

// LeastCeiling is the least ceiling for what has used that much hard memory: 1.3
// times it. A ceiling below what is normally used ends work again and again
// (KiroCrew#11599).
func LeastCeiling(inUse uint64) uint64 { return sum(inUse, scale(inUse, .3)) }

// Bear says whether what has used up to inUse bytes of hard memory (Verdict.Peak) can
// live under the limits; the error is a *TooLowError. Percentages must have been
// resolved. Who wants it all the same does not ask.
func (l Limits) Bear(inUse uint64) error {
	least := LeastCeiling(inUse)
	for _, c := range []struct {
		file string
		size Size
	}{{fileMemoryMax, l.MemoryMax}, {fileMemoryHigh, l.MemoryHigh}} {
		if n, ok := c.size.Value(); ok && n < least {
			return &TooLowError{c.file, c.size, inUse, least}
		}
	}
	return nil
}

// Remark notes of ceilings which of them can never act on a machine with those totals.
func Remark(all []Ceiling, t Totals) {
	for i := range all {
		c := &all[i]
		l := Limits{}
		switch c.File {
		case fileSwapMax:
			l.SwapMax = c.Want
		case fileMemoryMax:
			l.MemoryMax = c.Want
		case fileMemoryHigh:
			l.MemoryHigh = c.Want
		}
		c.Note = strings.Join(l.Idle(t), "; ")
	}
}

// Idle lists, for people, the limits that can never act on a machine with those
// totals: one on swap where there is none, one on memory above all there is.
// Percentages must have been resolved.
func (l Limits) Idle(t Totals) []string {
	var out []string
	if n, ok := l.SwapMax.Value(); ok && n > 0 && n != Infinity && t.Swap == 0 && t.Memory > 0 {
		out = append(out, fmt.Sprintf("swap_max %v does nothing: this host has no swap", l.SwapMax))
	}
	for _, c := range []struct {
		name string
		size Size
	}{{"memory_max", l.MemoryMax}, {"memory_high", l.MemoryHigh}} {
		if n, ok := c.size.Value(); ok && n != Infinity && t.Memory > 0 && n >= t.Memory {
			out = append(out, fmt.Sprintf("%s %v does nothing: this host has %s of memory", c.name, c.size, FormatBytes(t.Memory)))
		}
	}
	return out
}
