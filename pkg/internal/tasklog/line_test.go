package tasklog

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 8, 1, 12, 0, 0, 5, time.UTC)

// What is written is a line of the CRI log format, and is read as it was written.
func TestLine(t *testing.T) {
	stamp := appendStamp(nil, noon)
	for _, c := range []struct {
		line Line
		want string
	}{
		{Line{Time: noon, Text: []byte("hello")}, "2026-08-01T12:00:00.000000005Z stdout F hello\n"},
		{Line{Time: noon, Stream: Stderr, Text: []byte("no end"), Partial: true}, "2026-08-01T12:00:00.000000005Z stderr P no end\n"},
		{Line{Time: noon, Text: []byte("")}, "2026-08-01T12:00:00.000000005Z stdout F \n"},
		{Line{Time: noon, Text: []byte(" \x00\xff\r\x1b[31m F ")}, "2026-08-01T12:00:00.000000005Z stdout F  \x00\xff\r\x1b[31m F \n"},
		{Line{Time: noon, Stream: Stderr, Partial: true, Missing: 4096}, "2026-08-01T12:00:00.000000005Z stderr P:lost=4096 \n"},
	} {
		l := c.line
		got := appendLine(nil, stamp, l.Stream, l.Partial, l.Text)
		if l.Missing > 0 {
			got = appendLost(nil, stamp, l.Stream, l.Missing)
		}
		if string(got) != c.want {
			t.Errorf("wrote %q, want %q", got, c.want)
		}
		if n := len(got) - len(l.Text); n > headMax {
			t.Errorf("%q has %d bytes beside its text, more than %d", got, n, headMax)
		}
		back, err := parseLine(bytes.TrimSuffix(got, []byte("\n")))
		if err != nil || !equal(back, l) {
			t.Errorf("%q is read as %+v, %v", got, back, err)
		}
	}
}

func equal(a, b Line) bool {
	return a.Time.Equal(b.Time) && a.Stream == b.Stream && bytes.Equal(a.Text, b.Text) && a.Partial == b.Partial && a.Missing == b.Missing
}

func TestForeignLines(t *testing.T) {
	for _, good := range []string{
		"2026-08-01T12:00:00Z stdout F:later=1 text", // a tag of tomorrow
		"2026-08-01T12:00:00.5+02:00 stderr P text",
	} {
		if l, err := parseLine([]byte(good)); err != nil || string(l.Text) != "text" {
			t.Errorf("%q is read as %q, %v", good, l.Text, err)
		}
	}
	for _, bad := range []string{
		"", " ", "text", "2026-08-01T12:00:00Z stdout F", "2026-08-01T12:00:00Z stdin F text", "2026-08-01 stdout F text",
		"2026-08-01T12:00:00Z stdout X text", "2026-08-01T12:00:00Z stdout  text",
		"2026-08-01T12:00:00Z stdout P:lost=-1 ", "2026-08-01T12:00:00Z stdout P:lost=0 ", "2026-08-01T12:00:00Z stdout P:lost=9 text",
		"2026-08-01T12:00:00Z stdout P:lost=99999999999999999999 ", strings.Repeat("2", 1000) + " stdout F text",
	} {
		if l, err := parseLine([]byte(bad)); err == nil {
			t.Errorf("%q is read as %+v", bad, l)
		}
	}
}

// Whatever is read means the same when it is written again.
func FuzzParseLine(f *testing.F) {
	for _, s := range []string{"2026-08-01T12:00:00.000000005Z stdout F hello", "2026-08-01T12:00:00Z stderr P:lost=12 ",
		"2026-08-01T12:00:00.5+02:00 stderr P:x:lost=1:lost=2 ", "0000-01-01T00:00:00Z stdout F  ", "x"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := parseLine(b)
		if err != nil {
			return
		}
		if l.Missing < 0 || l.Missing > 0 && len(l.Text) > 0 {
			t.Fatalf("%q is read as %+v", b, l)
		}
		if y := l.Time.UTC().Year(); bytes.IndexByte(l.Text, '\n') >= 0 || y < 0 || y > 9999 {
			return // cannot come from a line of a segment, or from a clock
		}
		again := appendLine(nil, appendStamp(nil, l.Time), l.Stream, l.Partial, l.Text)
		if l.Missing > 0 {
			l.Partial = true // that is how it is written
			again = appendLost(nil, appendStamp(nil, l.Time), l.Stream, l.Missing)
		}
		back, err := parseLine(again[:len(again)-1])
		if err != nil || !equal(back, l) {
			t.Fatalf("%q is read as %+v, which is written as %q and read as %+v, %v", b, l, again, back, err)
		}
	})
}
