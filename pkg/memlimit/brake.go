package memlimit

// BrakeAt is where a brake belongs below a ceiling: at 90 %, and 64 MiB below it. At
// 95 % a fast hog is killed within 7 s, at 90 % it is held for more than 40 (lab,
// facts/memory.md, fact 4). A low ceiling has it at three quarters.
func BrakeAt(ceiling uint64) uint64 {
	const room = 64 << 20
	at := min(scale(ceiling, .90), ceiling-min(ceiling, room))
	return max(at, ceiling/4*3)
}

// BrakeMoved says whether a brake is not where it belongs below a ceiling: the kernel counts
// pages.
func BrakeMoved(high, ceiling uint64) bool {
	const slack = 1 << 20
	at := BrakeAt(ceiling)
	return max(high, at)-min(high, at) > slack
}

// brakeHelps says whether what is over the brake can be had back: twice over. Else
// the brake can only stall (fact 3).
func brakeHelps(c *Candidate, p *Spot, high uint64) bool {
	over := c.Hard - min(c.Hard, high)
	return sum(c.Soft, min(c.Anon, p.SwapRoom)) >= 2*over
}
