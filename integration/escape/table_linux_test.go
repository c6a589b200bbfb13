package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTable: ids are those of the list, each once, and every row says what a test has
// to know.
func TestTable(t *testing.T) {
	id := regexp.MustCompile(`^E[0-3][0-9][a-z]?$`)
	seen := map[string]bool{}
	for _, k := range techniques() {
		switch {
		case !id.MatchString(k.ID):
			t.Errorf("%q is not an id", k.ID)
		case seen[k.ID]:
			t.Errorf("%s is there twice", k.ID)
		case k.run == nil || k.Description == "" || k.Payloads < 1:
			t.Errorf("%s is not complete: %+v", k.ID, k)
		case !slices.Contains([]string{dies, stray, reported, unkillable}, k.Expect):
			t.Errorf("%s expects %q", k.ID, k.Expect)
		case k.Expect == stray && k.SeenBy != "E":
			t.Errorf("%s is a stray that is seen by %q: a stray is known by its cookie alone", k.ID, k.SeenBy)
		case k.Expect == reported && k.SeenBy != "":
			t.Errorf("%s is only reported and yet seen by %q", k.ID, k.SeenBy)
		}
		for _, n := range k.Needs {
			if _, ok := probes()[n]; !ok {
				t.Errorf("%s needs %q, which nobody probes", k.ID, n)
			}
		}
		seen[k.ID] = true
	}
	for name := range stages() {
		if seen[name] {
			t.Errorf("%s is a technique and a stage", name)
		}
	}
}

// TestParamsTravel: what one stage was told reaches the next, and the end of life
// does not move.
func TestParamsTravel(t *testing.T) {
	in := []string{"--dir", "/d", "--life", "90s", "--label", "l", "--ignore", "TERM,HUP", "--noisy",
		"--become", "7", "--arg", "a b", "--out-cgroup", "/c", "--socket", "/s", "--ssh", "u@h"}
	first, err := parseParams("payload", in)
	if err != nil {
		t.Fatal(err)
	}
	if d := time.Until(first.until); d > 90*time.Second || d < 60*time.Second {
		t.Errorf("life ends in %v, want 90s", d)
	}
	time.Sleep(2 * time.Millisecond)
	second, err := parseParams("payload", first.args())
	if err != nil {
		t.Fatal(err)
	}
	if second.until.UnixMilli() != first.until.UnixMilli() {
		t.Errorf("end of life moved from %v to %v", first.until, second.until)
	}
	second.until = first.until
	if first != second {
		t.Errorf("told %+v, arrived %+v", first, second)
	}
}

func TestShellLineRefusesQuotes(t *testing.T) {
	if _, err := (params{dir: "/it's"}).shellLine(); err == nil {
		t.Error("a path with a quote was taken into a shell's line")
	}
	line, err := (params{dir: "/a b", become: -1}).shellLine()
	if err != nil || !strings.Contains(line, "'/a b'") {
		t.Errorf("line %q, error %v", line, err)
	}
}

func TestUnknownNeedIsMissing(t *testing.T) {
	if got := missing([]string{"no such need"}); len(got) != 1 {
		t.Errorf("missing = %q, want the need", got)
	}
}

func TestEnvInt(t *testing.T) {
	n, err := envInt([]byte("A=1\x00SSH_AGENT_PID=42\x00B=2"), "SSH_AGENT_PID")
	if n != 42 || err != nil {
		t.Errorf("envInt = %d, %v; want 42", n, err)
	}
	if _, err := envInt([]byte("XSSH_AGENT_PID=42"), "SSH_AGENT_PID"); err == nil {
		t.Error("a name that only ends like it was found")
	}
}
