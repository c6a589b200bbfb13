package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sessionbox/sessionbox/pkg/session"
)

func TestMain(m *testing.M) {
	// Whatever starts the anchor of a test's session starts this program.
	if code, done := session.Helper(os.Args); done {
		os.Exit(code)
	}
	testscript.Main(m, map[string]func(){"sessionbox": main})
}

var update = flag.Bool("update", false, "write what the scripts expect")

func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		// Its own place is left behind when only some of the scripts are run.
		WorkdirRoot:         t.TempDir(),
		RequireExplicitExec: true,
		UpdateScripts:       *update,
		Setup: func(e *testscript.Env) error {
			t := e.T()
			ground, err := newGround(e.WorkDir)
			if err != nil {
				return err
			}
			e.Vars = append(e.Vars, ground.env...)
			e.Defer(func() {
				if err := ground.clear(); err != nil {
					t.Log(err.Error())
					t.FailNow()
				}
			})
			return nil
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "cgroup2":
				return haveCgroup(), needed("cgroup")
			case "memctl": // its memory controller
				return haveMemory(), nil
			}
			return false, fmt.Errorf("no condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// needed fails where a tier that the caller wants cannot run.
func needed(tier string) error {
	if slices.Contains(strings.Split(os.Getenv("SESSIONBOX_TEST_REQUIRE"), ","), tier) && !haveCgroup() {
		return fmt.Errorf("%s is required and cannot run here", tier)
	}
	return nil
}

// exits runs a command that has to end with an exit code: exits 3 CMD ARG…
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE CMD…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		got = ended.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// ground is where one test's sessions are: a state directory and, where there
// can be one, a cgroup.
type ground struct {
	env    []string
	cgroup string
}

func newGround(dir string) (*ground, error) {
	for _, d := range []string{"home", "config"} {
		if err := os.MkdirAll(filepath.Join(dir, ".sbx", d), 0o700); err != nil {
			return nil, err
		}
	}
	g := &ground{env: []string{
		"SESSIONBOX_STATE_DIR=" + filepath.Join(dir, ".sbx", "state"),
		"HOME=" + filepath.Join(dir, ".sbx", "home"),
		"XDG_CONFIG_HOME=" + filepath.Join(dir, ".sbx", "config"),
		"SESSIONBOX_BACKEND=cgroup",
		"TZ=UTC", "NO_COLOR=", "TERM=xterm",
	}}
	if haveCgroup() {
		var err error
		if g.cgroup, err = makeCgroup(); err != nil {
			return nil, err
		}
		g.env = append(g.env, "SESSIONBOX_CGROUP_ROOT="+g.cgroup)
	}
	return g, nil
}

// clear removes the test's cgroup; that there was a session in it is an error.
func (g *ground) clear() error {
	if g.cgroup == "" {
		return nil
	}
	left, _ := filepath.Glob(filepath.Join(g.cgroup, "sessionbox.slice", "*.slice"))
	err := removeCgroup(g.cgroup)
	if len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("left open: %s", strings.Join(left, ", ")))
	}
	return err
}
