package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// A result is what came of a tier.
type result struct {
	tier    string
	skipped string   // why it did not run, "" if it did
	failed  []string // what was wrong with it
	counts  counts
	broken  failures // what the failed tests printed
	took    time.Duration
}

// line is the result for people, and for CI to read.
func (r result) line(required bool) string {
	what := "ok " + seconds(r.took)
	switch {
	case len(r.failed) > 0:
		what = "FAILED " + seconds(r.took) + ": " + strings.Join(r.failed, "; ")
	case r.skipped != "" && required:
		what = "SKIPPED though required: " + r.skipped
	case r.skipped != "":
		what = "SKIPPED: " + r.skipped
	}
	if r.skipped == "" && r.counts.any() {
		what += " (" + r.counts.String() + ")"
	}
	return fmt.Sprintf("tier %s: %s", r.tier, what)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }

// summarize prints what failed, then a line for every tier that was chosen or required,
// and returns the exit code: 0 if all that ran passed and all that is required ran.
func summarize(results []result, required []string, interrupted bool, w io.Writer) int {
	code := 0
	for _, name := range required {
		if !slices.ContainsFunc(results, func(r result) bool { return r.tier == name }) {
			results = append(results, result{tier: name, skipped: "not among the chosen tiers"})
		}
	}
	for _, r := range results {
		r.broken.digest(r.tier, w)
	}
	for _, r := range results {
		must := slices.Contains(required, r.tier)
		if len(r.failed) > 0 || r.skipped != "" && must {
			code = 1
		}
		fmt.Fprintln(w, r.line(must))
	}
	if interrupted {
		return 130
	}
	return code
}
