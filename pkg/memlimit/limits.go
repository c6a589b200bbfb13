package memlimit

import (
	"errors"
	"fmt"
)

// Limits are the ceilings of a session, a task or all sessions together. A Size
// that is not set leaves the ceiling alone; Max lifts it. Limits can be compared
// with ==.
type Limits struct {
	MemoryMax  Size // hard ceiling in bytes: beyond it the kernel kills
	MemoryHigh Size // brake in bytes: beyond it everything in the box is slowed
	SwapMax    Size // swap alone, in bytes
	PidsMax    Size // processes and threads
}

// Totals are what percentages are shares of; 0 is unknown.
type Totals struct {
	Memory uint64 // bytes, for MemoryMax and MemoryHigh
	Swap   uint64 // bytes
	Pids   uint64
}

// minMemory is the least ceiling that makes sense: below, not even a shell
// starts. It is there to catch "4" written for "4G".
const minMemory = 1 << 20

// IsSet tells whether any ceiling is.
func (l Limits) IsSet() bool { return l != Limits{} }

// Merge gives l with what it does not set taken from base.
func (l Limits) Merge(base Limits) Limits {
	pick := func(s, b Size) Size {
		if s.IsSet() {
			return s
		}
		return b
	}
	return Limits{
		MemoryMax:  pick(l.MemoryMax, base.MemoryMax),
		MemoryHigh: pick(l.MemoryHigh, base.MemoryHigh),
		SwapMax:    pick(l.SwapMax, base.SwapMax),
		PidsMax:    pick(l.PidsMax, base.PidsMax),
	}
}

// Resolve replaces percentages by amounts.
func (l Limits) Resolve(t Totals) (Limits, error) {
	var errs []error
	resolve := func(name string, s Size, total uint64) Size {
		r, err := s.Resolve(total)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		return r
	}
	out := Limits{
		MemoryMax:  resolve("memory_max", l.MemoryMax, t.Memory),
		MemoryHigh: resolve("memory_high", l.MemoryHigh, t.Memory),
		SwapMax:    resolve("swap_max", l.SwapMax, t.Swap),
		PidsMax:    resolve("pids_max", l.PidsMax, t.Pids),
	}
	if len(errs) > 0 {
		return Limits{}, errors.Join(errs...)
	}
	return out, nil
}

// Validate tells what is wrong with the limits among themselves: a memory
// ceiling that nothing could live under, no processes at all, a brake above the
// ceiling, where it would never act. Percentages are compared with each other;
// with amounts only after Resolve. Whether there is swap is the caller's
// business.
func (l Limits) Validate() error {
	var errs []error
	for _, m := range []struct {
		name string
		size Size
	}{{"memory_max", l.MemoryMax}, {"memory_high", l.MemoryHigh}} {
		if n, ok := m.size.Value(); ok && n < minMemory {
			hint := ""
			if n > 0 && n < 1024 {
				hint = fmt.Sprintf("; did you mean %dG?", n)
			}
			errs = append(errs, fmt.Errorf("%s is %d bytes, too little for any program (the least is 1M)%s", m.name, n, hint))
		}
	}
	if n, ok := l.PidsMax.Value(); ok && n == 0 {
		errs = append(errs, errors.New("pids_max is 0, which allows no process"))
	}
	if above(l.MemoryHigh, l.MemoryMax) {
		errs = append(errs, fmt.Errorf("memory_high (%v) is above memory_max (%v) and would never act", l.MemoryHigh, l.MemoryMax))
	}
	return errors.Join(errs...)
}

// above tells whether a limits less than b does, as far as that is known. A max
// brake under a ceiling is how one says "no brake", so it is not above.
func above(a, b Size) bool {
	if a.kind == b.kind && (a.kind == kindBytes || a.kind == kindPercent) {
		return a.n > b.n
	}
	return false
}
