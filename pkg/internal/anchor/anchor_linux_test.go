package anchor_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/anchor"
	"github.com/sessionbox/sessionbox/pkg/internal/testcgroup"
)

// TestMain lets the test binary be a supervisor that dies on request.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && (os.Args[1] == "tied" || os.Args[1] == "holds") {
		dial := anchor.Dial
		if os.Args[1] == "holds" {
			dial = anchor.Hold
		}
		g, err := cgroup.Open(os.Args[3])
		if err == nil {
			_, err = dial(os.Args[2], filepath.Base(os.Args[3]), 7, g.Inode())
		}
		if err != nil {
			println(err.Error())
			os.Exit(1)
		}
		println("tied")
		time.Sleep(time.Minute)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serve runs an anchor for a box of one leaf with a process in it.
func serve(t *testing.T, dir string) (work, leaf *cgroup.Group, abandoned *atomic.Int32, cmd *exec.Cmd) {
	t.Helper()
	work = testcgroup.Root(t)
	leaf, err := work.Make("task-7")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { leaf.Close() })
	cmd = exec.Command("sleep", "600")
	if err := leaf.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	abandoned = new(atomic.Int32)
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	s := anchor.Server{Dir: dir, Work: work, Abandoned: func(n int) { abandoned.Store(int32(n)) }}
	go func() { done <- s.Run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	return work, leaf, abandoned, cmd
}

func emptySoon(t *testing.T, g *cgroup.Group) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := g.WaitEmpty(ctx); err != nil {
		t.Errorf("the leaf is not empty: %v", err)
	}
}

func TestDeadSupervisor(t *testing.T) {
	// A directory too deep for the address of a socket.
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep/", 30))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	_, leaf, abandoned, _ := serve(t, dir)
	sup := exec.Command(os.Args[0], "tied", dir, leaf.Path())
	said, err := sup.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := sup.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 200)
	n, _ := said.Read(buf)
	if string(buf[:n]) != "tied\n" {
		t.Fatalf("the supervisor said %q", buf[:n])
	}
	if p, _ := leaf.Populated(); !p {
		t.Fatal("killed while its supervisor lived")
	}
	sup.Process.Kill()
	sup.Wait()
	emptySoon(t, leaf)
	if n := abandoned.Load(); n != 7 {
		t.Errorf("Abandoned(%d), want 7", n)
	}
}

func TestRelease(t *testing.T) {
	dir := t.TempDir()
	_, leaf, abandoned, _ := serve(t, dir)
	tie, err := anchor.Dial(dir, "task-7", 7, leaf.Inode())
	if err != nil {
		t.Fatal(err)
	}
	tie.Release()
	select {
	case <-tie.Lost():
	case <-time.After(10 * time.Second):
		t.Error("Lost is not closed after Release")
	}
	time.Sleep(50 * time.Millisecond) // would be killed by now
	if p, _ := leaf.Populated(); !p || abandoned.Load() != 0 {
		t.Error("a released task was ended")
	}
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	work, leaf, _, _ := serve(t, dir)
	own, err := work.Make(cgroup.AnchorLeaf)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	for _, c := range []struct {
		name  string
		inode uint64
	}{{"task-7", leaf.Inode() + 1}, {"task-8", 1}, {"..", 1}, {cgroup.AnchorLeaf, own.Inode()}} {
		if tie, err := anchor.Dial(dir, c.name, 7, c.inode); err == nil {
			tie.Release()
			t.Errorf("tied to %s with inode %d", c.name, c.inode)
		}
	}
	if p, _ := leaf.Populated(); !p {
		t.Error("a refused tie ended the task")
	}
}

// A second anchor of the same session leaves the first in its place.
func TestOneAnchor(t *testing.T) {
	dir := t.TempDir()
	work, leaf, _, _ := serve(t, dir)
	ready := false
	second := anchor.Server{Dir: dir, Work: work}
	if err := second.Run(context.Background(), func() { ready = true }); err != nil || !ready {
		t.Errorf("the second anchor: ready %v, %v", ready, err)
	}
	tie, err := anchor.Dial(dir, "task-7", 7, leaf.Inode())
	if err != nil {
		t.Fatalf("the first cannot be reached any more: %v", err)
	}
	tie.Release()
}

// frozen freezes the leaf, and says whether it is.
func frozen(t *testing.T, leaf *cgroup.Group) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := leaf.Freeze(ctx); err != nil {
		t.Fatal(err)
	}
}

func thawedSoon(t *testing.T, leaf *cgroup.Group) {
	t.Helper()
	for end := time.Now().Add(2 * anchor.HoldTime); ; time.Sleep(5 * time.Millisecond) {
		if f, err := leaf.Frozen(); err == nil && !f {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the leaf is still frozen")
		}
	}
}

// A leaf that somebody holds frozen is thawed when he is killed, and when he takes too
// long; nobody in it is harmed. It is not when he says goodbye: he has thawed it.
func TestHold(t *testing.T) {
	dir := t.TempDir()
	_, leaf, abandoned, _ := serve(t, dir)
	frozen(t, leaf)
	cmd := exec.Command(os.Args[0], "holds", dir, leaf.Path())
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	if n, err := said.Read(buf); err != nil || string(buf[:n]) != "tied\n" {
		t.Fatalf("%q, %v", buf[:n], err)
	}
	if f, err := leaf.Frozen(); err != nil || !f {
		t.Fatalf("frozen: %v, %v", f, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	thawedSoon(t, leaf)

	frozen(t, leaf)
	hold, err := anchor.Hold(dir, "task-7", 7, leaf.Inode())
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	thawedSoon(t, leaf)
	if took := time.Since(began); took < anchor.HoldTime-time.Second {
		t.Errorf("thawed after %v, while it was held", took)
	}
	hold.Release()

	frozen(t, leaf)
	if hold, err = anchor.Hold(dir, "task-7", 7, leaf.Inode()); err != nil {
		t.Fatal(err)
	}
	hold.Release()
	time.Sleep(100 * time.Millisecond)
	if f, err := leaf.Frozen(); err != nil || !f {
		t.Errorf("after a goodbye: frozen %v, %v", f, err)
	}
	leaf.Thaw()
	if p, err := leaf.Populated(); err != nil || !p || abandoned.Load() != 0 {
		t.Errorf("populated %v, %v; task %d called abandoned", p, err, abandoned.Load())
	}
	if _, err := anchor.Hold(dir, "task-7", 7, leaf.Inode()+1); err == nil {
		t.Error("another leaf can be held")
	}
}
