package main

import (
	"time"

	"github.com/sessionbox/sessionbox/integration/membench/score"
)

// stall keeps the longest time that a process has stood still.
func (m *member) stall(now time.Duration) {
	if beat := time.Duration(m.page.beat.Load()); beat != 0 {
		m.stood = max(m.stood, now-beat)
	}
}

// ranOn is the longest that the one who works may stand still, facts/memory.md §4.
const ranOn = 2 * time.Second

// sum says at the end what only then is known.
func (r *stage) sum() {
	stood, left, reached := map[string]time.Duration{}, map[string]int{}, map[string]bool{}
	for _, m := range r.cast {
		stood[m.session] = max(stood[m.session], m.stood)
		if !m.dead {
			left[m.session]++
		}
		if before, known := reached[m.session]; !known || before {
			reached[m.session] = m.reached
		}
	}
	check := func(name string, ok bool) { r.tape.say(score.Record{What: score.Check, Name: name, OK: ok}) }
	for session, d := range stood {
		r.tape.say(score.Record{What: score.Stalled, Session: session, Seconds: d.Seconds()})
		check(session+" has it all", reached[session])
		check(session+" ran on", d <= ranOn)
		if r.closing(session) {
			check("gone", left[session] == 0)
		}
		if session == "bystander" {
			check("bystander lives", left[session] > 0)
		}
	}
}
