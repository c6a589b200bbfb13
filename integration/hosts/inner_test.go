package hosts_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// An innerTest is a test of the suite that ran inside a host, as its -test.v output
// tells it.
type innerTest struct {
	name    string
	verdict string // PASS, FAIL, SKIP, or "" if it never ended
	output  []string
	subs    []*innerTest
}

var (
	innerRun     = regexp.MustCompile(`^=== (?:RUN|CONT|NAME|PAUSE)\s+(\S+)`)
	innerVerdict = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+) \(`)
)

// parseInner makes the tree of tests from the output of a suite. What is printed
// while several tests run in parallel goes to the one that -test.v named last.
func parseInner(output string) []*innerTest {
	var (
		top     []*innerTest
		byName  = map[string]*innerTest{}
		current *innerTest
	)
	get := func(name string) *innerTest {
		if t := byName[name]; t != nil {
			return t
		}
		t := &innerTest{name: name}
		byName[name] = t
		// A test's own name may hold slashes, so the parent is the longest that is known.
		for parent := name; ; {
			i := strings.LastIndexByte(parent, '/')
			if i < 0 {
				top = append(top, t)
				return t
			}
			parent = parent[:i]
			if p := byName[parent]; p != nil {
				p.subs = append(p.subs, t)
				return t
			}
		}
	}
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\r\n")
		if m := innerRun.FindStringSubmatch(line); m != nil {
			current = get(m[1])
			continue
		}
		if m := innerVerdict.FindStringSubmatch(line); m != nil {
			current = get(m[2])
			current.verdict = m[1]
			continue
		}
		if current != nil {
			current.output = append(current.output, line)
		}
	}
	return top
}

// report makes each inner test a subtest of t with the same verdict, so that go test
// counts them, names the failed ones and says why others were skipped.
func report(t *testing.T, tests []*innerTest) {
	for _, inner := range tests {
		t.Run(lastPart(inner.name), func(t *testing.T) {
			report(t, inner.subs)
			text := strings.Join(inner.output, "\n")
			switch inner.verdict {
			case "PASS":
			case "SKIP":
				t.Skipf("inside: %s", strings.TrimSpace(text))
			case "FAIL":
				if text == "" && t.Failed() {
					return // for its subtests, which said why
				}
				t.Errorf("failed inside:\n%s", text)
			default:
				t.Errorf("never ended inside:\n%s", text)
			}
		})
	}
}

func lastPart(name string) string {
	return name[strings.LastIndexByte(name, '/')+1:]
}

// anyFailed reports whether a test in the tree has no good end.
func anyFailed(tests []*innerTest) bool {
	return slices.ContainsFunc(tests, func(t *innerTest) bool {
		return t.verdict == "FAIL" || t.verdict == "" || anyFailed(t.subs)
	})
}
