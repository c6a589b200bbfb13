package session

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/internal/testcgroup"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// A process that got the number of one that ended between two steps is not one of the
// tree: it is moved back to where its parent is. One that was born inside stays.
func TestBoxReturnsStranger(t *testing.T) {
	root := testcgroup.Root(t)
	out, err := root.Make("out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	top, err := root.Make("box")
	if err != nil {
		t.Fatal(err)
	}
	box := &cgroupBox{Box: &cgroup.Box{Top: top, Work: top}}
	defer box.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := box.Prepare(ctx, "task-1"); err != nil {
		t.Fatal(err)
	}
	parent := exec.Command("/bin/sh", "-c", "sleep 300 & wait")
	if err := out.Start(parent); err != nil {
		t.Fatal(err)
	}
	defer func() { parent.Process.Kill(); parent.Wait() }()
	var child proc.Stat
	for child.Comm != "sleep" {
		members, err := out.Members()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range members {
			if m.PID != parent.Process.Pid {
				child, _ = proc.ReadStat(m.PID)
			}
		}
		if ctx.Err() != nil {
			t.Fatal("no child")
		}
	}
	a := &adoption{s: &Session{m: newManager(Config{Log: discard()}), rec: store.Session{}, box: box}, box: box, tree: newTree(),
		settled: map[proc.ID]bool{}, leaf: "task-1"}
	if err := box.Move(ctx, "task-1", child.PID); err != nil {
		t.Fatal(err)
	}
	ended := child
	ended.Start-- // who had the number before
	a.returnStranger(&ended)
	if cg, err := proc.Cgroup(child.PID); err != nil || filepath.Base(cg) != "out" {
		t.Errorf("the stranger is in %s, %v; want it back beside its parent", cg, err)
	}
	if len(a.r.Skipped) != 1 || a.r.Skipped[0].PID != child.PID || len(a.failed) != 0 {
		t.Errorf("skipped %+v, failed %v", a.r.Skipped, a.failed)
	}
	// With its parent in the leaf it was born there.
	for _, pid := range []int{parent.Process.Pid, child.PID} {
		if err := box.Move(ctx, "task-1", pid); err != nil {
			t.Fatal(err)
		}
	}
	a.returnStranger(&ended)
	pids, err := out.Procs()
	if err != nil || len(pids) != 0 {
		t.Errorf("%v were moved out, %v", pids, err)
	}
	members, err := box.Members("task-1")
	if err != nil || !slices.ContainsFunc(members, func(m proc.Member) bool { return m.PID == child.PID }) {
		t.Errorf("members %v, %v", members, err)
	}
}
