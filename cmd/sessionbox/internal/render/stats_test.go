package render

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
)

// stats is one of everything that the table can show.
func stats() []session.Stats {
	limit := func(of string, limit, used uint64) *session.LimitInfo {
		b := memlimit.Bound{Of: of, Limit: limit, Used: used}
		return &session.LimitInfo{Of: of, LimitBytes: limit, UsedBytes: used, UsedPercent: b.Percent()}
	}
	return []session.Stats{
		{ID: "k3m9x2c7qa", Name: "agent", State: "open", CPUPercent: new(153.2), Running: 2, Processes: 5, Usage: session.UsageInfo{
			MemoryBytes: new(uint64(3700 << 20)), SwapBytes: new(uint64(12 << 20)), Pids: new(uint64(117)), OOMKills: new(uint64(2)),
			PressurePercent: new(12.34), Source: "cgroup", Limit: limit(memlimit.BoundOwn, 4<<30, 3700<<20)}},
		{ID: "k3p1aaaaaa", Name: "web", State: "open", CPUPercent: new(0.0), Leftovers: 3, Processes: 3, Usage: session.UsageInfo{
			MemoryBytes: new(uint64(812 << 20)), SwapBytes: new(uint64(0)), Pids: new(uint64(3)), OOMKills: new(uint64(0)),
			PressurePercent: new(1.5), Source: "cgroup", Limit: limit("sessionbox.slice", 6<<30, 5<<30)}},
		{ID: "m000000000", State: "open", Frozen: true, CPUPercent: new(3.21), Usage: session.UsageInfo{
			MemoryBytes: new(uint64(0)), Pids: new(uint64(0)), Source: "processes", Limit: limit(memlimit.BoundHost, 8<<30, 2<<30)}},
		{ID: "q000000000", Name: "a-name-of-many-letters-that-goes-on", State: session.StateBroken},
	}
}

// byProcesses are the same where no controller counts.
func byProcesses() []session.Stats {
	all := stats()
	for i := range all {
		u := &all[i].Usage
		if u.Source != "" {
			u.Source = string(memlimit.TierProcesses)
		}
		u.SwapBytes, u.OOMKills = nil, nil
	}
	return all
}

func TestStats(t *testing.T) {
	for name, st := range map[string]Style{
		"stats-80": {Width: 80}, "stats-200": {Width: 200}, "stats-pipe": {}, "stats-colour": {Width: 120, Color: true}, "stats-40": {Width: 40},
	} {
		var b bytes.Buffer
		if err := Stats(&b, stats(), st); err != nil {
			t.Fatal(err)
		}
		golden(t, name, b.String())
	}
	var b bytes.Buffer
	if err := Stats(&b, byProcesses(), Style{Width: 80}); err != nil {
		t.Fatal(err)
	}
	golden(t, "stats-80-processes", b.String())
}

// The table fits any terminal of 40 columns or more, and loses nothing on a wide
// one.
func TestStatsFit(t *testing.T) {
	for w := 40; w <= 250; w++ {
		var b bytes.Buffer
		if err := Stats(&b, stats(), Style{Width: w}); err != nil {
			t.Fatal(err)
		}
		fits(t, "stats at "+strconv.Itoa(w), b.String(), Style{Width: w})
		head, _, _ := strings.Cut(b.String(), "\n")
		for _, want := range []string{"NAME", "CPU", "MEM"} {
			if !strings.Contains(head, want) {
				t.Errorf("%d columns: no %s: %s", w, want, head)
			}
		}
		if w >= 120 && len(strings.Fields(head)) != 11 {
			t.Errorf("%d columns, and a column is left out: %s", w, head)
		}
	}
}

func TestPercent(t *testing.T) {
	for p, want := range map[float64]string{0: "0%", 0.04: "0%", 0.05: "0.1%", 3.21: "3.2%", 9.94: "9.9%", 9.96: "10%", 99.6: "100%", 1600: "1600%"} {
		if got := Percent(p); got != want {
			t.Errorf("Percent(%v) = %s; want %s", p, got, want)
		}
	}
}
