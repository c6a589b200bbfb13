package darwinjob

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
)

// still is a world in which nothing happens by itself, with a session of two tasks.
func still(t *testing.T, e era, o Options) (*world, *Lineage, *simProc) {
	t.Helper()
	w := newWorld(rand.New(rand.NewPCG(1, 2)), e, false)
	table, l := w.open()
	second := w.fork(w.self)
	second.member = true
	w.lead(second)
	l.AddRoot(second.Proc, "task-2")
	return w, New(table, l, o), second
}

// One task can be ended, stopped and signalled without the other.
func TestLeaves(t *testing.T) {
	ctx := context.Background()
	w, j, second := still(t, eras[2], Options{})
	child := w.fork(w.root)
	w.lead(child)
	if err := j.Freeze(ctx, "task-1"); err != nil {
		t.Fatal(err)
	}
	if w.root.State != Stopped || child.State != Stopped || second.State != Running {
		t.Errorf("after Freeze of task-1: %c %c %c, want T T R", w.root.State, child.State, second.State)
	}
	for leaf, want := range map[string]bool{"task-1": true, "task-2": false, "": false, "none": false} {
		if got, err := j.Frozen(ctx, leaf); got != want || err != nil {
			t.Errorf("Frozen(%q) = %v, %v; want %v", leaf, got, err, want)
		}
	}
	if err := j.Thaw(ctx, "task-1"); err != nil || w.root.State != Running || child.State != Running {
		t.Errorf("after Thaw: %v, %c %c", err, w.root.State, child.State)
	}
	if n, err := j.Signal(ctx, "task-1", syscall.SIGTERM); n != 2 || err != nil {
		t.Errorf("Signal reached %d, %v; want 2", n, err)
	}
	r, err := j.Kill(ctx, "task-1")
	if err != nil || !r.Empty || !r.Frozen || len(r.Ended) != 2 || r.Err("x") != nil {
		t.Errorf("Kill = %+v, %v", r, err)
	}
	if w.root.State != Zombie || child.State != Zombie || second.State != Running {
		t.Errorf("after Kill of task-1: %c %c %c, want Z Z R", w.root.State, child.State, second.State)
	}
}

// WaitEmpty returns when the last one ends, and not before.
func TestWaitEmpty(t *testing.T) {
	w, j, second := still(t, eras[2], Options{})
	waits := 0
	j.t = &script{simTable: j.t.(*simTable), steps: []func(){
		func() { waits++ },
		func() { waits++; w.exit(w.root) },
	}}
	if err := j.WaitEmpty(context.Background(), "task-1"); err != nil || waits != 2 || second.State != Running {
		t.Errorf("WaitEmpty = %v after %d waits, want it after 2", err, waits)
	}
	ctx, stop := context.WithCancel(context.Background())
	j.t.(*script).steps = []func(){stop}
	if err := j.WaitEmpty(ctx, "task-2"); !errors.Is(err, context.Canceled) {
		t.Errorf("WaitEmpty of one who lives on: %v", err)
	}
	if n, unread, err := j.Memory(context.Background(), ""); n != simMemory || unread != 0 || err != nil {
		t.Errorf("Memory = %d, %d, %v; want that of one process", n, unread, err)
	}
}

// What cannot be ended is named, with the reason, and nothing is claimed.
func TestSurvivors(t *testing.T) {
	w, j, _ := still(t, eras[2], Options{})
	other := w.fork(w.root)
	other.UID = simRoot
	r, err := j.Kill(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	left, ok := errors.AsType[*proc.SurvivorsError](r.Err("s"))
	if !ok || len(left.Survivors) != 1 || left.Survivors[0].PID != other.PID || r.Empty || r.Frozen {
		t.Errorf("%+v, %v; want the other user's process to be left", r, r.Err("s"))
	}
	if len(r.Survivors) != 1 || r.Survivors[0].Why != "it runs as another user" {
		t.Errorf("survivors %+v", r.Survivors)
	}
	if r.Took > time.Second {
		t.Errorf("it took %v to see that waiting changes nothing", r.Took)
	}
}

// What Watch saw is known when nothing shows it any more; and it is handed out to be
// written down.
func TestWatch(t *testing.T) {
	for _, e := range eras {
		ctx, stop := context.WithCancel(context.Background())
		saved := 0
		w, j, _ := still(t, e, Options{Changed: func(*Ledger) error { saved++; return nil }})
		var last *simProc
		j.t = &script{simTable: j.t.(*simTable), forSomebody: true, steps: []func(){
			func() { last = w.fork(w.root) },
			func() { last = w.fork(last); w.lead(last); last.cookie, last.pipe = "", false },
			func() { w.exit(last.parent); last.hidden = true },
			stop,
		}}
		if err := j.Watch(ctx); err != nil {
			t.Fatal(err)
		}
		w.exec(last)
		last.UID = simUser
		if saved < 2 {
			t.Errorf("%s: %d times to be written down, want one for each process that came", e.name, saved)
		}
		r, err := j.Kill(context.Background(), "")
		if err != nil || !r.Empty || len(w.living()) > 0 {
			t.Errorf("%s: %v, %v; %d are left", e.name, r, err, len(w.living()))
		}
	}
}

// script is a table that lets one thing happen at each wait, or at each for somebody.
type script struct {
	*simTable
	steps       []func()
	forSomebody bool
}

func (s *script) Wait(ctx context.Context, ids []ID, d time.Duration) {
	s.simTable.Wait(ctx, ids, d)
	if len(s.steps) > 0 && (len(ids) > 0 || !s.forSomebody) {
		s.steps[0]()
		s.steps = s.steps[1:]
	}
}

// A kill of a session that is stuck, in which nothing ends, returns.
func TestDeadline(t *testing.T) {
	w, j, _ := still(t, eras[2], Options{})
	j.t = &deaf{j.t.(*simTable)}
	r, err := j.Kill(context.Background(), "")
	if err != nil || r.Empty || len(r.Survivors) != 2 {
		t.Errorf("%+v, %v; want two survivors", r, err)
	}
	if r.Took > 10*time.Second {
		t.Errorf("it took %v", r.Took)
	}
	if len(w.living()) != 2 {
		t.Errorf("%d live", len(w.living()))
	}
}

// deaf is a table whose signals have no effect.
type deaf struct{ *simTable }

func (*deaf) Signal(ID, syscall.Signal) error { return nil }

// Of another boot nothing is killed: all of it has ended.
func TestKillOfAnotherBoot(t *testing.T) {
	w, j, _ := still(t, eras[2], Options{})
	j.l.Boot = "another"
	r, err := j.Kill(context.Background(), "")
	if !errors.Is(err, ErrOtherBoot) || w.signals > 0 || r.Empty {
		t.Errorf("%+v, %v, %d signals; want ErrOtherBoot", r, err, w.signals)
	}
}

// A close from inside of its session spares the closer, those that it descends from, and
// its group; it ends the others and says who is left.
func TestKillFromInside(t *testing.T) {
	w, j, second := still(t, eras[2], Options{})
	closer := w.fork(w.root)
	closer.PGID = closer.PID
	mate := w.fork(closer)
	w.self = closer
	r, err := j.Kill(context.Background(), "")
	if err != nil || r.Empty || len(r.Survivors) != 3 {
		t.Errorf("%+v, %v; want three survivors", r, err)
	}
	for _, p := range []*simProc{w.root, closer, mate} {
		if p.State != Running {
			t.Errorf("%v is %c, want it untouched", p.ID, p.State)
		}
	}
	if second.State != Zombie {
		t.Error("the other task lives")
	}
}

// blurred is a table that does not show a process in some listings, nor as a child.
type blurred struct {
	*simTable
	hidden *simProc
	until  int // listings
}

func (b *blurred) List(ctx context.Context) (*Snapshot, error) {
	s, err := b.simTable.List(ctx)
	if b.w.lists <= b.until {
		s.Procs = slices.DeleteFunc(s.Procs, func(p Proc) bool { return p.Same(b.hidden.ID) })
	}
	return s, err
}

func (*blurred) Children(ID) ([]Proc, error) { return nil, errors.ErrUnsupported }

// One clean reading is no proof: a listing may miss who was forked while it was made.
func TestOneCleanReadingIsNoProof(t *testing.T) {
	w, j, _ := still(t, eras[2], Options{})
	late := w.fork(w.root)
	w.lead(late)
	// Two readings for the standstill, one that finds nobody, and one that meets it.
	j.t = &blurred{j.t.(*simTable), late, w.lists + 4}
	r, err := j.Kill(context.Background(), "")
	if err != nil || late.State != Zombie {
		t.Errorf("%v, %v; who was not in one reading is %c", r, err, late.State)
	}
}

// A reading in which all stand still proves nothing alone: a thread that was in fork
// when its process was stopped still finishes it.
func TestStandstillTakesTwoReadings(t *testing.T) {
	w, j, _ := still(t, eras[2], Options{})
	var late *simProc
	stopped := false
	j.t = &script{simTable: j.t.(*simTable), steps: []func(){
		func() { stopped = w.root.State == Stopped },
		func() { late = w.fork(w.root) },
	}}
	if err := j.Freeze(context.Background(), ""); err != nil {
		t.Fatal(err)
	}
	if !stopped || late == nil || late.State != Stopped {
		t.Errorf("stopped %v, the late child %+v; want it stopped, too", stopped, late)
	}
}

// In Job mode the kernel's count has the last word: as long as it knows of one more, nobody
// says that the session is empty; and our stub ends last.
func TestCountOfCoalition(t *testing.T) {
	for _, more := range []int{0, 1} {
		w := newWorld(rand.New(rand.NewPCG(1, 2)), eras[2], true)
		table, l := w.open()
		j := New(&counting{table, more, w.stub.Coalition}, l, Options{})
		r, err := j.Kill(context.Background(), "")
		if err != nil || r.Empty != (more == 0) || w.root.State != Zombie {
			t.Errorf("%d unseen: %+v %+v, %v", more, r.Empty, r.Survivors, err)
		}
		if stubEnded := w.at(w.stub.ID) == nil; stubEnded != (more == 0) {
			t.Errorf("%d unseen: the stub has ended: %v", more, stubEnded)
		}
	}
}

// Those of ours that keep others of the job are left in peace until all others are gone, then
// end by themselves or are ended, and the stub after them.
func TestLastOfJob(t *testing.T) {
	w := newWorld(rand.New(rand.NewPCG(1, 2)), eras[2], true)
	keeper := w.fork(w.stub)
	table, l := w.open()
	watch := &ordered{simTable: table}
	j := New(watch, l, Options{Last: func(p *Proc) bool { return p.PID == keeper.PID }})
	r, err := j.Kill(context.Background(), "")
	if err != nil || !r.Empty || w.at(w.stub.ID) != nil || w.at(keeper.ID) != nil {
		t.Fatalf("%v, %v: the stub %v, the keeper %v", r, err, w.at(w.stub.ID), w.at(keeper.ID))
	}
	n := len(watch.sent)
	if n < 3 || watch.sent[n-1] != w.stub.PID || watch.sent[n-2] != keeper.PID || slices.Index(watch.sent, keeper.PID) != n-2 {
		t.Errorf("signals went to %v; want the keeper (%d) once, last but one, then the stub (%d)", watch.sent, keeper.PID, w.stub.PID)
	}
	if slices.ContainsFunc(r.Ended, func(m *Member) bool { return m.PID == keeper.PID || m.PID == w.stub.PID }) {
		t.Errorf("our own are told as ended: %v", r.Ended)
	}
}

// Who cannot be asked what he holds is left out, the others come by size.
func TestHoldings(t *testing.T) {
	member := func(pid int) *Member { return &Member{Proc: Proc{ID: ID{PID: pid}}} }
	all := Holdings(holders{2: 5, 3: 50, 5: 7}, []*Member{member(2), member(3), member(4), member(5)})
	var pids []int
	for _, h := range all {
		pids = append(pids, h.PID)
	}
	if !slices.Equal(pids, []int{3, 5, 2}) || all[0].Bytes != 50 {
		t.Errorf("%v", pids)
	}
}

type holders map[int]int64

func (h holders) Memory(id ID) (int64, error) {
	if n, ok := h[id.PID]; ok {
		return n, nil
	}
	return 0, syscall.EPERM
}

// ordered is a table that remembers who was signalled.
type ordered struct {
	*simTable
	sent []int
}

func (o *ordered) Signal(id ID, sig syscall.Signal) error {
	o.sent = append(o.sent, id.PID)
	return o.simTable.Signal(id, sig)
}

// counting is a table whose coalition has more tasks than are listed.
type counting struct {
	*simTable
	more int
	id   uint64
}

func (c *counting) List(ctx context.Context) (*Snapshot, error) {
	s, err := c.simTable.List(ctx)
	s.Coalitions[c.id] += c.more
	return s, err
}
