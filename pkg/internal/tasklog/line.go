package tasklog

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"time"
)

// Stream is one of the two outputs of a command.
type Stream uint8

// The two streams.
const (
	Stdout Stream = iota
	Stderr
)

func (s Stream) String() string {
	if s == Stderr {
		return "stderr"
	}
	return "stdout"
}

// PartMax is how many bytes of text a line of the log has at most: as many as
// container runtimes write, which readers of the format are prepared for.
const PartMax = 16 << 10

// headMax is the most that a line of the log has beside its text.
const headMax = 64

// Line is one line of a log.
type Line struct {
	Time   time.Time // when it was read from the command; zero with what a reader missed
	Stream Stream
	// Text is without the newline, and valid until the next line is read.
	Text []byte
	// Partial says that the stream's next line goes on where this one ends.
	Partial bool
	// Missing counts bytes that are not in the log, in place of a text.
	Missing int64
}

// stampLayout is RFC 3339 with all nine digits: lines sort by it.
const stampLayout = "2006-01-02T15:04:05.000000000Z"

func appendStamp(b []byte, t time.Time) []byte { return t.UTC().AppendFormat(b, stampLayout) }

// appendLine writes a line as it is in a segment; stamp is its time.
func appendLine(b, stamp []byte, s Stream, partial bool, text []byte) []byte {
	b = append(append(append(b, stamp...), ' '), s.String()...)
	if partial {
		b = append(b, " P "...)
	} else {
		b = append(b, " F "...)
	}
	return append(append(b, text...), '\n')
}

// appendLost writes that n bytes of a stream are missing here.
func appendLost(b, stamp []byte, s Stream, n int64) []byte {
	b = append(append(append(b, stamp...), ' '), s.String()...)
	b = strconv.AppendInt(append(b, " P:"+lostTag...), n, 10)
	return append(b, " \n"...)
}

const lostTag = "lost="

var errNoLine = errors.New("not a line of a log")

// parseLine reads what appendLine and appendLost write, without its newline, and
// what others write in this format: tags that it does not know are passed over.
func parseLine(b []byte) (Line, error) {
	stamp, rest, _ := bytes.Cut(b, []byte(" "))
	stream, rest, _ := bytes.Cut(rest, []byte(" "))
	tags, text, ok := bytes.Cut(rest, []byte(" "))
	if !ok || len(stamp) > headMax || len(tags) > headMax {
		return Line{}, errNoLine
	}
	l := Line{Text: text}
	var err error
	if l.Time, err = time.Parse(time.RFC3339Nano, string(stamp)); err != nil {
		return Line{}, errNoLine
	}
	switch string(stream) {
	case "stdout":
	case "stderr":
		l.Stream = Stderr
	default:
		return Line{}, errNoLine
	}
	first, more, _ := strings.Cut(string(tags), ":")
	switch first {
	case "F":
	case "P":
		l.Partial = true
	default:
		return Line{}, errNoLine
	}
	for tag := range strings.SplitSeq(more, ":") {
		if n, ok := strings.CutPrefix(tag, lostTag); ok {
			if l.Missing, err = strconv.ParseInt(n, 10, 64); err != nil || l.Missing < 1 || len(text) > 0 {
				return Line{}, errNoLine
			}
		}
	}
	return l, nil
}

// size is how many bytes of the command's output a line stands for.
func (l *Line) size() int64 {
	n := int64(len(l.Text)) + l.Missing
	if !l.Partial {
		n++ // its newline
	}
	return n
}
