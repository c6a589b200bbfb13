package guard

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// NewLog writes a line for each message, for who reads a terminal or, for the
// journal, with the priority in front that sd-daemon(3) asks for.
func NewLog(w io.Writer, journal bool, level slog.Level) *slog.Logger {
	return slog.New(&lines{w: w, journal: journal, level: level})
}

type lines struct {
	w       io.Writer
	journal bool
	level   slog.Level
	attrs   []slog.Attr
}

// Enabled says whether a message of that level is written.
func (h *lines) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

// Handle writes one message.
func (h *lines) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	if h.journal {
		fmt.Fprintf(&b, "<%d>", priority(r.Level))
	} else {
		b.WriteString("sessionbox: ")
	}
	b.WriteString(r.Message)
	add := func(a slog.Attr) bool {
		if a.Key == "err" {
			fmt.Fprintf(&b, ": %v", a.Value)
		} else {
			fmt.Fprintf(&b, " (%s %v)", a.Key, a.Value)
		}
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	// A line is one message, whatever a name or an error holds.
	line := strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, b.String())
	_, err := io.WriteString(h.w, line+"\n")
	return err
}

// priority is that of syslog.
func priority(l slog.Level) int {
	switch {
	case l >= slog.LevelError:
		return 3
	case l >= slog.LevelWarn:
		return 4
	case l >= slog.LevelInfo:
		return 6
	}
	return 7
}

// WithAttrs adds to what every message says.
func (h *lines) WithAttrs(attrs []slog.Attr) slog.Handler {
	n := *h
	n.attrs = append(append([]slog.Attr{}, h.attrs...), attrs...)
	return &n
}

// WithGroup changes nothing: the keys are few.
func (h *lines) WithGroup(string) slog.Handler { return h }
