package scope

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/park"
)

// revive starts an anchor process in a unit that outlived its own: the manager
// would not start a service that is active.
func (b *Box) revive(ctx context.Context, m *Manager, work *cgroup.Group, unit string) error {
	leaf, err := work.Ensure(cgroup.AnchorLeaf)
	if err != nil {
		return err
	}
	defer leaf.Close()
	return b.spec.spawnAnchor(ctx, func(pid int) error {
		err := leaf.Add(pid)
		if isRefused(err) {
			err = m.attach(ctx, unit, cgroup.AnchorLeaf, pid)
		}
		if err != nil {
			return err
		}
		return leaf.Verify(pid)
	})
}

// spawnAnchor starts the anchor as a child of ours, in a session of its own; it
// waits as a stub while place puts it where it belongs. It is ready when it says
// so over a socket, as a service does.
func (s Spec) spawnAnchor(ctx context.Context, place func(pid int) error) error {
	ready, err := listenReady()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := exec.Command(s.Anchor[0], s.Anchor[1:]...)
	cmd.Env = append(append(os.Environ(), s.AnchorEnv...), "NOTIFY_SOCKET="+ready.LocalAddr().String())
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := park.Start(ctx, cmd, s.Helper, place); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { // it must not stay a zombie of a caller that lives on
		cmd.Wait()
		close(ended)
	}()
	if err := awaitReady(ctx, ready, ended); err != nil {
		return fmt.Errorf("wait for the anchor: %w", err)
	}
	return nil
}

// listenReady opens an abstract socket, which leaves no file behind. Others may
// write to it; all they could do is make us try to use a leaf too early.
func listenReady() (*net.UnixConn, error) {
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: "@sessionbox-" + rand.Text(), Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("listen for the anchor: %w", err)
	}
	return c, nil
}

// awaitReady waits for READY=1, the end of ctx, or that of the sender.
func awaitReady(ctx context.Context, c *net.UnixConn, ended <-chan struct{}) error {
	said := make(chan error, 1)
	go func() {
		buf := make([]byte, 256)
		for {
			n, err := c.Read(buf)
			if err != nil || isReady(string(buf[:n])) {
				said <- err
				return
			}
		}
	}()
	select {
	case err := <-said:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-ended:
	}
	// What it said before it ended is there already, it only has to be read.
	c.SetReadDeadline(time.Now().Add(250 * time.Millisecond))
	if err := <-said; err != nil {
		return errors.New("it ended before it was ready")
	}
	return nil
}

func isReady(msg string) bool {
	for line := range strings.Lines(msg) {
		if strings.TrimSpace(line) == "READY=1" {
			return true
		}
	}
	return false
}
