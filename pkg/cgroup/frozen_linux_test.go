package cgroup_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/testcgroup"
)

// A stub in a frozen group never answers: it is ended with the caller's time, and
// the command can be started later.
func TestStartParkedInAFrozenGroup(t *testing.T) {
	leaf := make1(t, testcgroup.Root(t), "leaf")
	if err := leaf.Freeze(deadline(t)); err != nil {
		t.Fatal(err)
	}
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	empty := func() {
		t.Helper()
		if err := leaf.WaitEmpty(short()); err != nil {
			t.Errorf("something is left in it: %v", err)
		}
	}
	marker := filepath.Join(t.TempDir(), "ran")
	cmd := exec.Command("/bin/sh", "-c", "echo x >>"+marker+"; cat <&3")
	var out bytes.Buffer
	cmd.Stdout = &out
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd.ExtraFiles = []*os.File{r}
	if err := leaf.StartParked(short(), cmd, os.Args[0], nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v, want the end of the time", err)
	}
	empty()
	// The same if it was moved and that could not be confirmed.
	no := errors.New("no")
	err = leaf.StartParked(deadline(t), cmd, os.Args[0], func(pid int) error { return errors.Join(leaf.Add(pid), no) })
	if !errors.Is(err, no) {
		t.Fatal(err)
	}
	empty()
	// One whose input nobody ends.
	held, hold := io.Pipe()
	defer hold.Close()
	begin := time.Now()
	spent := exec.Command("/bin/sh", "-c", "echo x >>"+marker)
	spent.Stdin = held
	if err := leaf.StartParked(short(), spent, os.Args[0], nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	empty()
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := leaf.StartParked(over, cmd, os.Args[0], nil); !errors.Is(err, context.Canceled) {
		t.Errorf("with no time at all: %v", err)
	}
	if err := leaf.Thaw(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("it ran after all")
	}
	if err := leaf.StartParked(deadline(t), cmd, os.Args[0], nil); err != nil {
		t.Fatal(err)
	}
	io.WriteString(w, "hello")
	w.Close()
	if err := cmd.Wait(); err != nil || out.String() != "hello" {
		t.Errorf("%v, %q", err, out.String())
	}
}
