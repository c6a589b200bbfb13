package cgroup_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/internal/testcgroup"
)

// What is moved into a frozen leaf stands still, its parent sees no stop, and it runs on
// when the leaf is thawed; what was stopped before stays stopped.
func TestMoveIntoFrozenLeaf(t *testing.T) {
	root := testcgroup.Root(t)
	out, top := make1(t, root, "out"), make1(t, root, "box")
	box := &cgroup.Box{Top: top, Work: top}
	if _, err := box.Prepare(t.Context(), "task-1"); err != nil {
		t.Fatal(err)
	}
	counter := filepath.Join(t.TempDir(), "n")
	busy := exec.Command("/bin/sh", "-c", "while :; do echo x >>"+counter+"; sleep 0.02; done")
	still := exec.Command("/bin/sh", "-c", "while :; do sleep 0.02; done")
	for _, cmd := range []*exec.Cmd{busy, still} {
		if err := out.Start(cmd); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	}
	if err := still.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	size := func() int64 {
		fi, err := os.Stat(counter)
		if err != nil {
			return 0
		}
		return fi.Size()
	}
	grows := func() bool {
		before := size()
		for end := time.Now().Add(10 * time.Second); size() == before; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				return false
			}
		}
		return true
	}
	if !grows() {
		t.Fatal("it does not count")
	}
	if err := box.FreezeLeaf("task-1"); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range []*exec.Cmd{busy, still} {
		if err := box.Move(t.Context(), "task-1", cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
	}
	if frozen, err := box.LeafFrozen("task-1"); err != nil || !frozen {
		t.Errorf("LeafFrozen = %v, %v", frozen, err)
	}
	time.Sleep(50 * time.Millisecond) // what it was in the middle of
	before := size()
	time.Sleep(200 * time.Millisecond)
	if size() != before {
		t.Error("it counts in a frozen leaf")
	}
	var ws syscall.WaitStatus
	if pid, err := syscall.Wait4(busy.Process.Pid, &ws, syscall.WUNTRACED|syscall.WNOHANG, nil); pid != 0 || err != nil {
		t.Errorf("its parent is told %v (%v)", ws, err)
	}
	if err := box.ThawLeaf("task-1"); err != nil {
		t.Fatal(err)
	}
	if !grows() {
		t.Error("it does not count on")
	}
	if st, err := proc.ReadStat(still.Process.Pid); err != nil || st.State != 'T' {
		t.Errorf("who was stopped is %c, %v", st.State, err)
	}
	if frozen, err := box.LeafFrozen("task-1"); err != nil || frozen {
		t.Errorf("LeafFrozen = %v, %v after the thaw", frozen, err)
	}
	if err := box.ThawLeaf("task-9"); err != nil {
		t.Errorf("a leaf that is not there holds nobody: %v", err)
	}
	if err := box.Move(t.Context(), "task-9", busy.Process.Pid); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Move to no leaf = %v", err)
	}
}
