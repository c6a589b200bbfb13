package integration_test

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sessionbox/sessionbox/integration/hosts"
	"golang.org/x/sys/unix"
)

// Names by which TestMain tells the tests what it found. They go to the command as
// well, to which they mean nothing; the mark is how the suite knows its processes.
const (
	envSkip    = "SBXTEST_SKIP"
	envOutside = "SBXTEST_OUTSIDE"
	envMark    = "SBXTEST_MARK"
	envSSH     = "SESSIONBOX_TEST_SSH"
)

// ground is what the suite made on the machine before the first test.
type ground struct {
	tmp     string // all files of the suite; TMPDIR of what it starts
	top     string // cgroup that holds everything, "" where none could be made
	outside string // below top: surroundings of the boxes
	boxes   string // below top: root of the boxes, "" where systemd makes them
	mark    string // NAME=VALUE in the environment of what it starts
}

// prepare makes the ground, or says why the suite cannot run here.
func prepare() (g *ground, reason string, err error) {
	tier := tierName()
	if tier == "cgroup" && os.Geteuid() != 0 {
		return nil, "not root", nil
	}
	mount, err := hosts.CgroupMount()
	if err != nil {
		return nil, err.Error(), nil
	}
	g = &ground{mark: envMark + "=" + tag()}
	defer func() {
		if err != nil || reason != "" {
			err = errors.Join(err, g.remove())
		}
	}()
	if g.tmp, err = os.MkdirTemp("", "sbxs-"); err != nil {
		return g, "", err
	}
	// Others have to reach the sockets and counters in there.
	if err = os.Chmod(g.tmp, 0o755); err != nil {
		return g, "", err
	}
	if err = g.groups(mount); err != nil {
		if os.Geteuid() == 0 {
			return g, fmt.Sprintf("no cgroup can be made: %v", err), nil
		}
		err = nil // a login that may make none outside of its boxes
	}
	if err = g.programs(); err != nil {
		return g, "", err
	}
	g.export()
	return g, "", nil
}

// groups makes the suite's cgroups where this user may: root at the mount, others
// below their user manager, which owns its part of the tree.
func (g *ground) groups(mount string) error {
	at := mount
	if uid := os.Geteuid(); uid != 0 {
		at = filepath.Join(mount, "user.slice", fmt.Sprintf("user-%d.slice", uid), fmt.Sprintf("user@%d.service", uid))
	}
	name, err := makerName()
	if err != nil {
		return err
	}
	g.top = filepath.Join(at, name)
	if err := os.Mkdir(g.top, 0o755); err != nil {
		g.top = ""
		return err
	}
	g.outside = filepath.Join(g.top, "outside")
	if err := os.Mkdir(g.outside, 0o755); err != nil {
		return err
	}
	if os.Getenv("SESSIONBOX_CGROUP_ROOT") != "" || backend() == "systemd" {
		return nil
	}
	g.boxes = filepath.Join(g.top, "boxes")
	return os.Mkdir(g.boxes, 0o755)
}

// programs builds what the environment does not name.
func (g *ground) programs() error {
	for env, pkg := range map[string]string{
		"SESSIONBOX_BIN":         "./cmd/sessionbox",
		"SESSIONBOX_TEST_ESCAPE": "./integration/escape",
	} {
		if os.Getenv(env) != "" {
			continue
		}
		module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
		if err != nil {
			return fmt.Errorf("%s is not set and there is no go to build it: %w", env, err)
		}
		bin := filepath.Join(g.tmp, "bin", filepath.Base(pkg))
		cmd := exec.Command("go", "build", "-o", bin, pkg)
		cmd.Dir = strings.TrimSpace(string(module))
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
		}
		os.Setenv(env, bin)
	}
	return nil
}

// export tells the tests and what they start.
func (g *ground) export() {
	name, value, _ := strings.Cut(g.mark, "=")
	os.Setenv(name, value)
	os.Setenv("TMPDIR", g.tmp)
	os.Setenv(envOutside, g.outside)
	if g.boxes != "" {
		os.Setenv("SESSIONBOX_CGROUP_ROOT", g.boxes)
	}
	// The suite may itself run in a session, which is not the one under test.
	for _, name := range []string{"SESSIONBOX_ID", "SESSIONBOX_SESSION", "SESSIONBOX_COOKIE"} {
		os.Unsetenv(name)
	}
}

// remove takes everything away; nothing in the suite's cgroups outlives it.
func (g *ground) remove() error {
	var errs []error
	if g.top != "" {
		errs = append(errs, killGroup(g.top), removeGroup(g.top))
	}
	if g.tmp != "" {
		errs = append(errs, os.RemoveAll(g.tmp))
	}
	return errors.Join(errs...)
}

// removeGroup removes an empty cgroup with all below it, bottom-up.
func removeGroup(top string) error {
	var dirs []string
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append([]string{path}, dirs...)
		}
		return nil
	})
	for _, dir := range dirs {
		if rerr := unix.Rmdir(dir); rerr != nil && !errors.Is(rerr, unix.ENOENT) {
			err = errors.Join(err, &os.PathError{Op: "rmdir", Path: dir, Err: rerr})
		}
	}
	return err
}

// backend is the kind of box that every session must get.
func backend() string {
	if b := os.Getenv("SESSIONBOX_TEST_BACKEND"); b != "" {
		return b
	}
	return "cgroup"
}

// makerName is a name from which a later sweep sees that its maker is gone.
func makerName() (string, error) {
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "", err
	}
	me, err := identify(os.Getpid())
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("sbxtest-%s-%d-%d-%s", strings.Trim(strings.TrimPrefix(ns, "pid:"), "[]"), me.pid, me.start, tag())
	if !hosts.NamesMaker(name) {
		return "", fmt.Errorf("%q does not name its maker", name)
	}
	return name, nil
}

// tag is a random name.
func tag() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}
