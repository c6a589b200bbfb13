package memlimit

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// curve reads a recorded growth curve: lines of seconds and KiB, the sum of
// anonymous, shared and swapped memory of a process tree, about five times a second.
func curve(t testing.TB, name string) (at []time.Duration, bytes []uint64) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var s float64
		var k uint64
		if _, err := fmt.Sscan(sc.Text(), &s, &k); err != nil {
			t.Fatal(err)
		}
		at, bytes = append(at, time.Duration(s*float64(time.Second))), append(bytes, k<<10)
	}
	return at, bytes
}

// watch has a judge look at a curve as often as it wants to, repeated so often.
func watch(j *Judge, at []time.Duration, bytes []uint64, limit uint64, times int) (verdicts [][]Verdict) {
	var due, from time.Duration
	for range times {
		var run []Verdict
		for i := range at {
			if now := from + at[i]; now >= due {
				v := j.Observe(&Sample{At: now, Done: now, Tier: TierCgroup, Hard: bytes[i], Max: limit, SwapMax: Infinity})
				due = now + v.Next
				run = append(run, v)
			}
		}
		verdicts = append(verdicts, run)
		from += at[len(at)-1] + time.Second
	}
	return verdicts
}

func worst(run []Verdict) (most Verdict) {
	for _, v := range run {
		if v.Now > most.Now || most.At == 0 {
			most = v
		}
	}
	return most
}

// Work that has room gives no warning, however it comes and goes: a build of this
// program with an empty cache, a vet of two of its packages, a node program that
// fills 130 MB three times a few seconds each. With little room it may warn, as
// nothing tells it from a leak; nothing is done to it. What it gave back once is no
// news when it is held again.
func TestRecordedWork(t *testing.T) {
	for _, name := range []string{"gobuild.txt", "govet.txt", "node.txt"} {
		at, bytes := curve(t, name)
		peak := bytes[0]
		for _, n := range bytes {
			peak = max(peak, n)
		}
		for _, c := range []struct {
			room   float64
			before Level // what must not be reached the first time, and later
			later  Level
		}{{1.5, Emergency, Warn}, {2, Warn, Warn}, {4, Notice, Notice}} {
			for _, host := range []bool{false, true} {
				runs := watch(&Judge{Host: host}, at, bytes, uint64(float64(peak)*c.room), 3)
				for i, run := range runs {
					not := c.before
					if i > 0 {
						not = c.later
					}
					v := worst(run)
					t.Logf("%s under %.1f × its peak, run %d: %v by %q", name, c.room, i+1, v.Now, v.Cause)
					if v.Now >= not {
						t.Errorf("%s under %.1f × its peak, run %d: %v by %s at %.1f s: %s of %s, slope %.0f MB/s, full in %v",
							name, c.room, i+1, v.Now, v.Cause, v.At.Seconds(), FormatBytes(v.Hard), FormatBytes(v.Max), v.Slope/mib, v.Full)
					}
				}
			}
		}
	}
}

// Half an hour of builds, tests and scripts in three sessions on a small host, each
// with twice the ceiling that it needs: not a word.
func TestSoak(t *testing.T) {
	var sessions []*boxed
	for i, name := range []string{"gobuild.txt", "govet.txt", "node.txt"} {
		at, bytes := curve(t, name)
		period := at[len(at)-1] + time.Duration(5+i)*time.Second // some rest
		peak := bytes[0]
		for _, n := range bytes {
			peak = max(peak, n)
		}
		s := session(name, 2*peak, func(now time.Duration) uint64 {
			k := 0
			for now %= period; k+1 < len(at) && at[k+1] <= now; {
				k++
			}
			if now > at[len(at)-1] {
				return 5 * mib
			}
			return bytes[k]
		})
		s.cache = linear(100, 1)
		sessions = append(sessions, s)
	}
	w := &world{ram: 2048 * mib, base: 250 * mib, sessions: sessions}
	m := newWatchman(w, MayHold|MayFreeze|MayClose)
	w.run(30*time.Minute, m)
	for i, x := range m.said {
		if x.Level >= Warn {
			t.Errorf("%v: %v", m.saidAt[i], &x)
		}
	}
	if len(m.done) > 0 || len(w.kills) > 0 {
		t.Errorf("did %v, killed %v", m.done, w.kills)
	}
	t.Logf("%d samples, %d events", m.samples, len(m.said))
}
