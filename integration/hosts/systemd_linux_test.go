package hosts_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/integration/hosts"
)

// systemdSuiteTimeout bounds the suite by one route of a namespaced host.
const systemdSuiteTimeout = 20 * time.Minute

// TestSystemd runs the inner suite against a real systemd, by each way a program
// comes to run there. SESSIONBOX_TEST_GENERATION chooses another systemd.
func TestSystemd(t *testing.T) {
	ctx := need(t, "systemd", hosts.CheckSystemd)
	s := buildSuite(t)
	root := openRoot(ctx, t, generation())
	for _, route := range []hosts.Route{hosts.AsRoot, hosts.SSH, hosts.Manager} {
		// A host of its own for each, so that none inherits what another left. A user
		// manager that nobody is logged in for exists only with lingering.
		t.Run(string(route), func(t *testing.T) {
			h := boot(ctx, t, root, hosts.Options{Files: s.files, Linger: route == hosts.Manager})
			runCtx, cancel := context.WithTimeoutCause(ctx, systemdSuiteTimeout+time.Minute, fmt.Errorf("the suite hangs"))
			defer cancel()
			var out bytes.Buffer
			both := io.MultiWriter(&out, show(t))
			err := h.Run(runCtx, hosts.Command{
				Route: route, Args: s.args(systemdSuiteTimeout), Env: s.env("systemd", route),
				Dir: hosts.PayloadDir, Stdout: both, Stderr: both,
			})
			exit, ran := hosts.ExitCode(err)
			s.judge(t, out.String(), exit)
			if !ran {
				t.Errorf("run the suite: %v (%v)", err, context.Cause(runCtx))
			}
			if t.Failed() {
				journal, err := h.Output(ctx, hosts.Enter, "journalctl", "--no-pager", "--lines=100")
				t.Logf("journal of the host (%v):\n%s\nconsole:\n%s", err, journal, h.Console())
			}
		})
	}
}

func generation() hosts.Generation {
	if g := os.Getenv("SESSIONBOX_TEST_GENERATION"); g != "" {
		return hosts.Generation(g)
	}
	return hosts.Bookworm
}

func openRoot(ctx context.Context, t *testing.T, gen hosts.Generation) *hosts.Root {
	t.Helper()
	root, err := hosts.OpenRoot(ctx, gen, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

// boot boots a host for the time of t, and checks that nothing of it is left.
func boot(ctx context.Context, t *testing.T, root *hosts.Root, opts hosts.Options) *hosts.Host {
	t.Helper()
	h, err := hosts.Boot(ctx, root, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("close the host: %v", err)
		}
		if exists(h.CgroupPath()) {
			t.Errorf("%s is left of the host", h.CgroupPath())
		}
	})
	return h
}
