package hosts_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/integration/hosts"
)

// ociTests need crun, runc and a static busybox.
var ociTests = []string{"TestOCI.*", "TestSpec"}

// ociTimeout bounds them by one route.
const ociTimeout = 5 * time.Minute

// TestSystemdOCI runs ociTests as root and, without any privileges, as the agent.
func TestSystemdOCI(t *testing.T) {
	ctx := need(t, "systemd", hosts.CheckSystemd)
	chosen(t, "OCI")
	s := buildSuite(t)
	root := openContainers(ctx, t, hosts.Trixie)
	for route, tests := range map[hosts.Route][]string{hosts.AsRoot: ociTests, hosts.Manager: ociTests, hosts.SSH: {"TestOCISession", "TestSpec"}} {
		t.Run(string(route), func(t *testing.T) {
			h := boot(ctx, t, root, hosts.Options{Files: s.files, Linger: route == hosts.Manager})
			ctx, cancel := context.WithTimeoutCause(ctx, ociTimeout+time.Minute, fmt.Errorf("the suite hangs"))
			defer cancel()
			var out bytes.Buffer
			both := io.MultiWriter(&out, show(t))
			err := h.Run(ctx, hosts.Command{
				Route: route, Args: s.args(ociTimeout, tests...), Env: append(s.env("systemd", route), "SESSIONBOX_TEST_OCI=1"),
				Dir: hosts.PayloadDir, Stdout: both, Stderr: both,
			})
			exit, ran := hosts.ExitCode(err)
			s.judge(t, out.String(), exit)
			if !ran {
				t.Errorf("run the suite: %v (%v)", err, context.Cause(ctx))
			}
		})
	}
}
