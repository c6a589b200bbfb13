package darwinjob

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

// outcome of one history.
type outcome struct {
	w *world
	r *Report
}

// run lets a world go on for a while, watched now and then, perhaps with a supervisor that
// is killed on the way, and closes the session.
func run(t testing.TB, d dice, e era, job bool) outcome {
	t.Helper()
	ctx := context.Background()
	w := newWorld(d, e, job)
	table, l := w.open()
	j := New(table, l, Options{})
	if _, err := j.Look(ctx, false); err != nil {
		t.Fatal(err)
	}
	w.busy, w.setuid = true, w.chance(4)
	crash := -1
	if w.chance(3) {
		crash = d.IntN(40)
	}
	for i := range 20 + d.IntN(60) {
		w.step()
		if w.chance(8) {
			if _, err := j.Look(ctx, w.chance(3)); err != nil {
				t.Fatal(err)
			}
		}
		if i == crash {
			j = restart(t, w, table, j)
		}
	}
	w.closing = true
	if w.chance(4) {
		if err := j.Freeze(ctx, ""); err != nil && !errors.Is(err, ErrNotFrozen) {
			t.Fatal(err)
		}
		if w.chance(2) {
			if err := j.Thaw(ctx, ""); err != nil && !errors.Is(err, syscall.EPERM) {
				t.Fatal(err)
			}
		}
	}
	r, err := j.Kill(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	return outcome{w, r}
}

// open is what the supervisor does before the root may run.
func (w *world) open() (*simTable, *Ledger) {
	table := &simTable{w: w, quiet: 1 + w.d.IntN(30)}
	s, _ := table.List(context.Background())
	l := NewLedger("s", s)
	l.UID, l.Cookie, l.Sentinel = simUser, "c00kie", 77
	if w.stub != nil {
		l.Mode, l.Coalition, l.Stub = Job, w.stub.Coalition, w.stub.ID
	}
	if w.e.reaper {
		l.Reapers = []Reaper{{ID: w.self.ID}}
	}
	l.AddRoot(w.root.Proc, "task-1")
	return table, l
}

// restart kills the supervisor; another one goes on from what it had written down.
func restart(t testing.TB, w *world, table *simTable, j *Lineage) *Lineage {
	b, err := j.Encode()
	if err != nil {
		t.Fatal(err)
	}
	l, err := DecodeLedger(b)
	if err != nil {
		t.Fatal(err)
	}
	w.self.reaper, w.crashed = false, true
	w.exit(w.self)
	w.reap(w.self)
	w.self = w.fork(w.shell)
	return New(table, l, Options{})
}

// excused says whether a survivor belongs to a class that facts/darwin.md §9 names, by
// what really happened.
func (w *world) excused(p *simProc) string {
	for q := p; q != nil; q = q.parent {
		if q.member && q.UID != simUser {
			return "another user's, or forked by one" // §9.3
		}
	}
	if p.showed || !p.asked && p.born < w.lists {
		return ""
	}
	at := w.forks
	if w.e.unique {
		at = p.Unique
	}
	switch {
	case w.e.reaper && !w.crashed:
		return ""
	case p.SID == w.root.PID && at-w.rootAt < simWrap && p.listed > 0:
		return "" // in the session that was made for it
	case p.listed == 0 && p.parent.born < w.lists-1 && p.parent.member:
		p = p.parent // two readings should have met it
	}
	for q := p; q.member && q != w.root && q != w.stub; q = q.parent {
		switch {
		case q.noted:
		case w.e.versions && q.verSeen:
		case w.e.unique && !w.e.execResets && q.parent.listed > 0:
		default:
			return "its descent was never visible" // §9.1
		}
	}
	return ""
}

func (o outcome) check(t testing.TB, job bool, what string) {
	t.Helper()
	for _, s := range o.w.wrong {
		t.Errorf("%s: %s, which is not a member", what, s)
	}
	for _, p := range o.w.living() {
		why := o.w.excused(p)
		if job && why != "" && why[0] != 'a' {
			why = ""
		}
		if why == "" {
			t.Errorf("%s: %+v is left and nothing excuses it (noted %v, hidden %v)", what, p.Proc, p.noted, p.hidden)
		}
	}
	if len(o.w.living()) == 0 && len(o.r.Survivors) == 0 && !o.r.Empty {
		t.Errorf("%s: nobody is left, and it was not said: %v", what, o.r)
	}
	if job && o.w.at(o.w.stub.ID) != nil && o.r.Empty {
		t.Errorf("%s: the stub is left", what)
	}
	if job && o.r.Empty && len(o.w.living()) > 0 {
		t.Errorf("%s: said to be empty, and %d are left", what, len(o.w.living()))
	}
}

// TestHistories runs random histories: SESSIONBOX_SIM_HISTORIES how many,
// SESSIONBOX_SIM_SEED from which seed on.
func TestHistories(t *testing.T) {
	n, seed := envInt("SESSIONBOX_SIM_HISTORIES", 1500), envInt("SESSIONBOX_SIM_SEED", 1)
	left, signals, empty := map[string]int{}, 0, 0
	for i := seed; i < seed+n && !t.Failed(); i++ {
		d := rand.New(rand.NewPCG(uint64(i), 7))
		e := eras[i%len(eras)]
		job := e.coalition && i/len(eras)%3 == 0
		o := run(t, d, e, job)
		mode := Direct
		if job {
			mode = Job
		}
		o.check(t, job, fmt.Sprintf("seed %d, %s, %s mode", i, e.name, mode))
		for _, p := range o.w.living() {
			left[fmt.Sprintf("%s, %s: %s", e.name, mode, o.w.excused(p))]++
		}
		signals += o.w.signals
		if len(o.w.living()) == 0 {
			empty++
		}
	}
	t.Logf("%d histories, %d signals, %d ended empty; left: %v", n, signals, empty, left)
}

func envInt(name string, def int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return def
}

// rapidDice lets rapid choose, so that it can shrink what fails.
type rapidDice struct{ t *rapid.T }

func (d rapidDice) IntN(n int) int { return rapid.IntRange(0, n-1).Draw(d.t, "d") }

func TestHistoriesShrink(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		e := rapid.SampledFrom(eras).Draw(rt, "era")
		job := e.coalition && rapid.Bool().Draw(rt, "job")
		run(t, rapidDice{rt}, e, job).check(t, job, e.name)
		if t.Failed() {
			rt.FailNow()
		}
	})
}
