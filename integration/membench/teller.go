package main

import (
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/integration/membench/score"
)

// teller shows what goes on in a guest: without all, what people would want to know. It
// also measures, run by run, how busy the machine outside is.
type teller struct {
	w   io.Writer
	all bool
	// waits is for how long somebody has waited for a processor, ever.
	waits func() time.Duration

	began  time.Time // of this run
	was    time.Duration
	shares []float64 // of each run: the part of its time in which somebody waited
}

// Write takes whole lines.
func (t *teller) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		all, _ := score.Parse(line)
		for i := range all {
			t.time(all[i].What)
		}
		if t.all || len(all) > 0 && all[0].What != score.Progress {
			io.WriteString(t.w, strings.TrimPrefix(line, score.Mark))
		}
	}
	return len(p), nil
}

// time keeps the share of a run's time in which somebody waited, up to now.
func (t *teller) time(what string) {
	switch {
	case what == score.Ready:
		t.shares = append(t.shares, 0)
		t.began = time.Time{}
	case what == score.Go:
		t.began, t.was = time.Now(), t.waits()
	case !t.began.IsZero() && len(t.shares) > 0:
		t.shares[len(t.shares)-1] = (t.waits() - t.was).Seconds() / max(.001, time.Since(t.began).Seconds())
	}
}

// waited reads it from the kernel; 0 for one that does not say.
func waited() time.Duration {
	b, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(b), "\n")
	_, total, _ := strings.Cut(line, "total=")
	n, _ := strconv.ParseInt(total, 10, 64)
	return time.Duration(n) * time.Microsecond
}
