package cgroup_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/testcgroup"
)

// A command runs in a leaf that was killed before, also on kernels that kill
// what clone3 starts there, and is never said to have started when it did not.
func TestStartInAKilledGroup(t *testing.T) {
	root := testcgroup.Root(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	leaf := make1(t, root, "task-1")
	if err := leaf.Kill(deadline(t)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", "exit 7")
	switch err := leaf.Start(cmd); {
	case errors.Is(err, cgroup.ErrStillborn):
		t.Log("this kernel kills it at birth")
		if cmd.Process != nil {
			t.Error("there is a process of a command that did not start")
		}
	case err != nil:
		t.Fatal(err)
	default:
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 7 {
			t.Fatalf("said to have started, and then: %v", err)
		}
	}
	cmd = exec.Command("/bin/cat")
	cmd.Stdin = strings.NewReader("hello")
	if err := leaf.Start(cmd); errors.Is(err, cgroup.ErrStillborn) || cgroup.Refused(err) {
		t.Errorf("a command whose input may be spent is to be started again: %v", err)
	}
	b := &cgroup.Box{Top: root, Work: root, Helper: exe}
	var out bytes.Buffer
	for range 20 {
		out.Reset()
		cmd := exec.Command("/bin/sh", "-c", "echo hello; exit 7")
		cmd.Stdout = &out
		if err := b.Start(deadline(t), "task-1", cmd); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 7 || out.String() != "hello\n" {
			t.Fatalf("%v, %q", err, out.String())
		}
	}
}

// A command that could not be put into the group can be started again.
func TestStartParkedAgain(t *testing.T) {
	leaf := make1(t, testcgroup.Root(t), "task-1")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command("/bin/echo", "hello")
	cmd.Stdout = &out
	no := errors.New("no")
	if err := leaf.StartParked(t.Context(), cmd, exe, func(int) error { return no }); !errors.Is(err, no) {
		t.Fatal(err)
	}
	if err := leaf.StartParked(t.Context(), cmd, exe, nil); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || out.String() != "hello\n" {
		t.Errorf("%v, %q", err, out.String())
	}
}
