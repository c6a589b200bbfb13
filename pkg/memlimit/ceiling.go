package memlimit

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
}

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
			ceil.Why = "the controller is not available here"
		default:
			ceil.Why = "the kernel has " + c.got.String()
		}
		all = append(all, ceil)
	}
	return all
}
