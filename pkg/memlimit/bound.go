package memlimit

// Bound is a limit that a box's memory counts against, with all that counts
// against it: the box's own, that of a cgroup around it, or the machine.
type Bound struct {
	Of    string // whose: BoundOwn, BoundHost, or the name of the cgroup around it
	Limit uint64 // bytes
	Used  uint64 // bytes, hard memory where that is known
}

// Names of bounds that are not those of a cgroup around the box.
const (
	BoundOwn  = "session"
	BoundHost = "host"
)

// Headroom is how much more fits.
func (b Bound) Headroom() uint64 { return b.Limit - min(b.Limit, b.Used) }

// Percent is how full it is.
func (b Bound) Percent() float64 {
	if b.Limit == 0 {
		return 100
	}
	return float64(b.Used) / float64(b.Limit) * 100
}

// Binding is the bound that is met first, the one with the least headroom; of
// equal ones the first. It is nil when there is none.
func Binding(all []Bound) *Bound {
	var least *Bound
	for i := range all {
		if least == nil || all[i].Headroom() < least.Headroom() {
			least = &all[i]
		}
	}
	return least
}
