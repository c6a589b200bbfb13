package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// keeper does nothing, and says what it was asked for.
type keeper struct {
	mu    sync.Mutex
	calls []string
	err   error
	wait  chan struct{} // nil: it is done at once
}

func (k *keeper) call(do string, d session.MemoryDeed) error {
	k.mu.Lock()
	k.calls = append(k.calls, fmt.Sprintf("%s %s %d", do, d.ID, d.Inode))
	k.mu.Unlock()
	if k.wait != nil {
		<-k.wait
	}
	return k.err
}

func (k *keeper) MemoryFreeze(_ context.Context, d session.MemoryDeed) error {
	return k.call("freeze", d)
}
func (k *keeper) MemoryThaw(_ context.Context, d session.MemoryDeed) error {
	return k.call("thaw", d)
}
func (k *keeper) MemoryHibernate(_ context.Context, d session.MemoryDeed) (session.HibernateReport, error) {
	return session.HibernateReport{ReclaimedBytes: 9}, k.call("hibernate", d)
}
func (k *keeper) MemoryBrake(_ context.Context, d session.MemoryDeed, high uint64) error {
	return k.call(fmt.Sprintf("brake %d", high), d)
}
func (k *keeper) MemoryLift(_ context.Context, d session.MemoryDeed) error { return k.call("lift", d) }
func (k *keeper) MemoryLiftHigh(_ context.Context, d session.MemoryDeed, high uint64) error {
	return k.call(fmt.Sprintf("lift high %d", high), d)
}
func (k *keeper) MemoryRestoreHigh(_ context.Context, d session.MemoryDeed) error {
	return k.call("restore", d)
}
func (k *keeper) MemoryClose(_ context.Context, d session.MemoryDeed, grace time.Duration) (session.Receipt, error) {
	return session.Receipt{Processes: make([]session.Fated, 2)}, k.call("close "+grace.String(), d)
}

// recorder is deeds with everything around them made up.
type recorder struct {
	*deeds
	mu     sync.Mutex
	events []store.Event
	holds  []string
	after  []outcome
}

func newRecorder(t *testing.T, k *keeper) *recorder {
	_, log := newLogged()
	r := &recorder{}
	r.deeds = &deeds{ctx: t.Context(), keeper: k, log: log, busy: map[string]memlimit.Deed{}, missed: map[string][]memlimit.Action{}, cycles: cycles{}, count: func(memlimit.Deed) {}, say: func(f func()) { f() },
		hold: func(why string) { r.note(func() { r.holds = append(r.holds, why) }) },
		write: func(e store.Event, detail any) {
			e.Detail, _ = json.Marshal(detail)
			r.note(func() { r.events = append(r.events, e) })
		},
		after: func(o outcome) { r.note(func() { r.after = append(r.after, o) }) }}
	return r
}

func (r *recorder) note(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// Each deed is done by the keeper, to the box that it was decided about, and recorded
// with its reason; what fails is recorded as not done.
func TestDeeds(t *testing.T) {
	k := &keeper{}
	r := newRecorder(t, k)
	act := func(do memlimit.Deed, more memlimit.Action) {
		more.Do, more.Session, more.Name, more.Reason = do, "a", "work", "it is full"
		r.do(more, 77)
		r.all.Wait()
	}
	act(memlimit.Freeze, memlimit.Action{})
	act(memlimit.Thaw, memlimit.Action{})
	act(memlimit.Hibernate, memlimit.Action{})
	act(memlimit.Brake, memlimit.Action{High: 5})
	act(memlimit.Lift, memlimit.Action{})
	act(memlimit.Lift, memlimit.Action{High: 7})
	act(memlimit.Restore, memlimit.Action{High: 7})
	act(memlimit.Close, memlimit.Action{Grace: 2 * time.Second})
	r.do(memlimit.Action{Do: memlimit.Hold, Reason: "this host is critical"}, 0)
	r.all.Wait()
	r.do(memlimit.Action{Do: memlimit.Release, Reason: "there is memory again"}, 0)
	r.all.Wait()
	if want := []string{"freeze a 77", "thaw a 77", "hibernate a 77", "brake 5 a 77", "lift a 77", "lift high 7 a 77", "restore a 77", "close 2s a 77"}; !slices.Equal(k.calls, want) {
		t.Errorf("done: %v, want %v", k.calls, want)
	}
	if want := []string{"this host is critical", ""}; !slices.Equal(r.holds, want) {
		t.Errorf("held: %q, want %q", r.holds, want)
	}
	if len(r.events) != 10 || r.events[0].Event != session.EventMemoryAction || r.events[0].ID != "a" || r.events[0].Name != "work" || r.events[0].Msg != "freeze: it is full" {
		t.Errorf("events: %+v", r.events)
	}
	if d := string(r.events[7].Detail); !strings.Contains(d, `"do":"close"`) || !strings.Contains(d, `"processes":2`) {
		t.Errorf("the detail of a close is %s", d)
	}
	if d := string(r.events[2].Detail); !strings.Contains(d, `"reclaimed_bytes":9`) {
		t.Errorf("the detail of a hibernation is %s", d)
	}
	k.err = errors.New("no")
	act(memlimit.Freeze, memlimit.Action{})
	if e := r.events[len(r.events)-1]; !strings.HasPrefix(e.Msg, "not done: ") || !strings.Contains(string(e.Detail), `"error":"no"`) {
		t.Errorf("one that failed is %+v", e)
	}
}

// Who decides is not held up, and what hangs is not done again and again.
func TestDeedsThatHang(t *testing.T) {
	k := &keeper{wait: make(chan struct{})}
	r := newRecorder(t, k)
	for range 10 {
		r.do(memlimit.Action{Do: memlimit.Freeze, Session: "a"}, 1)
	}
	r.do(memlimit.Action{Do: memlimit.Freeze, Session: "b"}, 2)
	close(k.wait)
	r.all.Wait()
	slices.Sort(k.calls)
	if want := []string{"freeze a 1", "freeze b 2"}; !slices.Equal(k.calls, want) {
		t.Errorf("done: %v, want %v", k.calls, want)
	}
}

// What is to stop a session while something else is done to it is decided again when that is
// over, by what is true then, and as nothing that has failed.
func TestDeedsThatAreMissed(t *testing.T) {
	k := &keeper{wait: make(chan struct{})}
	r := newRecorder(t, k)
	r.do(memlimit.Action{Do: memlimit.Brake, Session: "a", High: 5}, 1)
	for _, do := range []memlimit.Deed{memlimit.Brake, memlimit.Lift, memlimit.Freeze, memlimit.Close} {
		r.do(memlimit.Action{Do: do, Session: "a"}, 1)
	}
	close(k.wait)
	r.all.Wait()
	var told []string
	for _, o := range r.after {
		told = append(told, fmt.Sprintf("%s %v %v", o.Do, o.failed, o.undone))
	}
	if want := []string{"brake false false", "freeze false true", "close false true"}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
	if want := []string{"brake 5 a 1"}; !slices.Equal(k.calls, want) {
		t.Errorf("done: %v, want %v", k.calls, want)
	}
	r.do(memlimit.Action{Do: memlimit.Close, Session: "a"}, 1)
	r.all.Wait()
	if len(k.calls) != 2 {
		t.Errorf("done after that: %v", k.calls)
	}
}

// Who stands at a brake for days has it lifted and set again and again: that is told once,
// and again when something is another way, or it had an end.
func TestDeedsOfACycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{}
		r := newRecorder(t, k)
		act := func(do memlimit.Deed, session string, high uint64) {
			r.do(memlimit.Action{Do: do, Session: session, High: high, Reason: time.Now().String()}, 1)
			r.all.Wait()
		}
		cycle := func(n int) {
			for range n {
				act(memlimit.Arm, "a", 5)
				time.Sleep(10 * time.Second)
				act(memlimit.Lift, "a", 0)
				time.Sleep(time.Minute)
			}
		}
		told := func(what string, want int) {
			t.Helper()
			if len(r.events) != want {
				t.Errorf("%s: %d events, want %d", what, len(r.events), want)
			}
			r.events = nil
		}
		cycle(1000)
		told("a day", 2)
		act(memlimit.Arm, "b", 5)
		told("another session", 1)
		act(memlimit.Arm, "a", 6)
		told("another ceiling", 1)
		k.err = errors.New("no")
		cycle(2)
		told("it fails", 2)
		k.err = nil
		cycle(2)
		told("it does not", 2)
		act(memlimit.Freeze, "a", 0)
		act(memlimit.Thaw, "a", 0)
		act(memlimit.Freeze, "a", 0)
		cycle(2)
		told("it was frozen", 5)
		time.Sleep(cycleTime)
		cycle(2)
		told("it was at ease", 2)
		if n := len(r.cycles); n != 1 {
			t.Errorf("%d sessions are remembered", n)
		}
		if got := len(k.calls); got != 2021 {
			t.Errorf("done: %d", got)
		}
	})
}

// A guard that ends leaves no brake behind: neither one that it was about to set, nor one
// of a session that something else is being done to.
func TestDeedsAtTheEnd(t *testing.T) {
	k := &keeper{wait: make(chan struct{})}
	r := newRecorder(t, k)
	r.do(memlimit.Action{Do: memlimit.Arm, Session: "a", High: 5}, 1)
	r.do(memlimit.Action{Do: memlimit.Freeze, Session: "b"}, 2)
	r.end()
	r.do(memlimit.Action{Do: memlimit.Lift, Session: "b"}, 2)
	r.do(memlimit.Action{Do: memlimit.Arm, Session: "c", High: 5}, 3)
	close(k.wait)
	r.all.Wait()
	slices.Sort(k.calls)
	if want := []string{"brake 5 a 1", "freeze b 2", "lift a 1", "lift b 2"}; !slices.Equal(k.calls, want) {
		t.Errorf("done: %v, want %v", k.calls, want)
	}
}

// The brake of a session that allows it is armed before it is needed, and not again while
// it is there; a memory.high of its user's is left alone.
func TestMemoryArmsTheBrake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGround(t)
		g.start()
		defer g.stop()
		w := ceilinged(400 * mib)
		w.Steps = memlimit.MayBrake
		at := memlimit.BrakeAt(400 * mib)
		theirs, armed, lost, moved, freed := w, w, w, w, w
		theirs.High = 300 * mib
		armed.Brake, lost.Brake, moved.Brake, freed.Brake, freed.Ceiling = at, at, at/2, at, memlimit.Infinity
		box := func(high uint64) *madeUp { return &madeUp{hard: constant(20), max: 400 * mib, high: high} }
		g.open("new", box(0), w)
		g.open("theirs", box(300*mib), theirs)
		g.open("armed", box(at), armed)
		g.open("lost", box(0), lost) // whoever was to set it was killed before that
		g.open("moved", box(at/2), moved)
		g.open("freed", &madeUp{hard: constant(20), max: memlimit.Infinity, high: at}, freed) // its ceiling was lifted
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		got := g.deedsOf()
		slices.Sort(got)
		if want := []string{"arm lost", "arm moved", "arm new", "lift freed"}; !slices.Equal(got, want) {
			t.Errorf("done: %v, want %v", got, want)
		}
	})
}

// A memory.high at which a session is parked is lifted after the warning that names it,
// though its ceiling is far; one that was is set again by the next guard, which knows it
// from the record.
func TestMemoryLiftsHigh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGround(t)
		g.start()
		defer g.stop()
		w := ceilinged(1000 * mib)
		w.Steps, w.High = memlimit.MayBrake, 200*mib
		silent := w
		silent.Steps, silent.Ceiling = 0, memlimit.Infinity
		left := w
		left.Lifted = true
		at, only := &madeUp{hard: constant(201), max: 1000 * mib, high: 200 * mib}, &madeUp{hard: constant(201), max: memlimit.Infinity, high: 200 * mib}
		g.open("parked", at, w)
		g.open("silent", only, silent)
		g.open("left", &madeUp{hard: constant(50), max: 1000 * mib}, left)
		for range 130 {
			time.Sleep(100 * time.Millisecond)
			g.mu.Lock()
			at.events.High++
			only.events.High++
			g.woken = []meter{at, only}
			g.mu.Unlock()
			g.Wake()
			synctest.Wait()
		}
		got := g.deedsOf()
		if len(got) == 0 || !slices.Contains(got, "lift parked") || !slices.Contains(got, "restore left") || slices.ContainsFunc(got, func(d string) bool { return strings.Contains(d, "silent") }) {
			t.Errorf("done: %v", got)
		}
		var texts []string
		g.mu.Lock()
		for i := range g.told {
			if x := &g.told[i].warning; x.Cause == memlimit.ByStall {
				texts = append(texts, x.String())
			}
		}
		g.mu.Unlock()
		slices.Sort(texts)
		if len(texts) != 2 || !strings.Contains(texts[0], "session name-parked: ") || !strings.Contains(texts[0], "stalled at its memory.high of 200 MiB for 5 s") || !strings.Contains(texts[0], "memory.high is lifted in 3 s") ||
			!strings.Contains(texts[1], "session name-silent: 201 MiB, stalled at its memory.high of 200 MiB") || !strings.Contains(texts[1], "nothing is done about it") {
			t.Errorf("said %q", texts)
		}
	})
}

// What a slice and the host grew by before a session was frozen drives nothing any more: no
// other session is stopped for it.
func TestMemoryForgetsAfterAFreeze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGround(t)
		const slice = "/sys/fs/cgroup/sessionbox.slice"
		leak := g.rising(50, 40)
		var stopped time.Duration // 0: it runs
		hog := func(at time.Duration) uint64 {
			if stopped != 0 {
				at = min(at, stopped)
			}
			return leak(at)
		}
		g.boxes[slice] = &madeUp{g: g, tier: memlimit.TierCgroup, max: 1000 * mib, hard: func(at time.Duration) uint64 { return hog(at) + 200*mib }}
		box := &madeUp{hard: hog, max: memlimit.Infinity, around: []string{slice}}
		g.m.act = func(a memlimit.Action, _ uint64) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.deeds = append(g.deeds, a)
			if a.Do == memlimit.Freeze && a.Session == "hog" {
				stopped, box.frozen = g.clock(), true
				go g.m.again(outcome{Action: a})
			}
		}
		g.start()
		defer g.stop()
		w := session.MemoryWatch{Policy: true, Warn: true, Steps: memlimit.MayFreeze}
		old := w
		old.Steps = 0
		g.open("old", &madeUp{hard: constant(100), max: memlimit.Infinity, around: []string{slice}}, old)
		g.open("hog", box, w)
		g.open("other", &madeUp{hard: constant(100), max: memlimit.Infinity, around: []string{slice}}, w)
		time.Sleep(10 * time.Second)
		for !slices.Contains(g.deedsOf(), "freeze hog") {
			if time.Since(g.began) > time.Minute {
				t.Fatal("it was not frozen")
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(1200 * time.Millisecond)
		synctest.Wait()
		if got := g.deedsOf(); !slices.Equal(got, []string{"freeze hog"}) {
			t.Errorf("done: %v", got)
		}
		g.m.looking.Lock()
		defer g.m.looking.Unlock()
		for _, s := range g.m.order {
			if s.Kind != memlimit.KindSession && (s.verdict.Growing || s.verdict.Full > 0) {
				t.Errorf("%s still is full in %v", s.Name, s.verdict.Full)
			}
		}
		if v := g.m.groups[slice].verdict; v.At <= stopped {
			t.Errorf("it was not looked at since: %v, stopped at %v", v.At, stopped)
		}
	})
}

// A freeze that the kernel does not do in time becomes a close, and none of it is tried
// twice a second.
func TestMemoryThatCannotBeFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGround(t)
		g.m.act = func(a memlimit.Action, _ uint64) {
			g.mu.Lock()
			g.deeds = append(g.deeds, a)
			g.mu.Unlock()
			go g.m.again(outcome{Action: a, failed: true})
		}
		g.start()
		defer g.stop()
		w := ceilinged(400 * mib)
		w.Steps = memlimit.MayFreeze | memlimit.MayClose
		g.open("a", &madeUp{hard: g.rising(20, 20), max: 400 * mib}, w)
		time.Sleep(19 * time.Second)
		synctest.Wait()
		if got := g.deedsOf(); !slices.Equal(got, []string{"freeze a", "close a", "helpless a"}) {
			t.Errorf("done: %v", got)
		}
		if len(g.deeds) > 8 {
			t.Errorf("%d tries", len(g.deeds))
		}
	})
}

// How old a session is does not depend on what the clock on the wall says: only one that
// was opened just now is spared.
func TestMemoryAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGround(t)
		g.start()
		defer g.stop()
		w := ceilinged(400 * mib)
		w.Steps = memlimit.MayFreeze
		young, old := w, w
		old.Opened = g.clock() - time.Minute
		young.Opened = g.clock() + 15*time.Second // just before it is full
		g.open("young", &madeUp{hard: g.rising(20, 20), max: 400 * mib}, young)
		g.open("old", &madeUp{hard: g.rising(20, 20), max: 400 * mib}, old)
		time.Sleep(19 * time.Second)
		synctest.Wait()
		if got := g.deedsOf(); !slices.Contains(got, "freeze old") || slices.Contains(got, "freeze young") {
			t.Errorf("done: %v", got)
		}
		s := spot{sample: memlimit.Sample{}, watch: old}
		if c := s.candidate(g.clock(), nil); c.Age != 79*time.Second {
			t.Errorf("it is %v old, want 79 s", c.Age)
		}
	})
}

// deedsOf are what was decided, without repetitions.
func (g *ground) deedsOf() (all []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range g.deeds {
		if d := strings.TrimSpace(string(a.Do) + " " + a.Session); !slices.Contains(all, d) {
			all = append(all, d)
		}
	}
	return all
}

// A session that may be frozen is, when it is about to be full, and not one that is
// protected, or may only be warned of.
func TestMemoryFreezes(t *testing.T) {
	for name, c := range map[string]struct {
		w    session.MemoryWatch
		want []string
	}{
		"freeze":    {session.MemoryWatch{Steps: memlimit.MayFreeze}, []string{"freeze a"}},
		"close":     {session.MemoryWatch{Steps: memlimit.MayClose}, []string{"close a"}},
		"protected": {session.MemoryWatch{Steps: memlimit.MayFreeze | memlimit.MayClose, Protected: true}, []string{"helpless a"}},
		"warn":      {session.MemoryWatch{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGround(t)
				g.start()
				defer g.stop()
				w := c.w
				w.Policy, w.Warn, w.Ceiling = true, true, 400*mib
				g.open("a", &madeUp{hard: g.rising(20, 20), max: 400 * mib}, w)
				g.open("b", &madeUp{hard: constant(10), max: 400 * mib}, session.MemoryWatch{Steps: memlimit.MayFreeze | memlimit.MayClose, Ceiling: 400 * mib, Policy: true})
				time.Sleep(19 * time.Second)
				synctest.Wait()
				if got := g.deedsOf(); !slices.Equal(got, c.want) {
					t.Errorf("done: %v, want %v", got, c.want)
				}
			})
		})
	}
}

// What was frozen for want of memory is thawed when there is some again, also by a
// guard that did not freeze it; what was frozen by somebody else is not.
func TestMemoryThaws(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGround(t)
		g.start()
		defer g.stop()
		ours := session.MemoryWatch{Policy: true, Warn: true, Ceiling: 400 * mib, Steps: memlimit.MayFreeze, Frozen: g.clock() - time.Minute}
		theirs := ours
		theirs.Frozen = 0
		g.open("ours", &madeUp{hard: constant(100), max: 400 * mib, frozen: true}, ours)
		g.open("theirs", &madeUp{hard: constant(100), max: 400 * mib, frozen: true}, theirs)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := g.deedsOf(); !slices.Equal(got, []string{"thaw ours"}) {
			t.Errorf("done: %v", got)
		}
	})
}

// New sessions are held while the host is critical, and let go when it is not.
func TestMemoryHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGround(t)
		g.m.rules.Hold = true
		size := constant(3750)
		g.host.hard = func(d time.Duration) uint64 { return size(d) }
		g.start()
		defer g.stop()
		g.open("a", &madeUp{hard: constant(10), max: 400 * mib}, ceilinged(400*mib))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := g.deedsOf(); !slices.Equal(got, []string{"hold"}) {
			t.Fatalf("done: %v", got)
		}
		g.mu.Lock()
		size = constant(1000)
		g.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := g.deedsOf(); !slices.Equal(got, []string{"hold", "release"}) {
			t.Errorf("done: %v", got)
		}
	})
}

// An idle session is hibernated when what others share is short and there is room in
// swap; one that is used, or hibernated, is not.
func TestMemoryHibernates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGround(t)
		g.host.hard = constant(3700)
		g.swapFree = 2000 * mib
		g.start()
		defer g.stop()
		idle := session.MemoryWatch{Policy: true, Warn: true, Steps: memlimit.MayHibernate, Active: g.clock() - 20*time.Minute}
		used, asleep := idle, idle
		used.InUse = true
		asleep.Hibernated = true
		g.open("idle", &madeUp{hard: constant(100), max: memlimit.Infinity}, idle)
		g.open("used", &madeUp{hard: constant(100), max: memlimit.Infinity}, used)
		g.open("asleep", &madeUp{hard: constant(100), max: memlimit.Infinity, frozen: true}, asleep)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := g.deedsOf(); !slices.Equal(got, []string{"hibernate idle"}) {
			t.Errorf("done: %v", got)
		}
	})
}
