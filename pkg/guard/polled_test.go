package guard

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
)

// aMac is a machine that says how short of memory it is, and sessions with one process each.
type aMac struct {
	mu       sync.Mutex
	pressure darwinjob.Pressure
	err      error
	holds    map[string]uint64
}

func (m *aMac) says() (darwinjob.Pressure, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pressure, m.err
}

func (m *aMac) holding(id string) (session.Holding, error) {
	self, err := proc.Self()
	if err != nil {
		return session.Holding{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.holds[id]
	if !ok {
		return session.Holding{}, session.ErrNotFound
	}
	return session.Holding{Processes: []memlimit.Process{{PID: self.PID, Start: self.Start, Comm: "hog", Leaf: "task-3", Anon: n, Exact: true}}}, nil
}

func atEase() darwinjob.Pressure {
	return darwinjob.Pressure{Level: 1, AvailablePercent: 60, TotalBytes: 16 << 30, CompressorBytes: 1 << 30, CompressedPages: 10, CompressedLimit: 1000, SwapDiskBytes: 100 << 30}
}

// On a Mac a session is judged by what its processes hold, the machine by what its kernel says, and
// what is to be done about it is the same as elsewhere.
func TestPolledMac(t *testing.T) {
	mac := &aMac{pressure: atEase(), holds: map[string]uint64{"big": 900 << 20, "small": 10 << 20}}
	src, err := newPolled(mac.holding, mac.says)
	if err != nil {
		t.Fatal(err)
	}
	m := newMemory(src, proc.Clock, slog.New(slog.DiscardHandler))
	warned, deeds := make(chan memlimit.Warning, 100), make(chan memlimit.Action, 100)
	m.told = func(w *told) { warned <- w.warning }
	m.act = func(a memlimit.Action, _ uint64) { deeds <- a }
	ended := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	go func() { m.run(ctx); close(ended) }()
	for id, steps := range map[string]memlimit.Steps{"big": memlimit.MayClose, "small": 0} {
		age := map[string]time.Duration{"big": 20 * time.Second, "small": 40 * time.Second}[id] // the oldest is left to run
		m.set(id, &session.Watch{Session: id, Name: "name-" + id, Memory: session.MemoryWatch{Policy: true, Warn: true, Lineage: id, Ceiling: 1000 << 20,
			High: memlimit.Infinity, Steps: steps, Opened: proc.Clock() - age}})
	}
	hear := func(what string, is func(*memlimit.Warning) bool) {
		t.Helper()
		for timeout := time.After(20 * time.Second); ; {
			select {
			case w := <-warned:
				if is(&w) {
					return
				}
			case <-timeout:
				t.Fatalf("not warned: %s", what)
			}
		}
	}
	hear("the session is at its ceiling", func(w *memlimit.Warning) bool {
		return w.Who.Session == "big" && w.Level == memlimit.Critical && len(w.Processes) == 1 && w.Processes[0].Name == "hog" && w.Processes[0].Task == 3
	})
	mac.mu.Lock()
	mac.pressure.Level = 2
	mac.mu.Unlock()
	hear("the kernel warns", func(w *memlimit.Warning) bool {
		return w.Limit.Kind == memlimit.KindHost && w.Level == memlimit.Warn && len(w.Sessions) > 0 && w.Sessions[0].ID == "big"
	})
	select {
	case a := <-deeds:
		t.Errorf("at a warning %v is done", a)
	default:
	}
	mac.mu.Lock()
	mac.pressure.CompressedPages = 950
	mac.mu.Unlock()
	hear("the compressor is nearly full", func(w *memlimit.Warning) bool {
		return w.Limit.Kind == memlimit.KindHost && w.Level == memlimit.Emergency
	})
	select {
	case a := <-deeds:
		if a.Do != memlimit.Close || a.Session != "big" {
			t.Errorf("%+v; want the big one closed", a)
		}
	case <-time.After(20 * time.Second):
		t.Error("nothing is done")
	}
	stop()
	<-ended
}

// A level that changes wakes who waits, and so does he who is asked to.
func TestPolledWait(t *testing.T) {
	mac := &aMac{pressure: atEase()}
	src, err := newPolled(mac.holding, mac.says)
	if err != nil {
		t.Fatal(err)
	}
	mac.pressure.Level = 4
	if w := src.Wait(proc.Clock() + time.Minute); !slices.Equal(w, []meter{nil}) {
		t.Errorf("the level changed: %v, want the host", w)
	}
	src.Wake()
	if w := src.Wait(0); w != nil {
		t.Errorf("woken: %v", w)
	}
	before := proc.Clock()
	if w := src.Wait(before + 50*time.Millisecond); w != nil || proc.Clock() < before+50*time.Millisecond {
		t.Errorf("%v after %v", w, proc.Clock()-before)
	}
	mac.err = errors.New("no such sysctl")
	if _, err := newPolled(mac.holding, mac.says); err == nil {
		t.Error("a machine that says nothing is watched")
	}
	var s memlimit.Sample
	if _, _, err := src.Host(&s); err == nil {
		t.Error("figures that cannot be read are given")
	}
	if m, err := src.Session(&session.MemoryWatch{Path: "/somewhere"}); m != nil || err == nil {
		t.Error("a cgroup is measured")
	}
}
