package guard

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/internal/testcgroup"
	"github.com/sessionbox/sessionbox/pkg/session"
)

// TestMain makes this program the helper that the tests start, a guard among others.
func TestMain(m *testing.M) {
	if code, done := Helper(os.Args); done {
		os.Exit(code)
	}
	if code, done := session.Helper(os.Args); done {
		os.Exit(code)
	}
	if len(os.Args) == 4 && os.Args[1] == inFrontArg {
		os.Exit(inFront(os.Args[2], os.Args[3]))
	}
	if len(os.Args) == 2 && os.Args[1] == openerArg {
		os.Exit(opener())
	}
	flag.Parse()
	os.Exit(m.Run())
}

// required fails what would be skipped if its tier must run.
func required(t testing.TB, why string) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv(testcgroup.RequireEnv), ","), "cgroup") {
		t.Fatal("tier cgroup is required: ", why)
	}
	t.Skip(why)
}

func complain(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}
