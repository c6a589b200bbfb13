package guard

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/session"
)

func p(n int) proc.ID { return proc.ID{PID: n, Start: uint64(n)} }

// ids are those of jobs.
func ids(jobs []job) []string {
	list := []string{}
	for _, j := range jobs {
		list = append(list, j.id)
	}
	return list
}

func want(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(job{})); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

const s = time.Second

// One owner of many is held once, until nobody waits for it.
func TestPlanSharedOwner(t *testing.T) {
	pl := newPlan()
	hold, _ := pl.set(session.Watch{Session: "a", Ends: []proc.ID{p(7), p(8)}, Policy: true})
	want(t, "hold", hold, []proc.ID{p(7), p(8)})
	hold, _ = pl.set(session.Watch{Session: "b", Ends: []proc.ID{p(7)}, Policy: true})
	want(t, "hold again", hold, []proc.ID(nil))
	_, release := pl.set(session.Watch{Session: "a", Ends: []proc.ID{p(8)}})
	want(t, "release what b waits for", release, []proc.ID(nil))
	want(t, "release at the end", pl.drop("b"), []proc.ID{p(7)})
	want(t, "policies", pl.policies(), 0)

	pl.set(session.Watch{Session: "c", Ends: []proc.ID{p(8)}})
	pl.end(p(8), 5*s)
	want(t, "both", pl.next(), 5*s)
	jobs := pl.begin(6*s, 10)
	slices.SortFunc(jobs, func(a, b job) int { return int(a.id[0]) - int(b.id[0]) })
	want(t, "jobs", ids(jobs), []string{"a", "c"})
	want(t, "cause", jobs[0].cause, 5*s)
	want(t, "while busy", ids(pl.begin(7*s, 10)), []string{})
	// Both still name it: its end is no news.
	hold, _ = pl.set(session.Watch{Session: "a", Ends: []proc.ID{p(8)}})
	want(t, "hold what has ended", hold, []proc.ID(nil))
	pl.finish(jobs[0], 7*s, false)
	want(t, "after", pl.next(), time.Duration(0))
	// Somebody takes over with another owner, then the first one again.
	hold, _ = pl.set(session.Watch{Session: "a", Ends: []proc.ID{p(9)}})
	want(t, "hold the next owner", hold, []proc.ID{p(9)})
	hold, _ = pl.set(session.Watch{Session: "a", Ends: []proc.ID{p(8)}})
	want(t, "hold it after all", hold, []proc.ID{p(8)})
}

func TestPlanDue(t *testing.T) {
	pl := newPlan()
	pl.set(session.Watch{Session: "a", Due: 10 * s})
	pl.set(session.Watch{Session: "b", Due: 20 * s})
	pl.set(session.Watch{Session: "c"})
	want(t, "next", pl.next(), 10*s)
	want(t, "too early", ids(pl.begin(10*s-1, 9)), []string{})
	want(t, "no room", ids(pl.begin(30*s, 0)), []string{})
	want(t, "the oldest first", ids(pl.begin(30*s, 1)), []string{"a"})
	// It was renewed.
	pl.set(session.Watch{Session: "a", Due: 40 * s})
	pl.finish(job{"a", 10 * s}, 30*s, false)
	want(t, "b waits", pl.next(), 20*s)
	pl.begin(30*s, 1)
	// b is not done with though it says so: it is not tried in a circle.
	for _, pause := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		pl.finish(job{"b", 20 * s}, 100*s, false)
		want(t, "not at once", pl.sessions["b"].at(), 100*s+pause*s)
		pl.sessions["b"].busy = true
	}
	pl.set(session.Watch{Session: "b", Due: 500 * s})
	pl.finish(job{"b", 20 * s}, 200*s, false)
	want(t, "done with", pl.sessions["b"].at(), 500*s)
	want(t, "and forgotten", pl.sessions["b"].tries, 0)
}

func TestPlanFailure(t *testing.T) {
	pl := newPlan()
	pl.set(session.Watch{Session: "a", Ends: []proc.ID{p(1), p(2)}})
	pl.end(p(1), 3*s)
	j := pl.begin(3*s, 1)[0]
	want(t, "first", pl.firstFailure("a"), true)
	pl.finish(j, 4*s, true)
	want(t, "second", pl.firstFailure("a"), false)
	want(t, "again", pl.next(), 5*s)
	want(t, "since", pl.begin(5*s, 1), []job{{"a", 3 * s}})
	pl.finish(j, 5*s, true)
	want(t, "later", pl.next(), 7*s)
	// Something else happens: that is worth a try.
	pl.end(p(2), 6*s)
	want(t, "news", pl.next(), 3*s)
	pl.begin(6*s, 1)
	// The session goes while it is reconciled.
	want(t, "nobody is held", pl.drop("a"), []proc.ID(nil))
	pl.finish(j, 7*s, true)
	want(t, "gone", pl.next(), time.Duration(0))
}

// What happens while a session is reconciled is looked at afterwards.
func TestPlanWhileBusy(t *testing.T) {
	pl := newPlan()
	pl.set(session.Watch{Session: "a", Ends: []proc.ID{p(1), p(2)}})
	pl.end(p(1), 1*s)
	j := pl.begin(1*s, 1)[0]
	pl.end(p(2), 2*s)
	want(t, "busy", pl.next(), time.Duration(0))
	pl.finish(j, 3*s, false)
	want(t, "then", pl.begin(3*s, 1), []job{{"a", 2 * s}})
}

func TestPlanThousand(t *testing.T) {
	pl := newPlan()
	for i := range 1000 {
		pl.set(session.Watch{Session: fmt.Sprint(i), Ends: []proc.ID{p(5)}, Policy: true})
	}
	pl.end(p(5), s)
	seen := map[string]bool{}
	for range 20 {
		for _, j := range pl.begin(2*s, atOnce) {
			if seen[j.id] {
				t.Fatalf("%s twice", j.id)
			}
			seen[j.id] = true
			pl.finish(j, 2*s, false)
		}
	}
	want(t, "all", len(seen), 1000)
}
