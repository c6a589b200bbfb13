package memlimit

import "time"

// peaks is the most that was seen within the last hour, in steps of five minutes.
type peaks struct {
	slots [12]uint64
	slot  int
	began time.Duration
}

const peakStep = 5 * time.Minute

func (p *peaks) add(at time.Duration, n uint64) {
	for range len(p.slots) {
		if at-p.began < peakStep && at >= p.began {
			break
		}
		p.slot = (p.slot + 1) % len(p.slots)
		p.slots[p.slot] = 0
		p.began += peakStep
	}
	if at-p.began >= peakStep || at < p.began { // more than an hour was missed
		*p = peaks{began: at}
	}
	p.slots[p.slot] = max(p.slots[p.slot], n)
}

func (p *peaks) most() uint64 {
	var most uint64
	for _, n := range p.slots {
		most = max(most, n)
	}
	return most
}
