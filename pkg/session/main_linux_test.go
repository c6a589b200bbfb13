package session_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/testcgroup"
	"github.com/sessionbox/sessionbox/pkg/session"
)

// TestMain gives the tests boxes below a cgroup of their own, and is the helper
// that they start. Where no box can be made, what needs one is skipped, or fails
// if the tier is required.
func TestMain(m *testing.M) {
	if code, done := session.Helper(os.Args); done {
		os.Exit(code)
	}
	if len(os.Args) > 2 && os.Args[1] == "fake-launchd" {
		os.Exit(fakeLaunchd(os.Args[2:]))
	}
	if len(os.Args) == 3 && os.Args[1] == "adopt-parent" {
		os.Exit(adoptParent(os.Args[2]))
	}
	if len(os.Args) == 3 && os.Args[1] == "listen" {
		os.Exit(listen(os.Args[2]))
	}
	if len(os.Args) == 3 && os.Args[1] == "dial" {
		os.Exit(dial(os.Args[2]))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	flag.Parse()
	state, err := os.MkdirTemp("", "sbxstate-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(state)
	os.Setenv("SESSIONBOX_STATE_DIR", state)
	root, err := testcgroup.Make()
	if err != nil {
		if slices.Contains(strings.Split(os.Getenv("SESSIONBOX_TEST_REQUIRE"), ","), "cgroup") {
			fmt.Fprintln(os.Stderr, "tier cgroup is required:", err)
			return 1
		}
		fmt.Fprintln(os.Stderr, "without a box: the examples are skipped:", err)
		flag.Set("test.skip", "^(Example|TestBox)")
		return m.Run()
	}
	os.Setenv("SESSIONBOX_CGROUP_ROOT", root.Path())
	code := m.Run()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if p, _ := root.Populated(); p {
		fmt.Fprintln(os.Stderr, "a test left processes in its box")
		code = 1
	}
	err = root.Kill(ctx)
	if err == nil {
		err = root.Remove(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}
