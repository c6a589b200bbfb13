package integration_test

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestMain prepares the machine, runs the tests, and looks for what they left.
func TestMain(m *testing.M) {
	os.Exit(mainCode(m))
}

func mainCode(m *testing.M) int {
	g, reason, err := prepare()
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1
	}
	if reason != "" {
		if tier := tierName(); required(tier) {
			fmt.Fprintf(os.Stderr, "integration: tier %s is required and cannot run: %s\n", tier, reason)
			return 1
		}
		// The tests say it, each for itself, rather than that there were none.
		os.Setenv(envSkip, reason)
		return m.Run()
	}
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		sig := <-stopped
		fmt.Fprintf(os.Stderr, "integration: %v: cleaning up\n", sig)
		g.leftovers()
		g.remove()
		os.Exit(128 + int(sig.(syscall.Signal)))
	}()
	code := m.Run()
	left := g.leftovers()
	for _, l := range left {
		fmt.Fprintln(os.Stderr, "integration: left behind:", l)
	}
	if err := g.remove(); err != nil {
		fmt.Fprintln(os.Stderr, "integration: clean up:", err)
		code = max(code, 1)
	}
	if len(left) > 0 {
		code = max(code, 1)
	}
	return code
}

// required tells whether a tier must not be skipped.
func required(tier string) bool {
	return slices.Contains(strings.Split(os.Getenv("SESSIONBOX_TEST_REQUIRE"), ","), tier)
}

// tierName is where the suite runs.
func tierName() string {
	if t := os.Getenv("SESSIONBOX_TEST_TIER"); t != "" {
		return t
	}
	return "cgroup"
}
