package session

import (
	"testing"
	"time"
)

func TestStats(t *testing.T) {
	at := time.Date(2026, 8, 24, 12, 0, 0, 0, time.UTC)
	info := func(id string, inode uint64, cpu *float64) Info {
		return Info{ID: id, Name: "name-" + id, State: "open", Box: BoxInfo{Inode: inode}, Usage: UsageInfo{CPUSeconds: cpu}}
	}
	before := Look{At: at, Sessions: []Info{
		info("busy", 1, new(10.0)), info("idle", 2, new(3.0)), info("blind", 3, nil), info("again", 4, new(1.0)), info("back", 5, new(9.0)), info("gone", 6, new(1.0)),
	}}
	now := Look{At: at.Add(2 * time.Second), Sessions: []Info{
		info("new", 9, new(5.0)), info("busy", 1, new(13.0)), info("idle", 2, new(3.0)), info("blind", 3, nil), info("again", 40, new(2.0)), info("back", 5, new(8.0)),
	}}
	want := map[string]*float64{"busy": new(150.0), "idle": new(0.0)} // the others have no rate
	got := now.Stats(before)
	if len(got) != len(now.Sessions) {
		t.Fatalf("%d of %d sessions", len(got), len(now.Sessions))
	}
	for i, s := range got {
		if s.ID != now.Sessions[i].ID || s.Name != "name-"+s.ID || !s.Time.Equal(now.At) || s.Schema != Schema {
			t.Errorf("%+v", s)
		}
		w := want[s.ID]
		switch {
		case w == nil && (s.CPUPercent != nil || s.SpanSeconds != 0):
			t.Errorf("%s: a rate of what was not there before: %v", s.ID, s)
		case w != nil && (s.CPUPercent == nil || *s.CPUPercent != *w || s.SpanSeconds != 2):
			t.Errorf("%s: %v within %v s; want %v within 2 s", s.ID, s.CPUPercent, s.SpanSeconds, *w)
		}
	}
	for i, s := range now.Stats(Look{}) {
		if s.CPUPercent != nil {
			t.Errorf("%d: a rate after one look", i)
		}
	}
	if p := now.Stats(now)[1].CPUPercent; p != nil {
		t.Errorf("a rate within no time: %v", *p)
	}
}
