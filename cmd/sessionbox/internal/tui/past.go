package tui

import (
	"time"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// past are the looks before the latest, as far as something is made of them: rates
// and trends.
type past struct {
	looks  []Snapshot
	trends map[string][]uint64 // hard memory by session, oldest first
}

// longest trend that is kept.
const longestTrend = 60

// rates are what two looks make.
type rates struct {
	stats map[string]*session.Stats // by the session's id
	cpu   map[who]float64
}

// who is a process: a number alone may be somebody else's by now.
type who struct {
	pid   int
	start uint64
}

func whoIs(p *session.Process) who { return who{p.PID, p.Start} }

// add takes the latest look and gives the rates up to it. Those are made over half
// of the interval at least: a look out of turn, after a key, would make them jump.
func (p *past) add(now Snapshot, every time.Duration) rates {
	var before Snapshot
	for i, l := range p.looks {
		if i == 0 || now.At.Sub(l.At) >= every/2 {
			before = l
		}
	}
	for len(p.looks) > 1 && p.looks[0].At.Before(before.At) {
		p.looks = p.looks[1:]
	}
	p.looks = append(p.looks, now)

	r := rates{stats: map[string]*session.Stats{}, cpu: map[who]float64{}}
	all := now.Stats(before.Look)
	trends := map[string][]uint64{}
	for i := range all {
		s := &all[i]
		r.stats[s.ID] = s
		trend := p.trends[s.ID]
		if m := s.Usage.MemoryBytes; m != nil {
			trend = append(trend, *m)
		}
		trends[s.ID] = trend[max(0, len(trend)-longestTrend):]
	}
	p.trends = trends

	was := map[who]float64{}
	for _, list := range before.Alive {
		for i := range list {
			was[whoIs(&list[i])] = list[i].CPUSeconds
		}
	}
	for _, list := range now.Alive {
		for i := range list {
			id := whoIs(&list[i])
			if then, ok := was[id]; ok {
				if percent, ok := session.CPUPercent(then, list[i].CPUSeconds, now.At.Sub(before.At)); ok {
					r.cpu[id] = percent
				}
			}
		}
	}
	return r
}
