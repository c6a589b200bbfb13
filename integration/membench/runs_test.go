package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/integration/membench/plan"
	"github.com/sessionbox/sessionbox/integration/membench/score"
)

func leak(guard string, killed float64, records ...score.Record) oneRun {
	r := oneRun{Guest: "trixie", Scenario: "1", Guard: guard, Records: []score.Record{{What: score.Go}}}
	if killed > 0 {
		r.Records = append(r.Records, score.Record{At: killed, What: score.Died, Session: "a"})
	}
	r.Records = append(r.Records, records...)
	r.Records = append(r.Records, score.Record{What: score.End, Seconds: .2, N: 9})
	return r
}

// TestTeller: each run has the share of its own time, from go on.
func TestTeller(t *testing.T) {
	var waits time.Duration
	var b bytes.Buffer
	tell := teller{w: &b, waits: func() time.Duration { return waits }}
	say := func(what string) {
		r := score.Record{What: what}
		if _, err := tell.Write([]byte("talk\n" + r.Line() + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	for _, what := range []string{score.Ready, score.Go, score.Progress, score.End, score.Ready} {
		say(what)
	}
	waits = time.Hour // between go and go, which is nobody's
	say(score.Go)
	waits += 24 * time.Hour
	say(score.End)
	if len(tell.shares) != 2 || tell.shares[0] != 0 || tell.shares[1] < 1 {
		t.Errorf("shares %v", tell.shares)
	}
	if s := b.String(); strings.Contains(s, "talk") || strings.Contains(s, score.Progress) || !strings.Contains(s, `"end"`) {
		t.Errorf("it tells %q", s)
	}
	r := leak("off", 20)
	r.Waited = .9
	s, _ := plan.Find("1")
	if f := r.facts(&s); f.Fail != "" {
		t.Errorf("a run that was not held up is not taken: %+v", f)
	}
	r.Records = append(r.Records, score.Record{What: score.Gap, Seconds: 2})
	if f := r.facts(&s); !strings.Contains(f.Fail, "busy") {
		t.Errorf("a run that stood still on a busy machine is taken: %+v", f)
	}
	r.Waited = .1
	if f := r.facts(&s); f.Fail != "" {
		t.Errorf("a run that stood still by itself is not taken: %+v", f)
	}
}

// TestTable: runs that were made one after the other are judged together, and what is
// none is not counted.
func TestTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs")
	warned := func(at float64) []score.Record {
		return []score.Record{
			{At: at, What: score.Warned, Name: "a", Level: "critical", Change: "raised"},
			{At: at + 1, What: score.Acted, Do: "freeze", Session: "a", OK: true},
		}
	}
	first := []oneRun{leak("off", 20), leak("off", 0), leak("off", 18), leak("sessionbox", 0, warned(10)...)}
	second := []oneRun{leak("off", 22), leak("sessionbox", 0, warned(15)...), {Guest: "trixie", Scenario: "1", Guard: "sessionbox"}}
	for _, runs := range [][]oneRun{first, second} {
		if err := save(path, runs); err != nil {
			t.Fatal(err)
		}
	}
	all, err := load(path)
	if err != nil || len(all) != len(first)+len(second) {
		t.Fatalf("%d runs, %v", len(all), err)
	}
	var b bytes.Buffer
	if err := printTable(&b, all); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"killed at 20.0 s without a guard",
		"off              4       50 /  50       0.0 /  0.0      0    0.2    0%  INVALID 1: nobody was killed",
		"sessionbox       3       82 /  82       5.0 /  5.0      0    0.2    0%  INVALID 1: nothing was recorded",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "bookworm") {
		t.Error("a guest is in it that was not run")
	}
}
