package integration_test

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// TestSoakLibrary uses the library in this very process, as a harness written in Go
// does, round after round: descriptors and goroutines stay as many as they were.
func TestSoakLibrary(t *testing.T) {
	r := newRig(t)
	c := r.canary()
	m := r.manager()
	rounds, end := 0, time.Now().Add(soakTime(t)/2)
	for range 3 { // what is opened once for all
		r.round(m, rounds)
		rounds++
	}
	fds, routines := held(t)
	for ; time.Now().Before(end) && !t.Failed(); rounds++ {
		r.round(m, rounds)
	}
	// What is on its way out when a call returns is gone a moment later.
	eventually(t, "descriptors and goroutines as before", func() bool {
		f, g := held(t)
		return f <= fds && g <= routines
	})
	t.Logf("%d rounds, %d descriptors, %d goroutines", rounds, fds, routines)
	c.lives()
	r.nothing("at the end")
}

// held counts what the process has open and what runs in it.
func held(t *testing.T) (fds, routines int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries), runtime.NumGoroutine()
}

// round does with two sessions at once what can be done with one.
func (r *rig) round(m *session.Manager, n int) {
	r.t.Helper()
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() { r.life(m, "lib-"+strconv.Itoa(n)+"-"+strconv.Itoa(i)) })
	}
	wg.Wait()
	for i := range 2 {
		name := "lib-" + strconv.Itoa(n) + "-" + strconv.Itoa(i) + ".kept-1"
		if _, err := m.Close(r.t.Context(), name, session.CloseOptions{Now: true}); err != nil {
			r.t.Errorf("close %s: %v", name, err)
		}
	}
}

// life is one session from its opening to its close.
func (r *rig) life(m *session.Manager, name string) {
	t, ctx := r.t, r.t.Context()
	grace := 200 * time.Millisecond
	s, err := m.Open(ctx, session.OpenOptions{Name: name, Grace: &grace, Owner: &session.OwnerOptions{PID: os.Getpid()}})
	if err != nil {
		t.Errorf("open: %v", err)
		return
	}
	defer s.Release()
	start := func(o session.StartOptions, argv ...string) *session.Task {
		task, err := s.Start(ctx, exec.Command(argv[0], argv[1:]...), o)
		if err != nil {
			t.Errorf("start %v: %v", argv, err)
			return nil
		}
		return task
	}
	wait := func(task *session.Task) {
		if task == nil {
			return
		}
		if _, err := task.Wait(); err != nil {
			t.Errorf("wait: %v", err)
		}
	}
	short := start(session.StartOptions{Tie: true}, "/bin/sh", "-c", "sleep 600 & exit 3")
	limited := start(session.StartOptions{Timeout: 50 * time.Millisecond, KillAfter: 50 * time.Millisecond}, "sleep", "600")
	long := start(session.StartOptions{Tie: true}, "sleep", "600")
	lasting := start(session.StartOptions{}, "sleep", "600")
	wait(short)
	wait(limited)
	if _, err := s.Start(ctx, exec.Command("no-such-command"), session.StartOptions{}); err == nil {
		t.Error("a command that is not there was started")
	}
	if _, err := m.Touch(ctx, name, 0); err != nil {
		t.Errorf("touch: %v", err)
	}
	if kept, _, err := s.Keep(ctx, lasting.N()); err != nil {
		t.Errorf("keep: %v", err)
	} else {
		kept.Release()
	}
	for _, step := range []func() error{
		func() error { return s.Freeze(ctx) },
		func() error { return s.Thaw(ctx) },
		func() error { return s.KillTask(ctx, short.N(), "test") },
		func() error { _, err := m.Inspect(ctx, name, session.InspectOptions{Processes: true}); return err },
		func() error { _, err := m.List(ctx, session.ListOptions{}); return err },
		func() error { _, err := m.Reconcile(ctx, session.ReconcileOptions{}); return err },
		func() error { _, err := m.Close(ctx, name, session.CloseOptions{DryRun: true}); return err },
		func() error { _, err := m.Close(ctx, name, session.CloseOptions{}); return err },
	} {
		if err := step(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	wait(long)
	// The kept one ends with its session: it is waited for there.
	if _, err := m.Close(ctx, name+".kept-1", session.CloseOptions{Now: true}); err != nil {
		t.Errorf("close what was kept: %v", err)
	}
	wait(lasting)
}
