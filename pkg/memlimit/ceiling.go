package memlimit

import "strings"

// Ceiling is one limit of a box as asked for and as the kernel has it.
type Ceiling struct {
	File string `json:"file"` // its control file, "memory.max"
	// Want is what was asked for, "" when nothing was; Value what the kernel
	// says, "" when it has no such control here.
	Want  Size `json:"want,omitzero"`
	Value Size `json:"value,omitzero"`
	// InForce is false for a ceiling that does not hold; Why then says why.
	InForce bool   `json:"in_force"`
	Why     string `json:"why,omitempty"`
	// Fix says what would put it in force, where that is known.
	Fix string `json:"fix,omitempty"`
	// Note says why one that is in force, or would be, never acts on this machine, or who
	// has set one that nobody asked for.
	Note string `json:"note,omitempty"`
}

// WhyNoSwapAccount is why a ceiling of swap is not in force though that of memory would be.
const WhyNoSwapAccount = "this kernel does not account swap"

// Controller is the controller that the ceiling needs, "memory".
func (c Ceiling) Controller() string {
	name, _, _ := strings.Cut(c.File, ".")
	return name
}

// Missing says that the ceiling does not hold because the kernel has no such control
// here.
func (c Ceiling) Missing() bool { return !c.InForce && !c.Value.IsSet() }

// Ceilings compares what is wanted with what was read back. Controls that are
// neither asked for nor set are left out.
func Ceilings(want, got Limits) []Ceiling {
	mismatch := map[string]bool{}
	for _, m := range want.Diff(got) {
		mismatch[m.File] = true
	}
	var all []Ceiling
	for _, c := range []struct {
		file      string
		want, got Size
	}{
		{"memory.max", want.MemoryMax, got.MemoryMax},
		{"memory.high", want.MemoryHigh, got.MemoryHigh},
		{"memory.swap.max", want.SwapMax, got.SwapMax},
		{"pids.max", want.PidsMax, got.PidsMax},
	} {
		if !c.want.IsSet() && (!c.got.IsSet() || c.got.IsMax()) {
			continue
		}
		ceil := Ceiling{File: c.file, Want: c.want, Value: c.got, InForce: !mismatch[c.file]}
		switch {
		case ceil.InForce:
		case !c.got.IsSet():
			ceil.Why = ceil.Controller() + " controller not delegated"
			if c.file == fileSwapMax && got.MemoryMax.IsSet() {
				ceil.Why = WhyNoSwapAccount
			}
		default:
			ceil.Why = "the kernel has " + c.got.String()
		}
		all = append(all, ceil)
	}
	return all
}
