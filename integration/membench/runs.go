package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/sessionbox/sessionbox/integration/membench/plan"
	"github.com/sessionbox/sessionbox/integration/membench/score"
)

// guards are who can watch a run, nobody first.
func guards() []string {
	return []string{"off", "sessionbox", "earlyoom", "nohang", "systemd-oomd"}
}

// oneRun is a scenario played once.
type oneRun struct {
	Guest    string         `json:"guest"`
	Scenario string         `json:"scenario"`
	Guard    string         `json:"guard"`
	Records  []score.Record `json:"records"`
	// Waited is the share of the time in which somebody on the machine outside waited for
	// a processor: an emulated guest that does not get its own is no measure.
	Waited float64 `json:"waited"`
	// Talk is what else was said, of a run that came to nothing.
	Talk string `json:"talk,omitempty"`
}

func (r *oneRun) facts(s *plan.Scenario) score.Facts {
	f := score.Read(s, r.Records)
	switch {
	case f.Fail != "":
	case len(r.Records) == 0:
		f.Fail = "nothing was recorded"
	case r.Waited > busy && (f.Gap > hitch || f.Silent > 0):
		f.Fail = "the guest stood still, and the machine was busy with other things"
	}
	return f
}

// A guest that stands still for longer than hitch is no measure if it was not alone: in
// more than busy of the time somebody on the machine outside waited for a processor. The
// guest's own processors wait for each other for a tenth or two of it. It is asked of
// runs without a guard as of those with one.
const (
	busy  = .4
	hitch = 1.
)

// save adds runs to a file.
func save(path string, runs []oneRun) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
	}()
	enc := json.NewEncoder(f)
	for i := range runs {
		if err := enc.Encode(&runs[i]); err != nil {
			return err
		}
	}
	return nil
}

func load(path string) ([]oneRun, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []oneRun
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var r oneRun
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, r)
	}
	return all, lines.Err()
}

// kill is when, by the runs without a guard, the kernel kills in this guest and scenario:
// the one in the middle of them.
func kill(s *plan.Scenario, guest string, all []oneRun) float64 {
	var times []float64
	for i := range all {
		r := &all[i]
		if r.Guest != guest || r.Scenario != s.Name || r.Guard != "off" {
			continue
		}
		f := r.facts(s)
		if at, invalid := score.Baseline(s, &f); invalid == "" && at > 0 {
			times = append(times, at)
		}
	}
	slices.Sort(times)
	middle, _ := score.Median(times)
	return middle
}
