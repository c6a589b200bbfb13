package main

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestSplitTiers(t *testing.T) {
	got, err := splitTiers(" unit,,vm ")
	if err != nil || strings.Join(got, " ") != "unit vm" {
		t.Errorf("splitTiers = %q, %v; want unit vm", got, err)
	}
	if _, err := splitTiers("unit,systmd"); err == nil {
		t.Error("a misspelt tier is accepted")
	}
}

func TestRunRefusesUnknownTiers(t *testing.T) {
	for _, c := range []struct{ tiers, require string }{{"nope", ""}, {"", "nope"}} {
		if code := run(t.Context(), []string{"-tiers", c.tiers}, c.require, io.Discard, io.Discard); code != 2 {
			t.Errorf("run(-tiers %q) requiring %q = %d, want 2", c.tiers, c.require, code)
		}
	}
	var out bytes.Buffer
	if code := run(t.Context(), []string{"-tiers", ""}, "unit", &out, io.Discard); code != 1 {
		t.Errorf("a required tier that was not chosen gives %d, want 1", code)
	}
	if want := "tier unit: SKIPPED though required: not among the chosen tiers\n"; out.String() != want {
		t.Errorf("it says %q, want %q", out.String(), want)
	}
}

func TestSummarize(t *testing.T) {
	ok := result{tier: "unit", took: 12300 * time.Millisecond}
	skipped := result{tier: "vm", skipped: "qemu-system-x86_64 is not installed"}
	failed := result{tier: "cgroup", failed: []string{"tests failed"}, counts: counts{passed: 3, failed: 1}, took: time.Second}
	for _, c := range []struct {
		name        string
		results     []result
		required    []string
		interrupted bool
		code        int
		text        string
	}{
		{"all well", []result{ok}, []string{"unit"}, false, 0, "tier unit: ok 12.3s\n"},
		{"skipped", []result{ok, skipped}, nil, false, 0, "tier unit: ok 12.3s\ntier vm: SKIPPED: qemu-system-x86_64 is not installed\n"},
		{"skipped though required", []result{skipped}, []string{"vm"}, false, 1, "tier vm: SKIPPED though required: qemu-system-x86_64 is not installed\n"},
		{"failed", []result{failed, ok}, nil, false, 1, "tier cgroup: FAILED 1.0s: tests failed (3 passed, 1 failed)\ntier unit: ok 12.3s\n"},
		{"interrupted", []result{ok}, nil, true, 130, "tier unit: ok 12.3s\n"},
	} {
		var out bytes.Buffer
		if code := summarize(c.results, c.required, c.interrupted, &out); code != c.code || out.String() != c.text {
			t.Errorf("%s: code %d, text %q; want %d, %q", c.name, code, out.String(), c.code, c.text)
		}
	}
}

func TestCounter(t *testing.T) {
	text := "=== RUN   TestA\n--- PASS: TestA (0.00s)\n    --- SKIP: TestA/b (0.00s)\n" +
		"        | --- PASS: TestInner (0.00s)\n--- FAIL: TestC (0.00s)\nok  \tx/y\t0.1s\nok  \tx/z\t0.1s [no tests to run]\n"
	var out bytes.Buffer
	c := &counter{w: &out}
	for i := range len(text) { // however the output is cut
		if _, err := c.Write([]byte{text[i]}); err != nil {
			t.Fatal(err)
		}
	}
	if want := (counts{passed: 1, failed: 1, skipped: 1, packages: 1}); c.counts != want {
		t.Errorf("counts = %+v, want %+v", c.counts, want)
	}
	if out.String() != text {
		t.Errorf("the output was changed: %q", out.String())
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name    string
		counts  counts
		err     error
		verbose bool
		want    string
	}{
		{"passed", counts{passed: 1, packages: 1}, nil, true, "tier x: ok 0.0s (1 passed)"},
		{"quiet", counts{packages: 1}, nil, false, "tier x: ok 0.0s"},
		{"all skipped", counts{skipped: 2, packages: 1}, nil, true, "tier x: SKIPPED: every test was skipped"},
		{"none", counts{}, nil, false, "tier x: SKIPPED: there are no tests"},
		{"failed", counts{failed: 1}, errors.New("exit status 1"), true, "tier x: FAILED 0.0s: TestA/b failed (0 passed, 1 failed)"},
		{"does not build", counts{}, errors.New("exit status 1"), true, "tier x: FAILED 0.0s: exit status 1: x.go:1: no"},
	} {
		r := result{tier: "x", counts: c.counts}
		if c.counts.failed > 0 {
			r.broken.names = []string{"TestA", "TestA/b"}
		}
		r.broken.after = []string{"x.go:1: no"}
		r.judge(c.err, c.verbose)
		if got := r.line(false); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A run may fail with no failed test: TestMain has found what the tests left.
func TestWhatTestMainSaysIsTold(t *testing.T) {
	text := "=== RUN   TestA\n    a.go:1: noise\n--- PASS: TestA (0.00s)\nPASS\nintegration: left behind: file x\nexit status 1\nFAIL\tx/y\t1.0s\nFAIL\n"
	c := &counter{w: io.Discard}
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	if got, want := c.failures.outside(), "integration: left behind: file x | FAIL\tx/y\t1.0s"; got != want {
		t.Errorf("outside = %q, want %q", got, want)
	}
}

func TestFailuresAreToldAgain(t *testing.T) {
	text := "=== RUN   TestA\n    a.go:1: noise of A\n=== RUN   TestA/b\n    a.go:2: b is wrong\n=== RUN   TestA/c\n    a.go:3: c is well\n" +
		"--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/b (0.00s)\n    --- PASS: TestA/c (0.00s)\n" +
		"--- FAIL: TestQuiet (0.00s)\n    q.go:1: quiet is wrong\nFAIL\n"
	c := &counter{w: io.Discard}
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	summarize([]result{{tier: "x", failed: []string{"tests failed"}, broken: c.failures}}, nil, false, &out)
	want := "-- tier x: TestA/b failed:\n    a.go:2: b is wrong\n-- tier x: TestQuiet failed:\n    q.go:1: quiet is wrong\nFAIL\ntier x: FAILED 0.0s: tests failed\n"
	if out.String() != want {
		t.Errorf("it says\n%s\nwant\n%s", out.String(), want)
	}
}

// Of two lanes each line is whole, and says whose it is.
func TestLanes(t *testing.T) {
	for _, c := range []struct {
		chosen string
		want   [][]string
	}{
		{"unit,cgroup,systemd,vm", [][]string{{"unit", "cgroup", "systemd"}, {"vm"}}},
		{"vm", [][]string{{"vm"}}},
		{"cgroup", [][]string{{"cgroup"}}},
	} {
		if got := lanes(strings.Split(c.chosen, ",")); !reflect.DeepEqual(got, c.want) {
			t.Errorf("lanes(%s) = %q, want %q", c.chosen, got, c.want)
		}
	}
	var mu sync.Mutex
	var out strings.Builder
	a, b := &laneWriter{mu: &mu, w: &out, shared: true}, &laneWriter{mu: &mu, w: &out, prefix: "vm| ", shared: true}
	for _, w := range []struct {
		w    io.Writer
		text string
	}{{a, "on"}, {b, "two\nthr"}, {a, "e\n"}, {b, "ee\n"}} {
		if n, err := io.WriteString(w.w, w.text); n != len(w.text) || err != nil {
			t.Errorf("write %q: %d, %v", w.text, n, err)
		}
	}
	if got, want := out.String(), "vm| two\none\nvm| three\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
