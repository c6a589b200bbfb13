package scope

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
)

func TestManyAtOnce(t *testing.T) {
	m := manager(t)
	n := 50
	if os.Getenv("SESSIONBOX_TEST_TIER") == "vm" {
		n = 8 // an emulated manager is too slow for its callers' patience
	}
	boxes := make([]*Box, n)
	var wg sync.WaitGroup
	begun := time.Now()
	for i := range n {
		wg.Go(func() {
			at := m
			if i%2 == 1 {
				own, err := Dial(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				defer own.Close() // the box dials again when it has to
				at = own
			}
			b, err := at.Create(t.Context(), spec())
			if err != nil {
				t.Error(err)
				return
			}
			boxes[i] = b
		})
	}
	wg.Wait()
	t.Logf("%d boxes in %v", n, time.Since(begun))
	for _, b := range boxes {
		wg.Go(func() {
			if b == nil {
				return
			}
			defer b.Close()
			if err := b.Kill(t.Context(), ""); err != nil {
				t.Error(err)
			}
			if err := b.Remove(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, b := range boxes {
		if b != nil {
			nothingLeft(t, m, b.spec)
		}
	}
}

func TestRaceForOneID(t *testing.T) {
	m := manager(t)
	contestants := 8
	if os.Getenv("SESSIONBOX_TEST_TIER") == "vm" {
		contestants = 3
	}
	for range 5 {
		s := spec()
		var won atomic.Int32
		var winner atomic.Pointer[Box]
		var wg sync.WaitGroup
		for range contestants {
			own, err := Dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer own.Close()
			wg.Go(func() {
				b, err := own.Create(t.Context(), s)
				switch {
				case err == nil:
					won.Add(1)
					winner.Store(b)
				case !errors.Is(err, ErrExists):
					t.Errorf("a loser was told %v", err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d winners", won.Load())
		}
		b := winner.Load()
		start(t, b, "task-1") // the losers did not take it down
		kill(t, b, "")
		remove(t, m, b)
		b.Close()
	}
}

func TestManagerReexecutes(t *testing.T) {
	m := manager(t)
	cg, err := proc.Cgroup(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(filepath.Base(cg), "run-") {
		t.Skipf("runs in %s: systemd-run --wait, which waits for it, does not survive (routes ssh and enter do)", cg)
	}
	before := create(t, m, spec())
	start(t, before, "task-1")
	reexec := func() {
		args := []string{"daemon-reexec"}
		if m.User() {
			args = append([]string{"--user"}, args...)
		}
		if out, err := exec.Command("systemctl", args...).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
	reexec()
	start(t, before, "task-2")
	begun := time.Now()
	after := create(t, m, spec())
	t.Logf("created %v after the re-execution", time.Since(begun))
	start(t, after, "task-1")

	// And while boxes are being made.
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 3 {
			reexec()
			time.Sleep(50 * time.Millisecond)
		}
	}()
	n := 0
	for running := true; running; n++ {
		select {
		case <-done:
			running = false
		default:
		}
		b := create(t, m, spec())
		start(t, b, "task-1")
		kill(t, b, "")
		remove(t, m, b)
	}
	t.Logf("%d boxes made and removed meanwhile", n)
	for _, b := range []*Box{before, after} {
		kill(t, b, "")
		remove(t, m, b)
	}
}

func TestFailedCreateLeavesNothing(t *testing.T) {
	m := manager(t)
	for name, anchor := range map[string]string{"fails": "/bin/false", "is not there": "/does/not/exist"} {
		s := spec()
		s.Anchor = []string{anchor}
		begun := time.Now()
		b, err := m.Create(t.Context(), s)
		if err == nil {
			b.Close()
			t.Fatalf("an anchor that %s: no error", name)
		}
		t.Logf("an anchor that %s: %v (%v)", name, err, time.Since(begun).Round(time.Millisecond))
		nothingLeft(t, m, s)
	}
	// One that never says that it is ready.
	s := spec()
	s.Anchor = []string{"/bin/sleep", "1000"}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := m.Create(ctx, s); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an anchor that is silent: %v", err)
	}
	nothingLeft(t, m, s)
}

// A unit that failed in an earlier life and stayed loaded blocks its name.
func TestNameOfAFailedUnit(t *testing.T) {
	m := manager(t)
	s := spec()
	err := m.start(t.Context(), s.serviceUnit(), []sd.Property{
		sd.PropType("oneshot"), sd.PropExecStart([]string{"/bin/false"}, false),
	})
	if job := (*JobError)(nil); !errors.As(err, &job) || job.Result != "failed" {
		t.Fatal(err)
	}
	if !loaded(t, m, s.serviceUnit()) {
		t.Fatal("it was collected")
	}
	b := create(t, m, s)
	start(t, b, "task-1")
	kill(t, b, "")
	remove(t, m, b)
}

// The old floor's anchor works on newer managers, too.
func TestAnchorAsScope(t *testing.T) {
	m := manager(t)
	s := spec()
	if err := m.start(t.Context(), s.SliceUnit(), sliceProps(s.Description, nil)); err != nil {
		t.Fatal(err)
	}
	b := openMade(t, m, s)
	b.mu.Lock()
	err := m.startScope(t.Context(), s)
	if err == nil {
		err = b.adopt(s.scopeUnit())
	}
	b.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	anchorPID(t, b)
	start(t, b, "task-1")
	again, err := Open(b.Ref())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.AnchorUnit() != s.scopeUnit() {
		t.Errorf("opened with the anchor %q", again.AnchorUnit())
	}
	start(t, again, "task-2")
	killPID(t, anchorPID(t, b))
	start(t, again, "task-3")
	kill(t, b, "")
	eventually(t, "the scope to be collected", b.WorkDir().Gone)
	remove(t, m, b)
}

func openMade(t *testing.T, m *Manager, s Spec) *Box {
	t.Helper()
	mount, err := cgroup.FindMount()
	if err != nil {
		t.Fatal(err)
	}
	b, err := m.open(t.Context(), s, mount)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}
