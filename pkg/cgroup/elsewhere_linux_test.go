package cgroup_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/internal/testcgroup"
	"golang.org/x/sys/unix"
)

// inElsewhere runs a part of [elsewhere] in a pid namespace of its own, in which
// /proc is still that of ours (unshare --pid).
func inElsewhere(t *testing.T, what, dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "__elsewhere", what, dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) {
		t.Skip("needs a pid namespace of its own")
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

func elsewhere(what, dir string) int {
	if !errors.Is(proc.OwnNamespace(), proc.ErrNamespace) {
		fmt.Println("/proc is our own")
		return 1
	}
	g, err := cgroup.Open(dir)
	if err == nil {
		switch what {
		case "once":
			err = eachOnce(g)
		case "unseen":
			err = unseenSurvivor(g)
		}
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// To a /proc of another namespace our children's numbers are other processes,
// the low ones kernel threads, which never call exec. A command that runs is not
// taken for one that was killed at birth, waited for and started again.
func TestStartedOnceInAnotherNamespace(t *testing.T) {
	inElsewhere(t, "once", testcgroup.Root(t).Path())
}

func eachOnce(root *cgroup.Group) error {
	dir, err := os.MkdirTemp("", "once")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ran := filepath.Join(dir, "ran")
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	b := &cgroup.Box{Top: root, Work: root, Helper: exe}
	const half = 16
	stillborn := 0
	for i := range 2 * half {
		leaf := "task-1"
		if i >= half {
			leaf = "task-2" // in which clone3 gives birth to the dead on some kernels
			if i == half {
				if err := ranEach(root, ran, half); err != nil {
					return err
				}
				if _, err := b.Prepare(ctx, leaf); err != nil {
					return err
				}
				if err := b.Kill(ctx, leaf); err != nil {
					return err
				}
			}
			g, err := root.Child(leaf)
			if err != nil {
				return err
			}
			cmd := exec.Command("/bin/true")
			switch err := g.Start(cmd); {
			case errors.Is(err, cgroup.ErrStillborn):
				stillborn++
			case err != nil:
				return err
			default:
				if err := cmd.Wait(); err != nil {
					return fmt.Errorf("said to have started: %w", err)
				}
			}
			g.Close()
		}
		cmd := exec.Command("/bin/sh", "-c", "echo x >>"+ran+"; exec sleep 0.2")
		if err := b.Start(ctx, leaf, cmd); err != nil {
			return fmt.Errorf("start %d: %w", i, err)
		}
		if i%half < half/2 {
			defer cmd.Wait()
			continue
		}
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("command %d: %w", i, err)
		}
	}
	fmt.Printf("%d of %d were stillborn in the killed leaf\n", stillborn, half)
	return ranEach(root, ran, 2*half)
}

// ranEach waits for the commands and counts their lines.
func ranEach(root *cgroup.Group, ran string, want int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := root.WaitEmpty(ctx)
	out, rerr := os.ReadFile(ran)
	if err := errors.Join(err, rerr); err != nil {
		return err
	}
	if n := bytes.Count(out, []byte("x\n")); n != want {
		return fmt.Errorf("%d commands ran %d times", want, n)
	}
	return nil
}

// The error at the end of Kill's time always says who is left.
func TestSurvivors(t *testing.T) {
	root := testcgroup.Root(t)
	leaf := make1(t, root, "leaf")
	if err := leaf.Survivors(); err != nil {
		t.Errorf("of an empty group: %v", err)
	}
	cmd := start(t, leaf, "sleep", "600")
	left, ok := errors.AsType[*proc.SurvivorsError](root.Survivors())
	if !ok || len(left.Survivors) != 1 || left.Survivors[0].PID != cmd.Process.Pid || left.Survivors[0].Comm != "sleep" {
		t.Errorf("%+v", left)
	}
	inElsewhere(t, "unseen", root.Path())
}

func unseenSurvivor(g *cgroup.Group) error {
	err := g.Survivors()
	left, ok := errors.AsType[*proc.SurvivorsError](err)
	if !ok || len(left.Survivors) != 1 || left.Survivors[0].PID != 0 || !strings.Contains(left.Error(), "namespace") {
		return fmt.Errorf("one that cannot be seen: %w", err)
	}
	fmt.Println(left)
	return nil
}
