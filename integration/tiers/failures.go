package main

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// digestLines is how much of a failed test's own output its digest shows: the end of
// it, where the failure is.
const digestLines = 40

// failures collect what failed tests printed, to show it once more after the last
// tier: CI keeps little more than the end of a long log.
type failures struct {
	current string              // the test that prints now
	printed map[string][]string // the last lines of every test that is not known to have passed
	names   []string            // of the failed ones, in order
	after   []string            // the last lines since a test of its own ended: what TestMain says
}

var (
	startLine = regexp.MustCompile(`^=== (?:RUN|CONT|NAME)\s+(\S+)$`)
	endLine   = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+)`)
)

func (f *failures) take(line []byte) {
	if f.printed == nil {
		f.printed = map[string][]string{}
	}
	if m := startLine.FindSubmatch(line); m != nil {
		f.current = string(m[1])
		return
	}
	if m := endLine.FindSubmatch(line); m != nil {
		name := string(m[2])
		if string(m[1]) == "FAIL" {
			f.names = append(f.names, name)
		} else {
			delete(f.printed, name)
		}
		// Without -v a test's output comes after its verdict.
		f.current, f.after = name, nil
		return
	}
	f.after = appendLast(f.after, string(line))
	if bytes.HasPrefix(line, []byte("=== ")) || f.current == "" {
		return
	}
	f.printed[f.current] = appendLast(f.printed[f.current], string(line))
}

// appendLast appends a line and lets go of the first of too many.
func appendLast(lines []string, line string) []string {
	lines = append(lines, line)
	if len(lines) > digestLines {
		lines = slices.Delete(lines, 0, len(lines)-digestLines)
	}
	return lines
}

// leaves are the failed tests that no failed subtest explains.
func (f *failures) leaves() []string {
	return slices.DeleteFunc(slices.Clone(f.names), func(name string) bool {
		return slices.ContainsFunc(f.names, func(other string) bool { return strings.HasPrefix(other, name+"/") })
	})
}

// outside is what go test and TestMain said after the last test: why a run without a
// failed test failed.
func (f *failures) outside() string {
	lines := slices.DeleteFunc(slices.Clone(f.after), func(line string) bool {
		return line == "" || line == "PASS" || line == "FAIL" || strings.HasPrefix(line, "exit status ")
	})
	return strings.Join(lines, " | ")
}

// digest shows the failed tests' output.
func (f *failures) digest(tier string, w io.Writer) {
	for _, name := range f.leaves() {
		fmt.Fprintf(w, "-- tier %s: %s failed:\n", tier, name)
		for _, line := range f.printed[name] {
			fmt.Fprintln(w, line)
		}
	}
}
