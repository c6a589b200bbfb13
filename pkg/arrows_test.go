// Package pkg_test keeps the house in order: which package may stand on which.
package pkg_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/sessionbox/sessionbox/"

// arrows says on which of our packages each may stand, directly or not. What is
// not listed is a test's, or internal to a command.
var arrows = map[string][]string{
	"pkg/memlimit":         {},
	"pkg/internal/kfile":   {},
	"pkg/internal/proc":    {"pkg/internal/kfile"},
	"pkg/internal/park":    {},
	"pkg/internal/tmpdir":  {},
	"pkg/internal/config":  {"pkg/memlimit"},
	"pkg/internal/watch":   {},
	"pkg/internal/launchd": {},
	"pkg/internal/oci":     {},
	"pkg/internal/doors":   {"pkg/internal/park"},
	"pkg/internal/engines": {},
	"pkg/internal/shim":    {"pkg/internal/engines"},
	"pkg/store":            {"pkg/memlimit", "pkg/internal/watch"},
	"pkg/cgroup":           {"pkg/memlimit", "pkg/internal/kfile", "pkg/internal/proc", "pkg/internal/park"},
	"pkg/darwinjob":        {"pkg/internal/kfile", "pkg/internal/proc"},
	"pkg/internal/anchor":  {"pkg/cgroup", "pkg/memlimit", "pkg/internal/kfile", "pkg/internal/proc", "pkg/internal/park"},
	"pkg/scope":            {"pkg/cgroup", "pkg/memlimit", "pkg/internal/kfile", "pkg/internal/proc", "pkg/internal/park"},
	"pkg/session":          {"pkg/scope", "pkg/cgroup", "pkg/store", "pkg/memlimit", "pkg/internal/anchor", "pkg/darwinjob", "pkg/internal/keeper", "pkg/internal/launchd", "pkg/internal/oci", "pkg/internal/doors", "pkg/internal/config", "pkg/internal/kfile", "pkg/internal/proc", "pkg/internal/park", "pkg/internal/tasklog", "pkg/internal/tmpdir", "pkg/internal/watch", "pkg/internal/engines", "pkg/internal/shim"},
	"pkg/guard":            {"pkg/session", "pkg/scope", "pkg/cgroup", "pkg/store", "pkg/memlimit", "pkg/internal/anchor", "pkg/darwinjob", "pkg/internal/keeper", "pkg/internal/launchd", "pkg/internal/oci", "pkg/internal/doors", "pkg/internal/config", "pkg/internal/kfile", "pkg/internal/proc", "pkg/internal/park", "pkg/internal/tasklog", "pkg/internal/tmpdir", "pkg/internal/watch", "pkg/internal/engines", "pkg/internal/shim"},

	"pkg/internal/tasklog": {},
	"pkg/internal/keeper":  {"pkg/memlimit", "pkg/internal/park", "pkg/darwinjob", "pkg/store", "pkg/internal/kfile", "pkg/internal/proc", "pkg/internal/watch"},
}

// strangers may not be linked into the library: it knows no command line, no
// terminal and no network service.
var strangers = []string{"github.com/spf13/", "golang.org/x/term", "charm.land/", "github.com/charmbracelet/", "net/http", "testing", "flag"}

func TestArrows(t *testing.T) {
	for pkg, allowed := range arrows {
		for _, goos := range []string{"linux", "darwin"} {
			cmd := exec.Command("go", "list", "-deps", "-e", module+pkg)
			cmd.Env = append(cmd.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("go list -deps %s: %v", pkg, err)
			}
			for dep := range strings.FieldsSeq(string(out)) {
				if ours, ok := strings.CutPrefix(dep, module); ok && ours != pkg && !slices.Contains(allowed, ours) {
					t.Errorf("%s stands on %s (%s)", pkg, ours, goos)
				}
				for _, s := range strangers {
					if dep == s || strings.HasSuffix(s, "/") && strings.HasPrefix(dep, s) {
						t.Errorf("%s links %s (%s)", pkg, dep, goos)
					}
				}
			}
		}
	}
}

// memlimit is arithmetic: no clock, no file, no process.
func TestMemlimitIsPure(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", "{{join .Imports \" \"}}", module+"pkg/memlimit").Output()
	if err != nil {
		t.Fatal(err)
	}
	for imp := range strings.FieldsSeq(string(out)) {
		if slices.Contains([]string{"os", "syscall", "net", "io/fs", "os/exec"}, imp) {
			t.Errorf("memlimit imports %s", imp)
		}
	}
}

// Every package says what it guarantees.
func TestPackagesAreDocumented(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}}\t{{.Doc}}", module+"pkg/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if path, doc, _ := strings.Cut(strings.TrimSpace(line), "\t"); doc == "" && path != module+"pkg" {
			t.Errorf("%s has no package comment", path)
		}
	}
}
