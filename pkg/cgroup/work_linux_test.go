package cgroup_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/testcgroup"
	"golang.org/x/sys/unix"
)

// Work may be taken away and made again by another program, also under another
// of its names: what is in it then is never taken for nothing.
func TestWorkMadeAgain(t *testing.T) {
	top := make1(t, testcgroup.Root(t), "top")
	remake := func(old *cgroup.Group, name string) *cgroup.Group {
		t.Helper()
		if old != nil {
			if err := old.Kill(deadline(t)); err != nil {
				t.Fatal(err)
			}
			if err := old.Remove(deadline(t)); err != nil {
				t.Fatal(err)
			}
		}
		work := make1(t, top, name)
		start(t, make1(t, work, cgroup.AnchorLeaf), "sleep", "600")
		start(t, make1(t, work, "task-5"), "sleep", "600")
		return work
	}
	box := func(work *cgroup.Group) *cgroup.Box {
		return &cgroup.Box{Top: top, Work: work, WorkNames: []string{"a.service", "a.scope"}}
	}
	last := remake(nil, "a.service")
	for what, ask := range map[string]func(t *testing.T, b *cgroup.Box){
		"populated": func(t *testing.T, b *cgroup.Box) {
			if p, err := b.Populated("task-5"); !p || err != nil {
				t.Errorf("%v, %v", p, err)
			}
		},
		"members": func(t *testing.T, b *cgroup.Box) {
			if m, err := b.Members("task-5"); len(m) != 1 || err != nil || m[0].Leaf != "task-5" {
				t.Errorf("%v, %v", m, err)
			}
		},
		"all members": func(t *testing.T, b *cgroup.Box) {
			m, err := b.Members("")
			if len(m) != 2 || err != nil {
				t.Fatalf("%v, %v", m, err)
			}
			for _, p := range m {
				if p.Leaf != "task-5" && p.Leaf != cgroup.AnchorLeaf {
					t.Errorf("a member is in %q", p.Leaf)
				}
			}
		},
		"leaves": func(t *testing.T, b *cgroup.Box) {
			if l, err := b.Leaves(); !slices.Equal(l, []string{"task-5"}) || err != nil {
				t.Errorf("%v, %v", l, err)
			}
		},
		"wait": func(t *testing.T, b *cgroup.Box) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			if err := b.WaitEmpty(ctx, "task-5"); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		},
		"usage": func(t *testing.T, b *cgroup.Box) {
			if u, err := b.Usage("task-5"); err != nil || u.Pids == nil || *u.Pids != 1 {
				t.Errorf("%+v, %v", u, err)
			}
		},
		"signal": func(t *testing.T, b *cgroup.Box) {
			if n, err := b.Signal(t.Context(), "task-5", unix.SIGCONT); n != 1 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		},
		"signal all": func(t *testing.T, b *cgroup.Box) { // not the anchor
			if n, err := b.Signal(t.Context(), "", unix.SIGCONT); n != 1 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		},
		"kill": func(t *testing.T, b *cgroup.Box) {
			if err := b.Kill(deadline(t), "task-5"); err != nil {
				t.Error(err)
			}
			if m, err := top.Members(); len(m) != 1 || err != nil {
				t.Errorf("the anchor alone is to be left: %v, %v", m, err)
			}
		},
	} {
		for _, name := range []string{"a.service", "a.scope"} {
			t.Run(what+" "+name, func(t *testing.T) {
				old, err := top.Child(filepath.Base(last.Path()))
				if err != nil {
					t.Fatal(err)
				}
				defer old.Close()
				stale, never := box(old), box(nil)
				last = remake(last, name)
				ask(t, stale)
				if what != "kill" {
					ask(t, never) // opened while there was none
				}
			})
		}
	}
	// With none it is empty.
	b := box(last)
	if err := last.Kill(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if err := last.Remove(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if p, err := b.Populated("task-5"); p || err != nil {
		t.Errorf("%v, %v", p, err)
	}
	if l, err := b.Leaves(); l != nil || err != nil {
		t.Errorf("%v, %v", l, err)
	}
	if err := b.Kill(deadline(t), "task-5"); err != nil {
		t.Error(err)
	}
}
