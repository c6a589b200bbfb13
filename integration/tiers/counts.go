package main

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
)

// counts are the verdicts in the output of go test, subtests included.
type counts struct {
	passed, failed, skipped int
	packages                int // packages with a closing "ok"
}

func (c counts) any() bool { return c.passed+c.failed+c.skipped > 0 }

// String is "12 passed, 1 failed, 3 skipped".
func (c counts) String() string {
	s := fmt.Sprintf("%d passed", c.passed)
	if c.failed > 0 {
		s += fmt.Sprintf(", %d failed", c.failed)
	}
	if c.skipped > 0 {
		s += fmt.Sprintf(", %d skipped", c.skipped)
	}
	return s
}

// A counter counts the verdicts in what is written through it.
type counter struct {
	w        io.Writer
	counts   counts
	failures failures
	line     []byte
}

var (
	verdictLine = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): `)
	packageLine = regexp.MustCompile(`^ok  \t`)
)

// Write passes p on as it is.
func (c *counter) Write(p []byte) (int, error) {
	c.line = append(c.line, p...)
	for {
		i := bytes.IndexByte(c.line, '\n')
		if i < 0 {
			break
		}
		c.take(c.line[:i])
		c.line = c.line[i+1:]
	}
	return c.w.Write(p)
}

func (c *counter) take(line []byte) {
	c.failures.take(line)
	if packageLine.Match(line) && !bytes.Contains(line, []byte("[no tests to run]")) {
		c.counts.packages++
	}
	m := verdictLine.FindSubmatch(line)
	if m == nil {
		return
	}
	switch string(m[1]) {
	case "PASS":
		c.counts.passed++
	case "FAIL":
		c.counts.failed++
	case "SKIP":
		c.counts.skipped++
	}
}
