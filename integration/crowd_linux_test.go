package integration_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// crowd is how many work at once. In a lineage box each of them reads the whole process table,
// in which all the others are: the work grows with the square of it.
func crowd() int {
	switch {
	case tierName() == "vm":
		return 20
	case backend() == "lineage":
		return 50
	}
	return 200
}

// TestCrowd: 200 at once open, use and close a session each, as separate processes.
func TestCrowd(t *testing.T) {
	r := newRig(t)
	n := crowd()
	var wg sync.WaitGroup
	failed := make([]string, n)
	for i := range n {
		wg.Go(func() { failed[i] = r.member(fmt.Sprintf("crowd-%d", i)) })
	}
	wg.Wait()
	for _, f := range failed {
		if f != "" {
			t.Error(f)
		}
	}
	r.nothing("afterwards")
}

// member is one of them; it says what went wrong.
func (r *rig) member(name string) string {
	for _, args := range [][]string{
		{"open", "--name", name, "--backend", r.box},
		{"exec", name, "--", "/bin/sh", "-c", "sleep 600 & exit 7"},
		{"close", "--now", name},
	} {
		want := 0
		if args[0] == "exec" {
			want = 7
		}
		if o := r.run(args...); o.code != want {
			return fmt.Sprintf("%v: exit code %d: %s%s", args, o.code, o.stdout, o.stderr)
		}
	}
	return ""
}

// TestListedMeanwhile: who looks while sessions are opened and closed sees none that is lost:
// its record came, or its box went, after the other half was read.
func TestListedMeanwhile(t *testing.T) {
	r := newRig(t)
	m := r.manager()
	var wg sync.WaitGroup
	var over atomic.Bool
	for i := range 2 {
		wg.Go(func() {
			for n := 0; n < crowd()/4 && !t.Failed(); n++ {
				s, err := m.Open(t.Context(), session.OpenOptions{Name: fmt.Sprintf("brief-%d-%d", i, n), Kind: store.Kind(r.box)})
				if err != nil {
					t.Errorf("open: %v", err)
					break
				}
				s.Release()
				if _, err := m.Close(t.Context(), s.ID(), session.CloseOptions{Now: true}); err != nil {
					t.Errorf("close: %v", err)
				}
			}
			over.Store(true)
		})
	}
	looks := 0
	for ; !over.Load(); looks++ {
		infos, err := m.List(t.Context(), session.ListOptions{})
		if err != nil {
			t.Error(err)
		}
		for _, i := range infos {
			alone, err := m.Inspect(t.Context(), i.ID, session.InspectOptions{})
			switch {
			case err == nil:
				infos = append(infos, alone)
			case !errors.Is(err, session.ErrNotFound) && !errors.Is(err, session.ErrClosed):
				t.Errorf("inspect: %v", err)
			}
		}
		for _, i := range infos {
			if i.Name == "" || len(i.Problems) > 0 && i.State == string(store.StateOpen) {
				t.Errorf("listed as %q, %s: %q", i.Name, i.State, i.Problems)
			}
		}
	}
	wg.Wait()
	t.Logf("%d looks", looks)
	r.nothing("afterwards")
}

// TestCrowdInOneSession: many commands at once in one session, each a task.
func TestCrowdInOneSession(t *testing.T) {
	r := newRig(t)
	id := r.open("one")
	n := crowd() / 2
	var wg sync.WaitGroup
	failed := make([]string, n)
	for i := range n {
		wg.Go(func() {
			if o := r.run("exec", id, "--", "/bin/sh", "-c", fmt.Sprintf("exit %d", i%100)); o.code != i%100 {
				failed[i] = fmt.Sprintf("exec %d: exit code %d: %s", i, o.code, o.stderr)
			}
		})
	}
	wg.Wait()
	for _, f := range failed {
		if f != "" {
			t.Error(f)
		}
	}
	seen := map[int]bool{}
	for _, ti := range r.inspect(id).Tasks {
		if seen[ti.N] {
			t.Errorf("task number %d was given twice", ti.N)
		}
		seen[ti.N] = true
		if ti.State != "exited" && ti.State != "failed" {
			t.Errorf("task %d is %s", ti.N, ti.State)
		}
	}
	if len(seen) != n {
		t.Errorf("%d tasks are recorded, want %d", len(seen), n)
	}
	r.closed(id, graceFlags()...)
	r.nothing("afterwards")
}

// TestOneNameManyOpens: of many that open one name at once, one gets it.
func TestOneNameManyOpens(t *testing.T) {
	r := newRig(t)
	var wg sync.WaitGroup
	codes := make([]int, 20)
	for i := range codes {
		wg.Go(func() { codes[i] = r.run("open", "--name", "wanted", "--backend", r.box).code })
	}
	wg.Wait()
	won := 0
	for _, c := range codes {
		switch c {
		case 0:
			won++
		case 7:
		default:
			t.Errorf("exit code %d, want 0 or 7", c)
		}
	}
	if won != 1 {
		t.Errorf("%d opened it, want 1", won)
	}
	r.closed("wanted")
	r.nothing("afterwards")
}
