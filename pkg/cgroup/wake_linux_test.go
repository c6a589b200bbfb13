package cgroup_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/testcgroup"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"golang.org/x/sys/unix"
)

// awaits adds wakes to an epoll and gives a function that waits in it.
func awaits(t *testing.T, w *cgroup.Wake) func(time.Duration) (events uint32, ok bool) {
	t.Helper()
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(ep) })
	if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, w.FD(), &unix.EpollEvent{Events: w.Mask(), Fd: int32(w.FD())}); err != nil {
		t.Fatal(err)
	}
	return func(d time.Duration) (uint32, bool) {
		end := time.Now().Add(d)
		for {
			var ev [1]unix.EpollEvent
			n, err := unix.EpollWait(ep, ev[:], max(0, int(time.Until(end)/time.Millisecond)))
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			return ev[0].Events, n > 0
		}
	}
}

// What kernfs signals wakes once for each change, and again after it was read.
func TestWakeOnEvents(t *testing.T) {
	root := testcgroup.Root(t)
	g := make1(t, root, "wake")
	if _, err := g.WakeOnEvents(); g.Has("memory.events") != (err == nil) || err != nil && !errors.Is(err, cgroup.ErrNoMemory) {
		t.Errorf("%v", err)
	}
	w, err := g.WakeOn("cgroup.events")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	wait := awaits(t, w)
	if ev, ok := wait(100 * time.Millisecond); ok {
		t.Errorf("woken by nothing: %#x", ev)
	}
	start(t, g, "sleep", "60")
	ev, ok := wait(5 * time.Second)
	if cause, err := w.Woke(ev); !ok || !cause || err != nil {
		t.Errorf("%v %#x: %v, %v", ok, ev, cause, err)
	}
	if ev, ok := wait(100 * time.Millisecond); ok {
		t.Errorf("woken again: %#x", ev)
	}
	if err := g.Kill(deadline(t)); err != nil {
		t.Fatal(err)
	}
	ev, ok = wait(5 * time.Second)
	if cause, err := w.Woke(ev); !ok || !cause || err != nil {
		t.Errorf("%v %#x: %v, %v", ok, ev, cause, err)
	}
	if err := g.Remove(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Woke(0); !errors.Is(err, cgroup.ErrGone) {
		t.Errorf("removed: %v", err)
	}
}

func TestWakeOnHostPressure(t *testing.T) {
	w, err := cgroup.WakeOnHostPressure("/proc/pressure/memory")
	if errors.Is(err, cgroup.ErrNoPressure) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, err := cgroup.WakeOnHostPressure(filepath.Join(t.TempDir(), "memory")); !errors.Is(err, cgroup.ErrNoPressure) {
		t.Errorf("%v", err)
	}
}

// The first edge of a trigger is false most often (facts/memory.md, fact 7): 18 ms
// are none, 150 ms are, and from then on all are.
func TestFirstEdge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "memory.pressure")
	total := func(usec string) {
		if err := os.WriteFile(path, []byte("some avg10=0.00 avg60=0.00 avg300=0.00 total="+usec+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	total("1000000")
	w, err := cgroup.NewTrigger(path, memlimit.Pressure{Some: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, c := range []struct {
		usec  string
		cause bool
	}{{"1018000", false}, {"1149999", false}, {"1150000", true}, {"1151000", true}} {
		total(c.usec)
		if cause, err := w.Woke(unix.EPOLLPRI); cause != c.cause || err != nil {
			t.Errorf("at %s µs: %v, %v", c.usec, cause, err)
		}
	}
	if _, err := w.Woke(unix.EPOLLERR); !errors.Is(err, cgroup.ErrGone) {
		t.Errorf("%v", err)
	}
}
