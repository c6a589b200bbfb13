package hosts_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/integration/hosts"
)

// A suite is the inner test suite, built so that it runs on any of the hosts.
type suite struct {
	files []hosts.File
}

// buildSuite builds the suite and what it tests. Nothing is linked to the machine's
// libc: the oldest guest has an older one.
func buildSuite(t *testing.T) suite {
	t.Helper()
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		t.Fatalf("find the module: %v", err)
	}
	root, dir := strings.TrimSpace(string(module)), t.TempDir()
	var s suite
	for name, args := range map[string][]string{
		"sessionbox":       {"build", "./cmd/sessionbox"},
		"escape":           {"build", "./integration/escape"},
		"recipe-go":        {"build", "./docs/recipes/go"},
		"integration.test": {"test", "-c", "./integration"},
	} {
		out := filepath.Join(dir, name)
		n := len(args) - 1
		cmd := exec.Command("go", append(args[:n:n], "-o", out, args[n])...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, text)
		}
		if _, err := os.Stat(out); err != nil {
			t.Fatalf("go %s made nothing: %v", strings.Join(args, " "), err)
		}
		s.files = append(s.files, hosts.File{Src: out, Dst: hosts.PayloadDir + "/" + name})
	}
	s.files = append(s.files, hosts.File{Src: filepath.Join(root, "docs", "recipes"), Dst: hosts.PayloadDir + "/recipes"})
	if data := filepath.Join(root, "integration", "testdata"); exists(data) {
		s.files = append(s.files, hosts.File{Src: data, Dst: hosts.PayloadDir + "/testdata"})
	}
	return s
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// args is the command that runs the suite: the tests of that name, all if none is
// given, or what SESSIONBOX_TEST_RUN says.
func (suite) args(timeout time.Duration, tests ...string) []string {
	args := []string{hosts.PayloadDir + "/integration.test", "-test.v", "-test.timeout", timeout.String()}
	run := os.Getenv("SESSIONBOX_TEST_RUN")
	if run == "" && len(tests) > 0 {
		run = "^(" + strings.Join(tests, "|") + ")$"
	}
	if run != "" {
		args = append(args, "-test.run", run)
	}
	return args
}

// env tells the suite where it is, and which box it must get there.
func (suite) env(tier string, route hosts.Route) []string {
	env := []string{
		"SESSIONBOX_BIN=" + hosts.PayloadDir + "/sessionbox",
		"SESSIONBOX_TEST_ESCAPE=" + hosts.PayloadDir + "/escape",
		"SESSIONBOX_TEST_RECIPES=" + hosts.PayloadDir + "/recipes",
		"SESSIONBOX_TEST_RECIPE_GO=" + hosts.PayloadDir + "/recipe-go",
		"SESSIONBOX_TEST_TIER=" + tier,
		"SESSIONBOX_TEST_BACKEND=systemd",
		"SESSIONBOX_TEST_ROUTE=" + string(route),
		"SESSIONBOX_TEST_SSH=" + hosts.AgentLogin,
	}
	for _, name := range []string{"SESSIONBOX_TEST_REQUIRE", "SESSIONBOX_TEST_RUN", "SESSIONBOX_TEST_SEED", "SESSIONBOX_TEST_SOAK"} {
		if v := os.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// judge makes the output and exit code of the suite into subtests of t.
func (suite) judge(t *testing.T, output string, exit int) {
	t.Helper()
	tests := parseInner(output)
	if len(tests) == 0 {
		t.Errorf("the suite ran no test (exit code %d):\n%s", exit, output)
		return
	}
	report(t, tests)
	if exit != 0 && !anyFailed(tests) {
		t.Errorf("no test failed and yet the suite ended with exit code %d:\n%s", exit, output)
	}
}

// show returns where a suite's output goes while it runs: with -v to the log, marked
// so that nobody counts its verdicts twice.
func show(t *testing.T) io.Writer {
	if !testing.Verbose() {
		return io.Discard
	}
	return &linePrefixer{w: t.Output(), prefix: "| "}
}

// A linePrefixer puts a prefix before each line.
type linePrefixer struct {
	w      io.Writer
	prefix string
	mu     sync.Mutex
	rest   []byte
}

func (l *linePrefixer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 {
			return len(p), nil
		}
		if _, err := io.WriteString(l.w, l.prefix+string(l.rest[:i+1])); err != nil {
			return 0, err
		}
		l.rest = l.rest[i+1:]
	}
}
