package score

import (
	"fmt"
	"math"
	"slices"

	"github.com/sessionbox/sessionbox/integration/membench/plan"
)

// Verdict is what a run is worth.
type Verdict struct {
	// Invalid says why the run says nothing about who guards; "" if it does.
	Invalid string `json:"invalid,omitempty"`
	// Points are 0 to 100; the parts make them up unless the host did not survive.
	Points  float64 `json:"points"`
	Host    bool    `json:"host_survived"`
	Why     string  `json:"why_not,omitempty"`
	Lead    float64 `json:"lead_points"`
	Victim  float64 `json:"victim_points"`
	False   float64 `json:"false_points"`
	NoLoss  float64 `json:"no_loss_points"`
	LeadFor float64 `json:"lead_seconds"` // before the kill of a run without a guard; 0 for none
	// Missed are expectations of the scenario that were not met; they cost no points of
	// their own.
	Missed []string `json:"missed,omitempty"`
}

// What each part of a score is worth, facts/memory.md §4.
const (
	forLead   = 35
	forVictim = 25
	forFalse  = 25
	forNoLoss = 15

	// leadWanted is the lead that is enough, if the run without a guard lasted twice as
	// long.
	leadWanted = 10.
	// gapMost is from when on a host has not survived.
	gapMost = 5.
)

// Baseline judges a run without a guard: Invalid if it is not what its scenario says.
// Its kill is what leads are counted to.
func Baseline(s *plan.Scenario, f *Facts) (kill float64, invalid string) {
	if why := f.none(s); why != "" {
		return 0, why
	}
	switch {
	case !s.Expect.OOM:
		return 0, ""
	case f.Gone == nil && !f.Ended:
		return 0, "the guest was lost before anybody was killed" // no time to count to
	case f.Gone == nil:
		return 0, "nobody was killed, and somebody should have been"
	}
	return *f.Gone, ""
}

// none says why a run is none of its scenario, whoever guarded it.
func (f *Facts) none(s *plan.Scenario) string {
	switch {
	case f.Fail != "":
		return f.Fail
	case !f.Began:
		return "it did not begin"
	case f.Rate != 0 && f.Rate < worst:
		return fmt.Sprintf("it grew at %.0f %% of its rate", 100*f.Rate)
	}
	for _, name := range s.Expect.Valid {
		if f.Ended && !f.Checks[name] {
			return "not " + name
		}
	}
	return ""
}

// Judge scores a run. Kill is when, by the runs without a guard, the kernel kills
// without one; 0 if it does not.
func Judge(s *plan.Scenario, f *Facts, kill float64, length float64) Verdict {
	v := Verdict{Host: true, Invalid: f.none(s)}
	if v.Invalid == "" && s.Expect.OOM && kill == 0 {
		v.Invalid = "there is no run without a guard to compare it to"
	}
	if v.Invalid != "" {
		v.Host = false
		return v
	}
	v.miss(s, f, kill)
	v.Lead = forLead * v.lead(s, f, kill)
	if right(s, f) {
		v.Victim = forVictim
	}
	v.False = forFalse * max(0, 1-float64(f.False)/max(1, length/3600))
	if s.Expect.Closes || len(f.Lost) == 0 {
		v.NoLoss = forNoLoss
	}
	switch {
	case !f.Ended:
		v.Why = "the host did not come to the end of the run"
	case f.Gap >= gapMost:
		v.Why = fmt.Sprintf("the control loop stood still for %.1f s", f.Gap)
	case f.Silent > 0:
		v.Why = fmt.Sprintf("ssh did not answer %d of %d times", f.Silent, f.Probes)
	case len(f.Outside) > 0:
		v.Why = fmt.Sprintf("the kernel killed %s", f.Outside[0])
	}
	v.Host = v.Why == ""
	if v.Host {
		v.Points = v.Lead + v.Victim + v.False + v.NoLoss
	}
	return v
}

// lead is the share of the points for a warning in time: by how long it came before
// the kill; where nobody is killed, by whether all that was to happen did.
func (v *Verdict) lead(s *plan.Scenario, f *Facts, kill float64) float64 {
	switch {
	case s.Expect.OOM:
		if f.Warn == nil {
			return 0
		}
		v.LeadFor = kill - *f.Warn
		return min(1, max(0, v.LeadFor/min(leadWanted, kill/2)))
	case s.Expect.Within > 0:
		if f.Thrash == nil || f.Warn == nil || *f.Warn-*f.Thrash > s.Expect.Within.Seconds() {
			return 0
		}
		return 1
	}
	for _, name := range s.Expect.Checks {
		if !f.Checks[name] {
			return 0
		}
	}
	return 1
}

// right says whether exactly those were touched that should be.
func right(s *plan.Scenario, f *Facts) bool {
	e := &s.Expect
	if slices.Contains(f.Victims, e.Never) && e.Never != "" {
		return false
	}
	for _, x := range f.Victims {
		if !slices.Contains(e.Victims, x) {
			return false
		}
	}
	if e.Any {
		return len(f.Victims) > 0
	}
	return len(f.Victims) == len(e.Victims)
}

// miss lists what else was to be.
func (v *Verdict) miss(s *plan.Scenario, f *Facts, kill float64) {
	e := &s.Expect
	say := func(bad bool, format string, args ...any) {
		if bad {
			v.Missed = append(v.Missed, fmt.Sprintf(format, args...))
		}
	}
	before := func(at *float64) float64 {
		if at == nil {
			return math.Inf(-1)
		}
		return kill - *at
	}
	if e.OOM {
		say(before(f.Warn) < e.Lead.Seconds(), "no warning %v before the kill", e.Lead)
		say(e.Critical > 0 && before(f.Critical) < e.Critical.Seconds(), "not critical %v before the kill", e.Critical)
	}
	say(e.Within > 0 && f.Thrash == nil, "the host never thrashed")
	say(e.Lives && len(f.Lost) > 0 && !e.Closes, "%v lost work", f.Lost)
	say(e.First != "" && (len(f.Victims) == 0 || f.Victims[0] != e.First), "%s was not the first", e.First)
	say(e.Named > 0 && f.Named != e.Named, "%d sessions are named", f.Named)
	for _, name := range e.Checks {
		say(!f.Checks[name], "not %s", name)
	}
}
