package guard

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

func tellerStore(t *testing.T) *store.Store {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(store.Dirs{State: dir, History: filepath.Join(dir, "history"), UID: os.Geteuid(), Given: true})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// sampleWarning is one of a session, by what a limit around it has.
func sampleWarning(level memlimit.Level) *told {
	room := uint64(50 * mib)
	limit := uint64(400 * mib)
	who := memlimit.Place{Kind: memlimit.KindSession, Name: "work", Session: "aaaaaaaaaa"}
	return &told{warning: memlimit.Warning{Change: memlimit.Raised, Level: level, Cause: memlimit.BySize, Who: who, Limit: who, Tier: memlimit.TierCgroup,
		HardBytes: 350 * mib, LimitBytes: &limit, HeadroomBytes: &room, Used: .87, Processes: []memlimit.Hog{}, Sessions: []memlimit.Hog{}},
		quiet: level < memlimit.Warn, who: []concern{{place: who}}}
}

// A warning is in the history, with all that machines want to know; what is for the
// record only runs no command.
func TestTellerWrites(t *testing.T) {
	st := tellerStore(t)
	_, log := newLogged()
	tl := newTeller(st, log, nil)
	dir := t.TempDir()
	loud, quiet := sampleWarning(memlimit.Warn), sampleWarning(memlimit.Notice)
	loud.who[0].watch = session.MemoryWatch{OnWarn: `echo "$SESSIONBOX_WARN_LEVEL $SESSIONBOX_WARN_HARD_BYTES" >called`, Cwd: dir}
	quiet.who[0].watch = session.MemoryWatch{OnWarn: "echo quiet >called-too", Cwd: dir}
	ctx, end := context.WithCancel(t.Context())
	tl.tell(quiet)
	tl.tell(loud)
	served := make(chan struct{})
	go func() { tl.serve(ctx); close(served) }()
	called := filepath.Join(dir, "called")
	for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(5 * time.Millisecond) { // a whole line
		if b, err := os.ReadFile(called); err == nil && bytes.HasSuffix(b, []byte("\n")) {
			break
		}
	}
	end()
	<-served
	if b, err := os.ReadFile(called); err != nil || string(b) != "warn 367001600\n" {
		t.Errorf("the command was told %q, %v", b, err)
	}
	if exists(called + "-too") {
		t.Error("a notice ran a command")
	}
	page, err := st.ReadHistory(store.Filter{Session: "work"})
	if err != nil || len(page.Events) != 2 {
		t.Fatalf("%+v, %v", page.Events, err)
	}
	e := page.Events[1]
	var w memlimit.Warning
	if err := json.Unmarshal(e.Detail, &w); err != nil || e.Event != session.EventMemoryWarning || e.ID != "aaaaaaaaaa" || w.Level != memlimit.Warn ||
		*w.LimitBytes != 400*mib || !strings.HasPrefix(e.Msg, "session work: 87 % of 400 MiB (its own limit)") {
		t.Errorf("%+v, %v", e, err)
	}
}

// What was done is told after the warning that explains it, though it was done at once and
// the history was stuck meanwhile; at the end nothing of it is lost.
func TestTellerKeepsTheOrder(t *testing.T) {
	st := tellerStore(t)
	_, log := newLogged()
	tl := newTeller(st, log, nil)
	ctx, end := context.WithCancel(t.Context())
	d := &deeds{ctx: ctx, keeper: &keeper{}, log: log, hold: func(string) {}, write: tl.write, say: tl.say, count: func(memlimit.Deed) {}, after: func(outcome) {}, busy: map[string]memlimit.Deed{}, missed: map[string][]memlimit.Action{}, cycles: cycles{}}
	tl.tell(sampleWarning(memlimit.Emergency))
	d.do(memlimit.Action{Do: memlimit.Freeze, Session: "aaaaaaaaaa", Reason: "it is full"}, 1)
	d.do(memlimit.Action{Do: memlimit.Hold, Reason: "it is full"}, 0)
	d.all.Wait()
	end()
	tl.serve(ctx)
	tl.say(func() {
		tl.write(store.Event{Event: session.EventMemoryAction, ID: "aaaaaaaaaa", Msg: "thaw: late"}, done{})
	})
	page, err := st.ReadHistory(store.Filter{})
	if err != nil || len(page.Events) != 4 {
		t.Fatalf("%+v, %v", page.Events, err)
	}
	if e := page.Events; e[0].Event != session.EventMemoryWarning || e[1].Event != session.EventMemoryAction || e[3].Msg != "thaw: late" {
		t.Errorf("in the order %s, %s, %s, %s", e[0].Msg, e[1].Msg, e[2].Msg, e[3].Msg)
	}
}

// A warning whose command cannot be run says so.
func TestTellerSaysWhatWasSkipped(t *testing.T) {
	st := tellerStore(t)
	_, log := newLogged()
	tl := newTeller(st, log, nil)
	w := sampleWarning(memlimit.Warn)
	w.who[0].watch.OnWarn = "true"
	if why := tl.run.book("aaaaaaaaaa"); why != "" {
		t.Fatal(why)
	}
	tl.one(t.Context(), w)
	page, err := st.ReadHistory(store.Filter{})
	if err != nil || len(page.Events) != 1 {
		t.Fatalf("%+v, %v", page.Events, err)
	}
	var got memlimit.Warning
	if err := json.Unmarshal(page.Events[0].Detail, &got); err != nil || len(got.Skipped) != 1 || got.Skipped[0].Session != "aaaaaaaaaa" || got.Skipped[0].Why == "" {
		t.Errorf("%s, %v", page.Events[0].Detail, err)
	}
}

// A history that cannot be written for a while loses what does not fit, and says how
// much that was; who tells is never held up.
func TestTellerThatIsStuck(t *testing.T) {
	_, log := newLogged()
	tl := newTeller(tellerStore(t), log, nil)
	for range tellRoom + 40 {
		tl.tell(sampleWarning(memlimit.Warn))
	}
	tl.next(false)
	tl.tell(sampleWarning(memlimit.Warn))
	var last *told
	for x, ok := tl.next(false); ok; x, ok = tl.next(false) {
		last = x.warning
	}
	if last.warning.LeftOut != 40 {
		t.Errorf("it says that %d were left out, of 40", last.warning.LeftOut)
	}
}

// A thousand things that go up and down in a minute are no thousand warnings.
func TestMemoryFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGround(t)
		g.start()
		defer g.stop()
		flap := func(d time.Duration) uint64 {
			if d/(500*time.Millisecond)%2 == 0 {
				return 390 * mib
			}
			return 50 * mib
		}
		for i := range 100 {
			id := string(rune('a'+i/26)) + string(rune('a'+i%26))
			g.open(id, &madeUp{hard: flap, max: 400 * mib}, ceilinged(400*mib))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(g.said()); n == 0 || n > 12 {
			t.Errorf("%d warnings in a minute", n)
		}
	})
}

// What is known of memory is in the metrics, in a form that Prometheus likes.
func TestMemoryMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGround(t)
		g.start()
		defer g.stop()
		g.open("a", &madeUp{hard: constant(390), max: 400 * mib}, ceilinged(400*mib))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		m := sampleMetrics()
		m.watches(g.m)
		m.warned(&sampleWarning(memlimit.Critical).warning)
		m.did(memlimit.Freeze)
		var b bytes.Buffer
		if err := m.write(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if problems, err := testutil.GatherAndLint(gather(t, b.String())); err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
		for _, want := range []string{
			`sessionbox_memory_hard_bytes{kind="session",id="a",name="name-a"} 4.0894464e+08`,
			`sessionbox_memory_limit_bytes{kind="host",id="",name="this host"} 4.194304e+09`,
			`sessionbox_memory_level{kind="session",id="a",name="name-a"} 4`,
			`sessionbox_memory_warnings_total{level="critical"} 1`, `sessionbox_memory_actions_total{action="freeze"} 1`,
		} {
			if !strings.Contains(b.String(), want+"\n") {
				t.Errorf("no %s in\n%s", want, b.String())
			}
		}
	})
}
