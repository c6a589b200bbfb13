package memlimit

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func place(name string) Place { return Place{Kind: KindSession, Name: name, Session: name} }

func TestCrierTellsChangesOnce(t *testing.T) {
	var c Crier
	now := time.Hour
	p := place("work")
	for i, x := range []struct {
		after  time.Duration
		level  Level
		cause  Cause
		used   float64
		hard   uint64
		change Change // "" for nothing
		quiet  bool
	}{
		{0, OK, "", .1, 1, "", false},
		{time.Second, Notice, BySize, .71, 2, Raised, true},
		{time.Second, Notice, BySize, .78, 3, "", false},
		{time.Second, Warn, BySlope, .78, 4, Raised, false},
		{time.Second, Warn, BySlope, .80, 5, "", false},
		{time.Second, Warn, BySlope, .84, 9, "", false},            // worse, but too soon
		{30 * time.Second, Warn, BySlope, .84, 9, Repeated, false}, // much worse
		{time.Second, Warn, BySize, .84, 8, Repeated, false},       // for another reason
		{time.Second, Warn, BySlope, .84, 8, "", false},            // and back
		{299 * time.Second, Warn, BySlope, .84, 8, Repeated, false},
		{time.Second, Emergency, BySize, .96, 7, Raised, false},
		{time.Second, Warn, BySize, .85, 7, Eased, true},
		{time.Second, OK, "", .3, 1, Cleared, false},
		{time.Second, OK, "", .3, 1, "", false},
		{time.Second, Notice, BySize, .3, 2, Raised, true},
		{time.Second, OK, "", .3, 1, Cleared, true}, // nobody was told of anything
	} {
		now += x.after
		got, ok := c.Hear(p, &Verdict{At: now, Level: x.level, Cause: x.cause, Used: x.used, Hard: x.hard})
		if ok != (x.change != "") || got.Change != x.change || got.Quiet != x.quiet {
			t.Errorf("%d: %v %+v, want %q, quiet %v", i, ok, got, x.change, x.quiet)
		}
		if x.change == Cleared && !x.quiet && (got.Peak != 9 || now-got.Began != 338*time.Second) {
			t.Errorf("peak %d, began %v ago; want 9, 338 s", got.Peak, now-got.Began)
		}
	}
	if len(c.told) != 0 {
		t.Errorf("%d places are remembered that are at ease", len(c.told))
	}
}

// A thousand warnings a minute come down to six, of which two are kept for
// emergencies, and say how many there were.
func TestCrierDoesNotFlood(t *testing.T) {
	var c Crier
	said, emergencies, leftOut := 0, 0, 0
	for i := range 1000 {
		at := time.Hour + time.Duration(i)*60*time.Millisecond
		if got, ok := c.Hear(place(fmt.Sprint(i)), &Verdict{At: at, Level: Warn, Cause: BySize, Used: .8}); ok {
			said++
			leftOut += got.LeftOut
		}
		if i%100 == 50 {
			got, ok := c.Hear(place(fmt.Sprint("bad", i)), &Verdict{At: at, Level: Emergency, Cause: BySize, Used: 1})
			if ok {
				emergencies++
				leftOut += got.LeftOut
			}
		}
	}
	if said != 4 || emergencies != 2 {
		t.Errorf("%d warnings and %d emergencies, want 4 and 2", said, emergencies)
	}
	got, ok := c.Hear(place("later"), &Verdict{At: time.Hour + 3*time.Minute, Level: Warn, Cause: BySize, Used: .8})
	if !ok || leftOut+got.LeftOut != 1000-4+10-2 {
		t.Errorf("%v: %d were left out, %d said so", ok, 1000-4+10-2, leftOut+got.LeftOut)
	}
	// What still is so is told after all, and no more counted as left out.
	if _, ok := c.Hear(place("999"), &Verdict{At: time.Hour + 3*time.Minute, Level: Warn, Cause: BySize, Used: .8}); !ok {
		t.Error("a warning that was left out is never told")
	}
}

func TestCrierBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c Crier
		var loud, quiet []time.Duration
		now := time.Hour
		last := map[string]Level{}
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			now += time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "step"))
			name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "who")
			v := Verdict{At: now, Level: Level(rapid.IntRange(0, 4).Draw(t, "level")), Used: rapid.Float64Range(0, 1).Draw(t, "used"),
				Cause: rapid.SampledFrom([]Cause{BySize, BySlope, ByPressure, ByEvents}).Draw(t, "cause")}
			got, ok := c.Hear(place(name), &v)
			if !ok {
				continue
			}
			if got.Was != last[name] || got.Level != v.Level {
				t.Fatalf("%s: told %v after %v, from %v", name, got.Level, last[name], got.Was)
			}
			last[name] = got.Level
			if got.Quiet {
				quiet = append(quiet, now)
			} else {
				loud = append(loud, now)
			}
		}
		for _, x := range []struct {
			at   []time.Duration
			most int
		}{{loud, loudRate}, {quiet, quietRate}} {
			for i := x.most; i < len(x.at); i++ {
				if x.at[i]-x.at[i-x.most] < time.Minute {
					t.Fatalf("more than %d within a minute", x.most)
				}
			}
		}
	})
}
