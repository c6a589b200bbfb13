package scope

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// manager dials the real one. These tests run in a host made for them, whose
// manager they re-execute.
func manager(t testing.TB) *Manager {
	t.Helper()
	switch tier := os.Getenv("SESSIONBOX_TEST_TIER"); tier {
	case "systemd", "vm":
	default:
		t.Skip("needs a systemd of its own: SESSIONBOX_TEST_TIER=systemd in a host of integration/hosts")
	}
	m, err := Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// slow is how much longer things take here: an emulated machine needs it.
func slow(d time.Duration) time.Duration {
	if os.Getenv("SESSIONBOX_TEST_TIER") == "vm" {
		return 10 * d
	}
	return d
}

func spec(parents ...string) Spec {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return Spec{
		ID: store.NewID(), Parents: parents, Description: "scope test",
		Anchor: []string{exe, "__anchor"}, Helper: exe,
	}
}

func create(t *testing.T, m *Manager, s Spec) *Box {
	t.Helper()
	b, err := m.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), slow(20*time.Second))
		defer cancel()
		if !b.Top.Gone() {
			if err := b.Kill(ctx, ""); err != nil {
				t.Error(err)
			}
			if err := b.Remove(ctx); err != nil && !t.Failed() {
				t.Error(err)
			}
		}
		b.Close()
	})
	return b
}

// start starts sleep in a leaf and checks with the kernel that it is there.
func start(t *testing.T, b *Box, leaf string, argv ...string) *exec.Cmd {
	t.Helper()
	if argv == nil {
		argv = []string{"sleep", "1000"}
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := b.Start(t.Context(), leaf, cmd); err != nil {
		t.Fatalf("start in %s: %v", leaf, err)
	}
	go cmd.Wait()
	cg, err := proc.Cgroup(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(b.Unit, b.AnchorUnit(), leaf)
	if !strings.HasSuffix(cg, "/"+want) {
		t.Fatalf("the command is in %s, not in %s", cg, want)
	}
	return cmd
}

func kill(t *testing.T, b *Box, leaf string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), slow(10*time.Second))
	defer cancel()
	if err := b.Kill(ctx, leaf); err != nil {
		t.Fatal(err)
	}
	if p, err := b.Populated(leaf); err != nil || p {
		t.Fatalf("populated %v, %v after kill", p, err)
	}
}

func remove(t *testing.T, m *Manager, b *Box) {
	t.Helper()
	if err := b.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, m, b.spec)
	if _, err := os.Stat(b.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", b.Path(), err)
	}
}

// nothingLeft checks that the manager has forgotten the units, and has no files
// for them.
func nothingLeft(t *testing.T, m *Manager, s Spec) {
	t.Helper()
	eventually(t, "the units to be unloaded", func() bool {
		return !loaded(t, m, s.SliceUnit()) && !loaded(t, m, s.serviceUnit()) && !loaded(t, m, s.scopeUnit())
	})
	dirs := []string{"/run/systemd/transient", "/run/systemd/system.control"}
	if m.User() {
		base := filepath.Dir(m.Socket())
		dirs = []string{filepath.Join(base, "transient"), filepath.Join(base, "user.control")}
	}
	for _, d := range dirs {
		eventually(t, d+" to be free of "+s.ID, func() bool {
			left, _ := filepath.Glob(filepath.Join(d, "*"+s.ID+"*"))
			return len(left) == 0
		})
	}
}

// loaded says whether the manager knows the unit, without making it load it.
func loaded(t *testing.T, m *Manager, unit string) bool {
	t.Helper()
	known := false
	err := m.do(t.Context(), func(ctx context.Context, l *link, _ bool) error {
		list, err := l.sd.ListUnitsByPatternsContext(ctx, nil, []string{unit})
		known = len(list) > 0
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return known
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(slow(5 * time.Second)); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("waited in vain for %s", what)
}

func anchorPID(t *testing.T, b *Box) int {
	t.Helper()
	members, err := b.Members(cgroup.AnchorLeaf)
	if err != nil || len(members) != 1 {
		t.Fatalf("the anchor's leaf has %v, %v", members, err)
	}
	return members[0].PID
}

func killPID(t *testing.T, pid int) {
	t.Helper()
	h, err := proc.OpenPID(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := h.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}
