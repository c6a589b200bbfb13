package session_test

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// TestBoxBrakeLeft: the brake of a guard that was killed is taken away by a reconcile, and
// not while there is a guard; the record says so.
func TestBoxBrakeLeft(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m, err := session.New(session.Config{Helper: self, NoGuard: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	steps := memlimit.MayBrake
	s, err := m.Open(t.Context(), session.OpenOptions{Memory: session.MemoryOptions{Steps: &steps}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close(t.Context(), s.ID(), session.CloseOptions{})
	st, err := store.Open(m.Dirs())
	if err != nil {
		t.Fatal(err)
	}
	left := func() {
		t.Helper()
		if _, err := st.Update(t.Context(), s.ID(), func(r *store.Session) error { r.Memory.Brake = 300 << 20; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	brake := func() uint64 {
		t.Helper()
		rec, err := st.Get(s.ID())
		if err != nil {
			t.Fatal(err)
		}
		return rec.Memory.Brake
	}
	reconcile := func(dry bool) session.Reconciled {
		t.Helper()
		r, err := m.Reconcile(t.Context(), session.ReconcileOptions{Sessions: []string{s.ID()}, DryRun: dry})
		if err != nil || len(r.Sessions) != 1 || r.Sessions[0].Error != "" {
			t.Fatalf("%+v, %v", r, err)
		}
		return r.Sessions[0]
	}
	left()
	lock, err := st.LockGuard(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r := reconcile(false); r.Action != session.ActionNone || brake() == 0 {
		t.Errorf("beside a guard: %s, and the brake is %d", r.Action, brake())
	}
	lock.Unlock()
	if r := reconcile(true); r.Action != session.ActionUpdated || brake() == 0 {
		t.Errorf("a dry run: %s, and the brake is %d", r.Action, brake())
	}
	if r := reconcile(false); r.Action != session.ActionUpdated || brake() != 0 {
		t.Errorf("without a guard: %s, and the brake is %d", r.Action, brake())
	}
	if r := reconcile(false); r.Action != session.ActionNone {
		t.Errorf("once more: %s", r.Action)
	}
	// Nor does who uses the session wait for a reconcile.
	left()
	task, err := s.Start(t.Context(), exec.Command("true"), session.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if brake() != 0 {
		t.Error("a command is started at a brake that was left")
	}
	if _, err := task.Wait(); err != nil {
		t.Error(err)
	}
	left()
	if _, err := s.SetLimits(t.Context(), memlimit.Limits{PidsMax: memlimit.Bytes(500)}); err != nil || brake() != 0 {
		t.Errorf("after a change of something else: %v, and the brake is %d", err, brake())
	}
	// What its user asks for is his, and no brake of a guard's.
	left()
	if _, err := s.SetLimits(t.Context(), memlimit.Limits{MemoryHigh: memlimit.Bytes(1 << 30)}); err != nil {
		t.Fatal(err)
	}
	if brake() != 0 {
		t.Error("a memory.high that was asked for is taken for the guard's brake")
	}
	w, err := m.WatchOf(s.ID())
	if err != nil || w.Memory.High != 1<<30 {
		t.Fatalf("%+v, %v", w, err)
	}
	if err := m.MemoryBrake(t.Context(), session.MemoryDeed{ID: s.ID(), Inode: w.Memory.Inode}, 300<<20); err == nil || errors.Is(err, session.ErrUnsupported) || brake() != 0 {
		t.Errorf("the brake goes over what was asked for: %v, %d", err, brake())
	}
}

// TestBoxHighLifted: that a guard has lifted what the user asked for stays in the record,
// with what that was, through a change of other ceilings; a memory.high that is asked for
// anew, and a reconcile without a guard of a session that does with less, end it.
func TestBoxHighLifted(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m, err := session.New(session.Config{Helper: self, NoGuard: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	steps := memlimit.MayBrake
	s, err := m.Open(t.Context(), session.OpenOptions{Limits: memlimit.Limits{MemoryHigh: memlimit.Bytes(1 << 30)}, Memory: session.MemoryOptions{Steps: &steps}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close(t.Context(), s.ID(), session.CloseOptions{})
	st, err := store.Open(m.Dirs())
	if err != nil {
		t.Fatal(err)
	}
	lift := func() {
		t.Helper()
		if _, err := st.Update(t.Context(), s.ID(), func(r *store.Session) error {
			r.Memory.Lifted = &store.Lifted{High: 1 << 30, Reason: "it stood at it"}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	watch := func() session.MemoryWatch {
		t.Helper()
		w, err := m.WatchOf(s.ID())
		if err != nil {
			t.Fatal(err)
		}
		return w.Memory
	}
	lift()
	if _, err := s.SetLimits(t.Context(), memlimit.Limits{PidsMax: memlimit.Bytes(500)}); err != nil {
		t.Fatal(err)
	}
	if w := watch(); !w.Lifted || w.High != 1<<30 {
		t.Errorf("after a change of something else: %+v", w)
	}
	info, err := m.Inspect(t.Context(), s.ID(), session.InspectOptions{})
	if err != nil || info.MemoryWatch == nil || info.MemoryWatch.HighLifted == nil || info.MemoryWatch.HighLifted.HighBytes != 1<<30 || info.MemoryWatch.HighLifted.Reason != "it stood at it" {
		t.Errorf("%+v, %v", info.MemoryWatch, err)
	}
	if _, err := s.SetLimits(t.Context(), memlimit.Limits{MemoryHigh: memlimit.Bytes(2 << 30)}); err != nil {
		t.Fatal(err)
	}
	if w := watch(); w.Lifted || w.High != 2<<30 {
		t.Errorf("after it was asked for anew: %+v", w)
	}
	if err := m.MemoryLiftHigh(t.Context(), session.MemoryDeed{ID: s.ID(), Inode: watch().Inode}, 1<<30); err == nil || watch().Lifted {
		t.Errorf("what is not asked for any more is lifted: %v", err)
	}
	lift()
	reconcile := func(dry bool) session.Reconciled {
		t.Helper()
		r, err := m.Reconcile(t.Context(), session.ReconcileOptions{Sessions: []string{s.ID()}, DryRun: dry})
		if err != nil || len(r.Sessions) != 1 || r.Sessions[0].Error != "" {
			t.Fatalf("%+v, %v", r, err)
		}
		return r.Sessions[0]
	}
	lock, err := st.LockGuard(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r := reconcile(false); r.Action != session.ActionNone || !watch().Lifted {
		t.Errorf("beside a guard: %s", r.Action)
	}
	lock.Unlock()
	if r := reconcile(true); r.Action != session.ActionUpdated || !watch().Lifted {
		t.Errorf("a dry run: %s", r.Action)
	}
	if r := reconcile(false); r.Action != session.ActionUpdated || watch().Lifted {
		t.Errorf("without a guard: %s, %s", r.Action, r.Reason)
	}
}
