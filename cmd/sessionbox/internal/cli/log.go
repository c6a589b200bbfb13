package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// logHandler writes what the library finds worth knowing as talk.
type logHandler struct {
	w     io.Writer
	level slog.Level
	attrs []slog.Attr
}

func (h *logHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	fmt.Fprintf(&b, "sessionbox: %s: %s", strings.ToLower(r.Level.String()), r.Message)
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
	b.WriteByte('\n')
	_, err := io.WriteString(h.w, b.String())
	return err
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	n := *h
	n.attrs = append(append([]slog.Attr{}, h.attrs...), attrs...)
	return &n
}

func (h *logHandler) WithGroup(string) slog.Handler { return h }
