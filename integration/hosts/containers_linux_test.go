package hosts_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/integration/hosts"
)

// containerTests need docker and podman.
var containerTests = []string{"TestContainers", "TestContainerMemory"}

// containersTimeout bounds them.
const containersTimeout = 12 * time.Minute

func openContainers(ctx context.Context, t *testing.T, gen hosts.Generation) *hosts.Root {
	t.Helper()
	root, err := hosts.OpenVariant(ctx, gen, hosts.Containers(gen), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

// TestSystemdContainers runs those that need no memory controller in a namespaced host, as root: nobody else may
// make the namespaces of a container in there.
func TestSystemdContainers(t *testing.T) {
	ctx := need(t, "systemd", hosts.CheckSystemd)
	chosen(t, "Container")
	s := buildSuite(t)
	h := boot(ctx, t, openContainers(ctx, t, hosts.Trixie), hosts.Options{Files: s.files})
	ctx, cancel := context.WithTimeoutCause(ctx, containersTimeout+time.Minute, fmt.Errorf("the suite hangs"))
	defer cancel()
	var out bytes.Buffer
	both := io.MultiWriter(&out, show(t))
	err := h.Run(ctx, hosts.Command{Route: hosts.AsRoot, Args: s.args(containersTimeout, "TestContainers"),

		Env: append(s.env("systemd", hosts.AsRoot), "SESSIONBOX_TEST_CONTAINERS=1"), Dir: hosts.PayloadDir, Stdout: both, Stderr: both})
	exit, ran := hosts.ExitCode(err)
	s.judge(t, out.String(), exit)
	if !ran {
		t.Errorf("run the suite: %v (%v)", err, context.Cause(ctx))
	}
	if t.Failed() {
		journal, err := h.Output(context.WithoutCancel(ctx), hosts.Enter, "journalctl", "--no-pager", "--lines=60")
		t.Logf("journal of the host (%v):\n%s", err, journal)
	}
}

// TestVMContainers runs containerTests in guests of the oldest and the newest generation,
// as an unprivileged user: docker by its group, podman rootless. SESSIONBOX_TEST_GUESTS
// chooses others.
func TestVMContainers(t *testing.T) {
	ctx := need(t, "vm", hosts.CheckVM)
	chosen(t, "Container")
	s := buildSuite(t)
	for guest := range strings.SplitSeq(cmp.Or(os.Getenv("SESSIONBOX_TEST_GUESTS"), vmGuests), ",") {
		t.Run(guest, func(t *testing.T) {
			gen, _, _ := strings.Cut(guest, "/")
			suiteIn(ctx, t, s, guest, openContainers(ctx, t, hosts.Generation(gen)), 0, containerTests, "SESSIONBOX_TEST_CONTAINERS=1")
		})
	}
}
