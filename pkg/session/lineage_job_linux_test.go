package session

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"github.com/sessionbox/sessionbox/pkg/internal/keeper"
	"github.com/sessionbox/sessionbox/pkg/internal/launchd"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// mac is a launchd and a kernel with coalitions, made of what Linux has: a coalition is who descends
// from a process to which all orphans below it come.
type mac struct {
	t  *testing.T
	mu sync.Mutex
	// jobs are loaded, by label; coalitions are by the pid of who stands for launchd in them.
	jobs       map[string]*exec.Cmd
	coalitions []int
	refuses    bool // to bootstrap
	hangs      bool // at bootout
}

func (c *mac) launchctl(_ context.Context, args ...string) (out string, code int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	domain := fmt.Sprintf("user/%d", os.Geteuid())
	switch args[0] {
	case "managername":
		return "Background\n", 0, nil
	case "print":
		label, job := strings.CutPrefix(args[1], domain+"/")
		switch {
		case job && c.jobs[label] != nil:
			return label + " = {\n}\n", 0, nil
		case args[1] == domain:
			out := domain + " = {\n\tservices = {\n"
			for l := range c.jobs {
				out += "\t\t       0      - \t" + l + "\n"
			}
			return out + "\t}\n}\n", 0, nil
		}
		return "Could not find service\n", 113, nil
	case "bootstrap":
		if c.refuses || args[1] != domain {
			return "Bootstrap failed: 5: Input/output error\n", 5, nil
		}
		return "", 0, c.load(args[2])
	case "bootout":
		if c.hangs {
			return "", 0, context.DeadlineExceeded
		}
		label := strings.TrimPrefix(args[1], domain+"/")
		cmd := c.jobs[label]
		if cmd == nil {
			return "Boot-out failed: 3: No such process\n", 3, nil
		}
		delete(c.jobs, label)
		if kids := childrenOf(cmd.Process.Pid); len(kids) > 0 {
			endOne(c.t, kids[0])
		}
		return "", 0, nil
	}
	return "", 64, fmt.Errorf("launchctl %q", args)
}

// load starts the job of a property list.
func (c *mac) load(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var all []string
	for d := xml.NewDecoder(f); ; {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if s, ok := tok.(xml.StartElement); ok && s.Name.Local == "string" {
			var text string
			if err := d.DecodeElement(&text, &s); err != nil {
				return err
			}
			all = append(all, text)
		}
	}
	end := slices.Index(all, "Interactive")
	cmd := exec.Command(os.Args[0], append([]string{"fake-launchd"}, all[1:end]...)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	c.jobs[all[0]] = cmd
	c.coalitions = append(c.coalitions, cmd.Process.Pid)
	return nil
}

func childrenOf(pid int) (kids []int) {
	pids, _ := proc.PIDs()
	for _, p := range pids {
		if st, err := proc.ReadStat(p); err == nil && st.PPID == pid && st.State != 'Z' {
			kids = append(kids, p)
		}
	}
	return kids
}

// endOne kills one of ours by a handle.
func endOne(t *testing.T, pid int) {
	t.Helper()
	if h, err := proc.OpenPID(pid); err == nil {
		_ = h.Signal(syscall.SIGKILL)
		h.Close()
	}
}

// coalesced is Linux's process table with coalitions.
type coalesced struct {
	darwinjob.Table
	c *mac
}

func (t *coalesced) List(ctx context.Context) (*darwinjob.Snapshot, error) {
	t.c.mu.Lock()
	tops := slices.Clone(t.c.coalitions)
	t.c.mu.Unlock()
	s, err := t.Table.List(ctx)
	if err != nil {
		return nil, err
	}
	s.Caps.Coalition, s.Coalitions = true, map[uint64]int{}
	parent := map[int]int{}
	for i := range s.Procs {
		parent[s.Procs[i].PID] = s.Procs[i].PPID
	}
	for i := range s.Procs {
		p := &s.Procs[i]
		if p.State == darwinjob.Zombie {
			continue
		}
		p.Coalition = 1
		for up, n := p.PPID, 0; up > 1 && n < 1000; up, n = parent[up], n+1 {
			if slices.Contains(tops, up) {
				p.Coalition = uint64(up)
				break
			}
		}
		s.Coalitions[p.Coalition]++
	}
	return s, nil
}

func (t *coalesced) Lookup(pid int) (darwinjob.Proc, error) {
	p, err := t.Table.Lookup(pid)
	if err != nil {
		return p, err
	}
	s, err := t.List(context.Background())
	if err != nil {
		return p, err
	}
	for i := range s.Procs {
		if p.Same(s.Procs[i].ID) {
			p.Coalition = s.Procs[i].Coalition
		}
	}
	return p, nil
}

// newMac gives a manager that has a launchd.
func newMac(t *testing.T) (*mac, *Manager) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "sbj") // short, as sockets want it
	if err != nil {
		t.Fatal(err)
	}
	c := &mac{t: t, jobs: map[string]*exec.Cmd{}}
	t.Cleanup(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, top := range c.coalitions { // until it has nobody left
			for kids := childrenOf(top); len(kids) > 0; kids = childrenOf(top) {
				for _, pid := range kids {
					endOne(t, pid)
				}
			}
		}
		os.RemoveAll(dir)
	})
	t.Setenv("XDG_CONFIG_HOME", dir)
	m, err := New(Config{StateDir: filepath.Join(dir, "s"), Helper: os.Args[0], NoGuard: true})
	if err != nil {
		t.Fatal(err)
	}
	m.launchd = &launchd.Control{UID: os.Geteuid(), Run: c.launchctl}
	m.table = func() (darwinjob.Table, error) {
		table, err := darwinjob.System()
		return &coalesced{table, c}, err
	}
	return c, m
}

func openJob(t *testing.T, m *Manager) *Session {
	t.Helper()
	grace := time.Duration(0)
	s, err := m.Open(t.Context(), OpenOptions{Kind: store.KindLineage, LineageMode: LineageJob, Grace: &grace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Release() })
	return s
}

// runs starts a command that leaves a daemon behind, and gives the daemon once nothing but the
// coalition tells whose it is: its parents, its keeper and their records are gone.
func escapee(t *testing.T, m *Manager, s *Session) proc.ID {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pid")
	cmd := exec.Command("sh", "-c", `setsid env -i sh -c 'echo $$ >"$0.new"; mv "$0.new" "$0"; exec sleep 999' "`+file+`" >/dev/null 2>&1 </dev/null & while ! test -s "`+file+`"; do sleep 0.01; done`)
	task, err := s.Start(t.Context(), cmd, StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := task.Wait(); err != nil || r.Exit != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	var pid int
	b, err := os.ReadFile(file)
	if _, serr := fmt.Sscan(string(b), &pid); err != nil || serr != nil {
		t.Fatal(err, serr)
	}
	st, err := proc.ReadStat(pid)
	if err != nil {
		t.Fatal(err)
	}
	id := proc.ID{PID: pid, Start: st.Start}
	if _, ok := keeper.Session(proc.Args(st.PPID)); !ok {
		t.Fatalf("the daemon's parent is %q, want a keeper", proc.Args(st.PPID))
	}
	endOne(t, st.PPID)
	until(t, "the daemon is an orphan", func() bool { now, err := proc.ReadStat(pid); return err == nil && now.PPID != st.PPID })
	if err := m.store.RemoveLineage(s.ID(), LeafName(task.N())); err != nil {
		t.Fatal(err)
	}
	return id
}

func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}

func dead(id proc.ID) bool {
	st, err := proc.ReadStat(id.PID)
	return err != nil || st.Start != id.Start || st.State == 'Z'
}

// ended makes sure that nothing of a session is left: neither record, job nor process.
func (c *mac) ended(m *Manager, id string) {
	c.t.Helper()
	if _, err := m.store.Get(id); !errors.Is(err, store.ErrNotFound) {
		c.t.Errorf("its record is left: %v", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.jobs) > 0 {
		c.t.Errorf("launchd has jobs still: %v", c.jobs)
	}
	for _, top := range c.coalitions {
		if kids := childrenOf(top); len(kids) > 0 {
			c.t.Errorf("in the coalition is left: %q", proc.Args(kids[0]))
		}
	}
}

// A session in job mode ends whatever was started in it, also what nothing but the coalition tells of.
func TestJobSession(t *testing.T) {
	c, m := newMac(t)
	s := openJob(t, m)
	id := escapee(t, m, s)
	info, err := m.Inspect(t.Context(), s.ID(), InspectOptions{})
	if err != nil || info.Box.Containment != ByCoalition || info.Box.Unit != m.jobLabel(s.ID()) || info.Processes != 1 || len(info.Box.MayEscape) != 1 {
		t.Errorf("inspect: %+v, %d processes, %v", info.Box, info.Processes, err)
	}
	r, err := m.Close(t.Context(), s.ID(), CloseOptions{})
	if err != nil || len(r.Processes) != 1 || r.Processes[0].PID != id.PID || r.Processes[0].Fate != FateKilled || r.Box.Containment != ByCoalition || len(r.Notes) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if !dead(id) {
		t.Error("the daemon lives")
	}
	c.ended(m, s.ID())
}

// Who waits for a command is told of its end also when the session is closed over it.
func TestJobClosedOver(t *testing.T) {
	c, m := newMac(t)
	s := openJob(t, m)
	task, err := s.Start(t.Context(), exec.Command("sleep", "999"), StartOptions{Tie: true})
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() {
		_, err := m.Close(context.Background(), s.ID(), CloseOptions{Now: true})
		closed <- err
	}()
	if r, err := task.Wait(); err != nil || r.Signal != syscall.SIGKILL {
		t.Errorf("%+v, %v; want SIGKILL", r, err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	c.ended(m, s.ID())
}

// Without a job a session that may do without is held by ancestry, one that must not is none.
func TestJobRefused(t *testing.T) {
	c, m := newMac(t)
	c.refuses = true
	_, err := m.Open(t.Context(), OpenOptions{Kind: store.KindLineage, LineageMode: LineageJob})
	if e, ok := errors.AsType[*Error](err); !ok || !errors.Is(e.Kind, ErrUnsupported) || !strings.Contains(e.Error(), "Input/output error") || e.Hint == "" {
		t.Errorf("%v", err)
	}
	if recs, _, err := m.store.Sessions(); err != nil || len(recs) > 0 {
		t.Errorf("left: %+v, %v", recs, err)
	}
	s, err := m.Open(t.Context(), OpenOptions{Kind: store.KindLineage, Detached: true})
	if err != nil {
		t.Fatal(err)
	}
	rec, err := m.store.Get(s.ID())
	if err != nil || rec.Lineage != "" || rec.Unit != "" {
		t.Errorf("%+v, %v", rec, err)
	}
	if info, err := m.Inspect(t.Context(), s.ID(), InspectOptions{}); err != nil || info.Box.Containment != BestEffort {
		t.Errorf("%+v, %v", info.Box, err)
	}
	if _, err := m.Close(t.Context(), s.ID(), CloseOptions{Now: true}); err != nil {
		t.Error(err)
	}
	c.refuses = false
	if s, err = m.Open(t.Context(), OpenOptions{Kind: store.KindLineage, Detached: true}); err != nil {
		t.Fatal(err)
	}
	if !s.box.(*lineageBox).inJob() {
		t.Error("a detached session is no job although it may be")
	}
	if err := s.box.Move(t.Context(), "task-1", os.Getpid()); !errors.Is(err, ErrUnsupported) {
		t.Errorf("a process that runs comes into a job: %v", err)
	}
	if _, err := m.Close(t.Context(), s.ID(), CloseOptions{Now: true}); err != nil {
		t.Error(err)
	}
	c.ended(m, s.ID())
}

// What a crash leaves of an opening is cleared away, wherever it came.
func TestJobCrashedOpen(t *testing.T) {
	for _, part := range []string{"recorded", "started"} {
		c, m := newMac(t)
		s := openJob(t, m)
		if part == "started" { // the job runs, and nothing says in which coalition
			if err := m.store.RemoveLineage(s.ID(), partJob); err != nil {
				t.Fatal(err)
			}
		}
		_, err := m.store.Update(t.Context(), s.ID(), func(r *store.Session) error {
			r.State, r.Creator = store.StateOpening, store.ProcID{PID: 1 << 21, Start: 1, Boot: r.Creator.Boot}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		r, err := m.Reconcile(t.Context(), ReconcileOptions{})
		if err != nil || len(r.Sessions) != 1 || r.Sessions[0].Action != ActionEnded {
			t.Fatalf("%s: %+v, %v", part, r, err)
		}
		until(t, "the stub ends", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(childrenOf(c.coalitions[0])) == 0 })
		c.ended(m, s.ID())
	}
}

// With all records lost, the stub and the keepers say which session they are, and the coalition is
// read off them.
func TestJobRecordsLost(t *testing.T) {
	c, m := newMac(t)
	s := openJob(t, m)
	id := escapee(t, m, s)
	if err := os.RemoveAll(m.store.SessionDir(s.ID())); err != nil {
		t.Fatal(err)
	}
	r, err := m.Reconcile(t.Context(), ReconcileOptions{})
	if err != nil || len(r.Sessions) != 1 || r.Sessions[0].Action != ActionAdopted || r.Sessions[0].Box.Containment != ByCoalition || r.Sessions[0].Processes != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := m.Close(t.Context(), s.ID(), CloseOptions{Now: true}); err != nil {
		t.Error(err)
	}
	if !dead(id) {
		t.Error("the daemon lives")
	}
	c.ended(m, s.ID())
}

// A stub that was killed starts nothing any more, which is said; closing works by the coalition.
func TestJobStubLost(t *testing.T) {
	c, m := newMac(t)
	s := openJob(t, m)
	id := escapee(t, m, s)
	l, err := s.box.(*lineageBox).ledger()
	if err != nil || l.Stub.PID == 0 {
		t.Fatalf("%+v, %v", l, err)
	}
	endOne(t, l.Stub.PID)
	until(t, "the stub ends", func() bool { return dead(proc.ID{PID: l.Stub.PID, Start: l.Stub.Start}) })
	if _, err := s.Start(t.Context(), exec.Command("true"), StartOptions{}); err == nil || !strings.Contains(err.Error(), "the job of the session does not start anything") {
		t.Errorf("a start without a stub: %v", err)
	}
	if _, err := m.Close(t.Context(), s.ID(), CloseOptions{Now: true}); err != nil || !dead(id) {
		t.Errorf("%v; the daemon has ended: %v", err, dead(id))
	}
	c.ended(m, s.ID())
}

// What is kept stays when the job is closed, and is the other session's to end.
func TestJobKeep(t *testing.T) {
	c, m := newMac(t)
	s := openJob(t, m)
	task, err := s.Start(t.Context(), exec.Command("sleep", "999"), StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	st, err := proc.ReadStat(task.PID())
	if err != nil {
		t.Fatal(err)
	}
	kept, _, err := s.Keep(t.Context(), task.N())
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Release()
	if r, err := m.Close(t.Context(), s.ID(), CloseOptions{Now: true}); err != nil || len(r.Processes) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
	id := proc.ID{PID: task.PID(), Start: st.Start}
	if dead(id) {
		t.Fatal("what was kept has ended with the job")
	}
	if _, err := m.Close(t.Context(), kept.ID(), CloseOptions{Now: true}); err != nil || !dead(id) {
		t.Errorf("%v; it has ended: %v", err, dead(id))
	}
	_, _ = task.Wait()
	c.ended(m, s.ID())
}

// A launchctl that does not answer keeps no session open; what it was not told it is told later.
// Jobs of nobody are ended, those of other places left alone.
func TestJobLeft(t *testing.T) {
	c, m := newMac(t)
	s := openJob(t, m)
	c.hangs = true
	r, err := m.Close(t.Context(), s.ID(), CloseOptions{Now: true})
	if err != nil || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "launchd could not be told") {
		t.Errorf("%+v, %v", r, err)
	}
	if len(c.jobs) != 1 {
		t.Fatalf("%v", c.jobs)
	}
	c.hangs = false
	other := jobPrefix + store.NewID() + ".00000000"
	nobody := m.jobLabel(store.NewID())
	c.jobs[other], c.jobs[nobody] = &exec.Cmd{Process: &os.Process{Pid: 1 << 21}}, &exec.Cmd{Process: &os.Process{Pid: 1 << 21}}
	live := openJob(t, m)
	if _, err := m.Reconcile(t.Context(), ReconcileOptions{}); err != nil {
		t.Error(err)
	}
	if len(c.jobs) != 2 || c.jobs[other] == nil || c.jobs[m.jobLabel(live.ID())] == nil {
		t.Errorf("launchd has %v", c.jobs)
	}
	delete(c.jobs, other)
	if _, err := m.Close(t.Context(), live.ID(), CloseOptions{Now: true}); err != nil {
		t.Error(err)
	}
	c.ended(m, live.ID())
}

// Sessions that are opened at once have a job each.
func TestJobsAtOnce(t *testing.T) {
	c, m := newMac(t)
	var all [3]*Session
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			s, err := m.Open(context.Background(), OpenOptions{Kind: store.KindLineage, LineageMode: LineageJob})
			if err != nil {
				t.Error(err)
				return
			}
			all[i] = s
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	coalitions := map[uint64]bool{}
	for _, s := range all {
		l, err := s.box.(*lineageBox).ledger()
		if err != nil {
			t.Fatal(err)
		}
		coalitions[l.Coalition] = true
	}
	if len(coalitions) != 3 || coalitions[0] || coalitions[1] {
		t.Errorf("coalitions %v", coalitions)
	}
	for _, s := range all {
		if _, err := m.Close(t.Context(), s.ID(), CloseOptions{Now: true}); err != nil {
			t.Error(err)
		}
	}
	c.ended(m, all[0].ID())
}

// What doctor says of jobs.
func TestJobCheck(t *testing.T) {
	_, m := newMac(t)
	if c := m.jobCheck(t.Context()); c.Status != CheckOK || !strings.Contains(c.Text, "TCC") || !strings.Contains(c.Text, "keychain") || !strings.Contains(c.Text, "Background") {
		t.Errorf("%+v", c)
	}
	m.launchd.Run = func(context.Context, ...string) (string, int, error) { return "", 113, nil }
	if c := m.jobCheck(t.Context()); c.Status != CheckMissing || c.Fix == "" || c.Needed {
		t.Errorf("%+v", c)
	}
	m.launchd.Run = func(context.Context, ...string) (string, int, error) { return "", 0, context.DeadlineExceeded }
	if c := m.jobCheck(t.Context()); c.Status != CheckUnknown {
		t.Errorf("%+v", c)
	}
	m.launchd = nil
	_, err := m.Open(t.Context(), OpenOptions{LineageMode: LineageJob})
	if e, ok := errors.AsType[*Error](err); !ok || !errors.Is(e.Kind, ErrUnsupported) || e.Hint == "" {
		t.Errorf("without launchd: %v", err)
	}
	if _, err := m.Open(t.Context(), OpenOptions{LineageMode: "jab"}); !errors.Is(err, ErrUsage) {
		t.Errorf("%v", err)
	}
}

// Whoever is in a job's coalition is in its session, whatever his ancestors are.
func TestJobAround(t *testing.T) {
	_, m := newMac(t)
	s := openJob(t, m)
	b := s.box.(*lineageBox)
	if in := jobAround(b.survey); in != "" {
		t.Errorf("we are in %q, want none", in)
	}
	l, err := b.ledger()
	if err != nil {
		t.Fatal(err)
	}
	l.Coalition = 1 // ours
	data, err := l.Encode()
	if err == nil {
		err = m.store.PutLineage(s.ID(), partJob, data)
	}
	if err != nil {
		t.Fatal(err)
	}
	again, err := newSurvey(m)
	if err != nil {
		t.Fatal(err)
	}
	if in := jobAround(again); in != s.ID() {
		t.Errorf("we are in %q, want %s", in, s.ID())
	}
	if own := m.ownSession(); len(own) != 1 || own[0] != s.ID() {
		t.Errorf("our sessions are %q", own)
	}
}
