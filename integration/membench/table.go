package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sessionbox/sessionbox/integration/membench/plan"
	"github.com/sessionbox/sessionbox/integration/membench/score"
)

// row is what the runs of one guard in one scenario and guest came to.
type row struct {
	guest, guard string
	runs         int
	invalid      []string
	points       []float64
	leads        []float64
	false        int
	gap, waited  float64
	notes        []string // why a host did not survive, what was missed, each once
}

// printTable prints one block per scenario and guest, one line per guard.
func printTable(w io.Writer, all []oneRun) error {
	for _, s := range plan.All() {
		for _, guest := range guestsOf(&s, all) {
			at := kill(&s, guest, all)
			fmt.Fprintf(w, "\n%s  %s (%s)", s.Name, s.Title, guest)
			if at > 0 {
				fmt.Fprintf(w, "; killed at %.1f s without a guard", at)
			}
			fmt.Fprintf(w, "\n  %-13s %4s  %13s  %15s  %5s  %5s  %4s\n", "guard", "runs", "score med/min", "lead s med/min", "false", "gap s", "busy")
			for _, guard := range guards() {
				r := rowOf(&s, guest, guard, at, all)
				if r.runs == 0 {
					continue
				}
				if _, err := fmt.Fprintln(w, r.line(&s)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func guestsOf(s *plan.Scenario, all []oneRun) []string {
	var guests []string
	for i := range all {
		if all[i].Scenario == s.Name && !slices.Contains(guests, all[i].Guest) {
			guests = append(guests, all[i].Guest)
		}
	}
	return guests
}

func rowOf(s *plan.Scenario, guest, guard string, kill float64, all []oneRun) row {
	r := row{guest: guest, guard: guard}
	for i := range all {
		one := &all[i]
		if one.Guest != guest || one.Scenario != s.Name || one.Guard != guard {
			continue
		}
		r.runs++
		f := one.facts(s)
		if guard == "off" {
			if _, invalid := score.Baseline(s, &f); invalid != "" {
				r.invalid = append(r.invalid, invalid)
				continue
			}
		}
		v := score.Judge(s, &f, kill, s.Length.Seconds())
		if v.Invalid != "" {
			r.invalid = append(r.invalid, v.Invalid)
			continue
		}
		r.points, r.leads = append(r.points, v.Points), append(r.leads, v.LeadFor)
		r.false += f.False
		r.gap, r.waited = max(r.gap, f.Gap), max(r.waited, one.Waited)
		for _, note := range append(v.Missed, v.Why) {
			if note != "" && !slices.Contains(r.notes, note) {
				r.notes = append(r.notes, note)
			}
		}
	}
	return r
}

func (r *row) line(s *plan.Scenario) string {
	text := fmt.Sprintf("  %-13s %4d", r.guard, r.runs)
	if len(r.points) > 0 {
		middle, worst := score.Median(r.points)
		text += fmt.Sprintf("  %7.0f /%4.0f", middle, worst)
		lead := fmt.Sprintf("  %15s", "-")
		if s.Expect.OOM {
			middle, worst = score.Median(r.leads)
			lead = fmt.Sprintf("  %8.1f /%5.1f", middle, worst)
		}
		text += lead + fmt.Sprintf("  %5d  %5.1f  %3.0f%%  ", r.false, r.gap, 100*r.waited)
	} else {
		text += "  none is valid  "
	}
	if n := len(r.invalid); n > 0 {
		text += fmt.Sprintf("INVALID %d: %s; ", n, strings.Join(slices.Compact(slices.Sorted(slices.Values(r.invalid))), "; "))
	}
	return strings.TrimRight(text+strings.Join(r.notes, "; "), " ;")
}
