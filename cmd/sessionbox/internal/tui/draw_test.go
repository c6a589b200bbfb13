package tui

import (
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/sessionbox/sessionbox/pkg/session"
)

func TestBar(t *testing.T) {
	for _, tt := range []struct {
		mine, used, limit uint64
		want              string
	}{
		{0, 0, 100, "··········"},
		{50, 50, 100, "█████·····"},
		{20, 70, 100, "██▒▒▒▒▒···"},
		{1, 1, 1000, "█·········"},    // there is something
		{100, 100, 100, "██████████"}, // full
		{300, 300, 100, "██████████"}, // over it
		{10, 0, 100, "█·········"},    // others' figures are older than mine
		{0, 100, 100, "▒▒▒▒▒▒▒▒▒▒"},   // all of it others'
		{10, 10, 0, "██████████"},     // of nothing
		{1 << 62, 1 << 63, 1 << 63, "█████▒▒▒▒▒"},
	} {
		if got := bar(tt.mine, tt.used, tt.limit, 10); got != tt.want {
			t.Errorf("bar(%d, %d, %d) = %s; want %s", tt.mine, tt.used, tt.limit, got, tt.want)
		}
	}
}

func TestSpark(t *testing.T) {
	for want, values := range map[string][]uint64{
		"      ": nil,
		"     ▁": {5},
		"▁▁▁▁▁▁": {1, 7, 7, 7, 7, 7, 7},
		"▁▂▄▅▇█": {0, 20, 40, 60, 80, 100},
		"   ▁█▁": {0, 100, 0},
		"   ▁▂▂": {1000, 1010, 1010}, // a small change does not fill it
		"    ▁▁": {0, 0},
	} {
		if got := spark(values, 6); got != want {
			t.Errorf("spark(%v) = %q; want %q", values, got, want)
		}
	}
}

func TestFitText(t *testing.T) {
	for _, text := range []string{"", "abc", "a long text that is cut", "日本語テキスト", "e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301", "👩‍👩‍👧‍👦 family", "❤️❤️❤️❤️❤️"} {
		for n := range 12 {
			for _, got := range []string{fit(text, n), fitRight(text, n)} {
				if w := ansi.StringWidth(got); w != n {
					t.Errorf("%q in %d columns takes %d: %q", text, n, w, got)
				}
			}
		}
	}
}

// Rates are made over half of the interval at least, or over all there is.
func TestPast(t *testing.T) {
	var p past
	look := func(at time.Duration, cpu float64) float64 {
		r := p.add(Snapshot{Look: session.Look{At: noon.Add(at), Sessions: []session.Info{{ID: "a", Usage: session.UsageInfo{CPUSeconds: &cpu, MemoryBytes: new(uint64(at))}}}},
			Alive: map[string][]session.Process{"a": {{PID: 1, Start: 1, CPUSeconds: cpu}}}}, 2*time.Second)
		c := r.stats["a"].CPUPercent
		if c == nil {
			return -1
		}
		if r.cpu[who{1, 1}] != *c {
			t.Errorf("process %v, session %v", r.cpu, *c)
		}
		return *c
	}
	for i, tt := range []struct {
		at        time.Duration
		cpu, want float64
	}{
		{0, 0, -1},
		{500 * time.Millisecond, 0.5, 100}, // all there is
		{2 * time.Second, 0.5, 0},          // since the one before
		{2100 * time.Millisecond, 0.6, 6.25},
		{4 * time.Second, 1.6, 52}, // half of the interval is enough
		{6 * time.Second, 3.6, 100},
	} {
		got := look(tt.at, tt.cpu)
		if d := got - tt.want; d > 1 || d < -1 {
			t.Errorf("%d: %v%%; want %v%%", i, got, tt.want)
		}
	}
	for i := range 2 * longestTrend {
		look(time.Duration(10+i)*time.Second, 10)
	}
	if n := len(p.trends["a"]); n != longestTrend {
		t.Errorf("a trend of %d", n)
	}
	if len(p.looks) > 4 {
		t.Errorf("%d looks are kept", len(p.looks))
	}
	p.add(Snapshot{Look: session.Look{At: noon.Add(time.Hour)}}, time.Second)
	if len(p.trends) != 0 {
		t.Errorf("trends of what is gone: %v", p.trends)
	}
}
