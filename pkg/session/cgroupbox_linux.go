package session

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/anchor"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// cgroupBox is a box made by mkdir. Its anchor is a process that we start
// ourselves, where under systemd the manager does.
type cgroupBox struct {
	*cgroup.Box
	anchor []string
	env    []string
}

// EnsureAnchor starts the box's anchor, unless one runs. Of two that start at
// once one finds the other's lock and ends.
func (b *cgroupBox) EnsureAnchor(ctx context.Context) error {
	if len(b.anchor) == 0 {
		return fmt.Errorf("no sessionbox program found: %w", ErrUnsupported)
	}
	ready, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := exec.Command(b.anchor[0], append(b.anchor[1:], readyByPipe)...)
	cmd.Env = append(plainEnv(), b.env...)
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = b.Start(ctx, cgroup.AnchorLeaf, cmd)
	w.Close()
	if err != nil {
		return err
	}
	go cmd.Wait() // reap it if it ends before us
	// It says one byte when it can be reached; end of file means that it ended.
	// In a box that is frozen it says nothing.
	ready.SetReadDeadline(time.Now().Add(anchor.Timeout))
	var buf [1]byte
	if n, err := ready.Read(buf[:]); n != 1 {
		cmd.Process.Kill()
		return fmt.Errorf("the anchor did not start: %w", err)
	}
	return nil
}

// RenewAnchor has nothing to do: a new anchor is started whenever one is wanted, and
// ends if another serves.
func (b *cgroupBox) RenewAnchor(context.Context) error { return nil }

func hostTotals() memlimit.Totals { return cgroup.HostMemory() }
