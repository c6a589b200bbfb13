package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

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
		"off              4       50 /  50       0.0 /  0.0      0    0.2  INVALID 1: nobody was killed",
		"sessionbox       3       82 /  82       5.0 /  5.0      0    0.2  INVALID 1: nothing was recorded",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "bookworm") {
		t.Error("a guest is in it that was not run")
	}
}
