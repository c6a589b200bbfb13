package session_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// endBox is a session for a test, and its records.
func endBox(t *testing.T, name string) (*session.Manager, *session.Session, *store.Store) {
	t.Helper()
	m, s := manager(), open(manager(), name)
	t.Cleanup(func() {
		if _, err := m.Close(context.Background(), s.ID(), session.CloseOptions{Now: true}); err != nil {
			t.Error(err)
		}
		s.Release()
	})
	dirs, err := store.DefaultDirs(store.SystemEnv())
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(dirs)
	if err != nil {
		t.Fatal(err)
	}
	return m, s, st
}

// exits is a wait status.
func exits(code int) syscall.WaitStatus { return syscall.WaitStatus(code << 8) }

// The end that a supervisor records is not overwritten, and one that it is about to
// record is left to it.
func TestBoxRecordEndSupervised(t *testing.T) {
	m, s, st := endBox(t, "supervised-end")
	task, err := s.Start(t.Context(), exec.Command("sh", "-c", "exit 3"), session.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.RecordEnd(t.Context(), s.ID(), task.N(), exits(9)); err != nil {
		t.Error(err)
	}
	if rec, err := st.Task(s.ID(), task.N()); err != nil || rec.State != store.TaskRunning {
		t.Errorf("while its supervisor lives: %v, %v; want running", rec.State, err)
	}
	if _, err := task.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := m.RecordEnd(t.Context(), s.ID(), task.N(), exits(9)); err != nil {
		t.Error(err)
	}
	if rec, err := st.Task(s.ID(), task.N()); err != nil || rec.State != store.TaskFailed || rec.Exit == nil || *rec.Exit != 3 {
		t.Errorf("record: %+v, %v; want exit 3", rec, err)
	}
	if err := m.RecordEnd(t.Context(), s.ID(), 99, exits(9)); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("of no task: %v; want not found", err)
	}
}

// Of several who record the end of an orphan one does, and that is told once.
func TestBoxRecordEndOrphan(t *testing.T) {
	m, s, st := endBox(t, "orphan-end")
	for _, tt := range []struct {
		name   string
		ending store.TaskState
		ws     syscall.WaitStatus
		state  store.TaskState
		signal string
	}{
		{"exit 0", "", exits(0), store.TaskExited, ""},
		{"exit 5", "", exits(5), store.TaskFailed, ""},
		{"signal", "", syscall.WaitStatus(syscall.SIGKILL), store.TaskSignaled, "SIGKILL"},
		{"noted without its status", store.TaskExited, exits(5), store.TaskFailed, ""},
		{"noted as timed out", store.TaskTimedOut, syscall.WaitStatus(syscall.SIGTERM), store.TaskTimedOut, "SIGTERM"},
		{"killed by us", store.TaskKilled, syscall.WaitStatus(syscall.SIGKILL), store.TaskKilled, "SIGKILL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command("sleep", "600")
			task, err := s.Start(t.Context(), cmd, session.StartOptions{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = st.UpdateTask(t.Context(), s.ID(), task.N(), func(rec *store.Task) error {
				rec.Supervisor, rec.Ending = store.ProcID{}, tt.ending
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := m.RecordEnd(t.Context(), s.ID(), task.N(), tt.ws); !errors.Is(err, session.ErrUsage) {
				t.Errorf("while it runs: %v; want ErrUsage", err)
			}
			cmd.Process.Kill()
			cmd.Process.Wait()
			if strings.HasPrefix(tt.name, "noted") { // by a reconcile that came before
				_, err = st.UpdateTask(t.Context(), s.ID(), task.N(), func(rec *store.Task) error {
					rec.State, rec.Ending, rec.Reason = tt.ending, "", "a guess"
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					if err := m.RecordEnd(context.Background(), s.ID(), task.N(), tt.ws); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			rec, err := st.Task(s.ID(), task.N())
			if err != nil || rec.State != tt.state || rec.Signal != tt.signal || rec.Ended == nil {
				t.Errorf("record: %+v, %v; want %s %s", rec, err, tt.state, tt.signal)
			}
			if tt.signal == "" && (rec.Exit == nil || *rec.Exit != tt.ws.ExitStatus()) {
				t.Errorf("exit = %v; want %d", rec.Exit, tt.ws.ExitStatus())
			}
			told := 0
			events, err := m.History(store.Filter{Events: []string{"task_ended"}})
			for _, e := range events {
				if e.ID == s.ID() && e.Task == task.N() {
					told++
				}
			}
			if err != nil || told != 1 {
				t.Errorf("the end was told %d times, %v; want once", told, err)
			}
		})
	}
}
