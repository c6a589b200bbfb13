// Package testcgroup gives tests a cgroup directory of their own.
package testcgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
)

// RequireEnv names the tiers that must run: a test of one of them fails where
// it would be skipped.
const RequireEnv = "SESSIONBOX_TEST_REQUIRE"

// Root makes a directory below the cgroup v2 mount for one test, and ends and
// removes everything in it afterwards.
func Root(t testing.TB) *cgroup.Group {
	t.Helper()
	g, err := Make()
	if err != nil {
		if slices.Contains(strings.Split(os.Getenv(RequireEnv), ","), "cgroup") {
			t.Fatalf("tier cgroup is required: %v", err)
		}
		t.Skipf("needs a writable cgroup v2 tree: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := g.Kill(ctx); err != nil {
			t.Errorf("end what the test left: %v", err)
		}
		if err := g.Remove(ctx); err != nil {
			t.Errorf("remove the test's cgroup: %v", err)
		}
		g.Close()
	})
	return g
}

// Make makes such a directory for who removes it without a test.
func Make() (*cgroup.Group, error) {
	m, err := cgroup.FindMount()
	if err != nil {
		return nil, err
	}
	dir, err := cgroup.DefaultRoot(m)
	if err != nil {
		return nil, err
	}
	top, err := cgroup.Open(dir)
	if err != nil {
		return nil, err
	}
	defer top.Close()
	for n := range 1000 {
		g, err := top.Make(fmt.Sprintf("sbxtest-%d-%s-%d", os.Getpid(), filepath.Base(os.Args[0]), n))
		if !errors.Is(err, os.ErrExist) {
			return g, err
		}
	}
	return nil, os.ErrExist
}
