package cli

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// A frame starts at the top, clears what it does not write over, and never makes
// the terminal scroll.
func TestFrame(t *testing.T) {
	for rows, want := range map[int]string{
		5: "\x1b[Ha\x1b[K\nb\x1b[K\nc\x1b[K\n\x1b[J",
		3: "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J",
		1: "\x1b[H\x1b[J",
	} {
		b := frame("a\nb\nc\n", rows)
		if got := b.String(); got != want || strings.Count(got, "\n") >= rows {
			t.Errorf("%d rows: %q; want %q", rows, got, want)
		}
	}
}

func TestInterval(t *testing.T) {
	if d, err := interval(nil); err != nil || d != lookEvery {
		t.Errorf("%v, %v", d, err)
	}
	if d, err := interval(new(time.Second)); err != nil || d != time.Second {
		t.Errorf("%v, %v", d, err)
	}
	for _, short := range []time.Duration{0, time.Millisecond} {
		if _, err := interval(&short); !errors.Is(err, session.ErrUsage) {
			t.Errorf("%v: %v; want a usage error", short, err)
		}
	}
}
