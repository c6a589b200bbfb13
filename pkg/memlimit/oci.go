package memlimit

import (
	"fmt"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// OCI gives the limits as OCI resources, nil when none is set. There, -1 is no
// limit, and swap is memory and swap together. What OCI cannot say (a brake; a
// swap ceiling without a memory ceiling) goes into Unified, by the name of its
// cgroup v2 file. Percentages must have been resolved.
func (l Limits) OCI() (*specs.LinuxResources, error) {
	if err := l.resolved(); err != nil {
		return nil, err
	}
	if !l.IsSet() {
		return nil, nil
	}
	var r specs.LinuxResources
	memory := func() *specs.LinuxMemory {
		if r.Memory == nil {
			r.Memory = &specs.LinuxMemory{}
		}
		return r.Memory
	}
	unified := func(file string, s Size) {
		if r.Unified == nil {
			r.Unified = map[string]string{}
		}
		r.Unified[file] = fileValue(s)
	}
	if l.MemoryMax.IsSet() {
		memory().Limit = ociValue(l.MemoryMax)
	}
	if l.MemoryHigh.IsSet() {
		unified(fileMemoryHigh, l.MemoryHigh)
	}
	if l.SwapMax.IsSet() {
		swap, _ := l.SwapMax.Value()
		limit, _ := l.MemoryMax.Value()
		switch {
		case l.SwapMax.IsMax():
			memory().Swap = ociValue(Max())
		case l.MemoryMax.kind == kindBytes && limit+swap <= MaxBytes:
			memory().Swap = ociValue(Bytes(limit + swap))
		default:
			unified(fileSwapMax, l.SwapMax)
		}
	}
	if l.PidsMax.IsSet() {
		r.Pids = &specs.LinuxPids{Limit: ociValue(l.PidsMax)}
	}
	return &r, nil
}

// FromOCI reads the limits out of OCI resources; nil has none. Resources that
// Limits has no word for (cpu, devices, …) are passed over.
func FromOCI(r *specs.LinuxResources) (Limits, error) {
	if r == nil {
		return Limits{}, nil
	}
	var l Limits
	var err error
	if m := r.Memory; m != nil {
		if l.MemoryMax, err = fromOCI("memory limit", m.Limit); err != nil {
			return Limits{}, err
		}
		var both Size
		if both, err = fromOCI("memory+swap limit", m.Swap); err != nil {
			return Limits{}, err
		}
		l.SwapMax = both
		if sum, ok := both.Value(); ok && !both.IsMax() {
			limit, ok := l.MemoryMax.Value()
			if !ok || limit > sum {
				return Limits{}, fmt.Errorf("memory+swap limit %d is below the memory limit %q", sum, l.MemoryMax)
			}
			l.SwapMax = Bytes(sum - limit)
		}
	}
	if r.Pids != nil {
		if l.PidsMax, err = fromOCI("pids limit", r.Pids.Limit); err != nil {
			return Limits{}, err
		}
	}
	for _, name := range []string{fileMemoryMax, fileMemoryHigh, fileSwapMax, filePidsMax} {
		if value, ok := r.Unified[name]; ok {
			if err := l.setFile(name, value); err != nil {
				return Limits{}, fmt.Errorf("unified: %w", err)
			}
		}
	}
	return l, nil
}

func ociValue(s Size) *int64 {
	n := int64(-1)
	if v, ok := s.Value(); ok && !s.IsMax() {
		n = int64(v) // Size holds at most MaxBytes
	}
	return &n
}

func fromOCI(what string, p *int64) (Size, error) {
	switch {
	case p == nil:
		return Size{}, nil
	case *p == -1:
		return Max(), nil
	case *p < 0:
		return Size{}, fmt.Errorf("%s is %d: want an amount or -1", what, *p)
	}
	return Bytes(uint64(*p)), nil
}

// resolved refuses percentages where amounts are needed.
func (l Limits) resolved() error {
	var open []string
	for _, f := range []struct {
		name string
		size Size
	}{
		{"memory_max", l.MemoryMax}, {"memory_high", l.MemoryHigh},
		{"swap_max", l.SwapMax}, {"pids_max", l.PidsMax},
	} {
		if f.size.IsPercent() {
			open = append(open, f.name+" "+f.size.String())
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("percentages must be resolved first: %s", strings.Join(open, ", "))
	}
	return nil
}
