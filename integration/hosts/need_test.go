package hosts_test

import (
	"context"
	"flag"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// need lets a test go on if its tier was asked for and this machine can run it. It
// is asked for by the tier runner, by SESSIONBOX_TEST_REQUIRE, or by a -run that
// names the test: a bare "go test ./..." must not begin to boot guests. A tier that
// was asked for and cannot run is skipped with the reason, or fails if required.
func need(t *testing.T, tier string, check func(context.Context, io.Writer) error) context.Context {
	t.Helper()
	required := slices.Contains(strings.Split(os.Getenv("SESSIONBOX_TEST_REQUIRE"), ","), tier)
	asked := os.Getenv("SESSIONBOX_TEST_TIER") == tier
	if os.Getenv("SESSIONBOX_TEST_TIER") == "" {
		top, _, _ := strings.Cut(t.Name(), "/")
		run := flag.Lookup("test.run").Value.String()
		asked = required || run != "" && (strings.Contains(run, top) || strings.Contains(top, strings.Trim(run, "^$")))
	}
	if !asked {
		t.Skipf("tier %s was not asked for: go run ./integration/tiers -tiers %s", tier, tier)
	}
	ctx := untilSignal(t)
	err := check(ctx, os.Stderr)
	if err == nil {
		return ctx
	}
	if required {
		t.Fatalf("tier %s is required and cannot run: %v", tier, err)
	}
	t.Skipf("tier %s cannot run: %v", tier, err)
	return nil
}

// untilSignal returns a context that ends with the test, or when somebody stops the
// test binary: then the hosts close, the test fails, and its cleanups run.
func untilSignal(t *testing.T) context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	t.Cleanup(stop)
	return ctx
}

// chosen skips a test that needs a host of its own when SESSIONBOX_TEST_RUN names tests of the
// suite of which none has that word: without the variable, as in CI, it runs.
func chosen(t *testing.T, word string) {
	t.Helper()
	if run := os.Getenv("SESSIONBOX_TEST_RUN"); run != "" && !strings.Contains(run, word) {
		t.Skip("SESSIONBOX_TEST_RUN names others")
	}
}
