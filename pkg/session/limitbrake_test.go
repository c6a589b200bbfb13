package session

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// ceilinged is a box of which nothing is true but its ceilings.
type ceilinged struct {
	Box
	has *memlimit.Limits
}

func (c ceilinged) SetLimits(_ context.Context, r *specs.LinuxResources) ([]memlimit.Ceiling, error) {
	l, err := memlimit.FromOCI(r)
	if err != nil {
		return nil, err
	}
	*c.has = l.Merge(*c.has)
	return c.Limits(l)
}

func (c ceilinged) Limits(want memlimit.Limits) ([]memlimit.Ceiling, error) {
	return memlimit.Ceilings(want, *c.has), nil
}

func (ceilinged) Path() string         { return "/nowhere" }
func (ceilinged) SetMeta(string) error { return nil }

// recorded is a manager with the record of an open session.
func recorded(t *testing.T, rec store.Session) (*Manager, store.Session) {
	t.Helper()
	dir := t.TempDir()
	st, err := store.Open(store.Dirs{State: filepath.Join(dir, "state"), History: filepath.Join(dir, "history"), UID: os.Geteuid(), Given: true})
	if err != nil {
		t.Fatal(err)
	}
	rec.ID, rec.State, rec.UID = store.NewID(), store.StateOpen, os.Geteuid()
	if err := st.Claim(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	return &Manager{store: st, log: slog.New(slog.DiscardHandler)}, rec
}

// A brake goes with the ceiling that it is below, and stays when others are changed.
func TestLimitTakesTheBrakeAway(t *testing.T) {
	const gib = 1 << 30
	for name, c := range map[string]struct {
		asked memlimit.Limits
		brake uint64
		high  memlimit.Size
	}{
		"no ceiling":      {memlimit.Limits{MemoryMax: memlimit.Max()}, 0, memlimit.Max()},
		"another ceiling": {memlimit.Limits{MemoryMax: memlimit.Bytes(2 * gib)}, 0, memlimit.Max()},
		"its own":         {memlimit.Limits{MemoryMax: memlimit.Max(), MemoryHigh: memlimit.Bytes(gib / 2)}, 0, memlimit.Bytes(gib / 2)},
		"processes":       {memlimit.Limits{PidsMax: memlimit.Bytes(100)}, memlimit.BrakeAt(gib), memlimit.Bytes(memlimit.BrakeAt(gib))},
	} {
		m, rec := recorded(t, store.Session{Memory: &store.MemoryPolicy{Brake: memlimit.BrakeAt(gib)}})
		box := ceilinged{has: &memlimit.Limits{MemoryMax: memlimit.Bytes(gib), MemoryHigh: memlimit.Bytes(memlimit.BrakeAt(gib))}}
		s := &Session{m: m, rec: rec}
		r, err := resources(c.asked)
		if err != nil {
			t.Fatal(err)
		}
		all, err := s.limitBraked(t.Context(), box, r, c.asked)
		if err != nil {
			t.Fatal(err)
		}
		now, err := m.store.Get(rec.ID)
		if err != nil || now.Memory.Brake != c.brake || box.has.MemoryHigh != c.high {
			t.Errorf("%s: memory.high is %v, in the record the brake is %d: %v", name, box.has.MemoryHigh, now.Memory.Brake, err)
		}
		if want, _ := memlimit.FromOCI(now.Limits); want != c.asked {
			t.Errorf("%s: the record says %+v", name, want)
		}
		for i := range all {
			if all[i].File == "memory.high" && all[i].Want != c.asked.MemoryHigh {
				t.Errorf("%s: told that %v was asked for", name, all[i].Want)
			}
		}
	}
}

// Of a brake it is said who lifts it: a guard, if there is one.
func TestBrakeIsSaid(t *testing.T) {
	m, rec := recorded(t, store.Session{Memory: &store.MemoryPolicy{Brake: 300 << 20}})
	note := func() string {
		all := memlimit.Ceilings(memlimit.Limits{}, memlimit.Limits{MemoryHigh: memlimit.Bytes(300 << 20)})
		m.remark(&rec, ceilinged{}, all)
		for i := range all {
			if all[i].File == "memory.high" {
				return all[i].Note
			}
		}
		t.Fatalf("no memory.high in %+v", all)
		return ""
	}
	if n := note(); !strings.Contains(n, "`sessionbox reconcile` lifts it") || strings.Contains(n, "10 s") {
		t.Errorf("without a guard: %q", n)
	}
	lock, err := m.store.LockGuard(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	if n := note(); !strings.Contains(n, "for more than 10 s") {
		t.Errorf("with a guard: %q", n)
	}
}

// A session whose record was lost has the brake that the kernel has, and not what its user
// wants for one.
func TestBrakeOfTheKernelIsNoted(t *testing.T) {
	theirs, err := resources(memlimit.Limits{MemoryHigh: memlimit.Bytes(200 << 20)})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		rec   store.Session
		high  memlimit.Size
		brake uint64
	}{
		"a brake":           {store.Session{Memory: &store.MemoryPolicy{}}, memlimit.Bytes(300 << 20), 300 << 20},
		"none":              {store.Session{Memory: &store.MemoryPolicy{}}, memlimit.Max(), 0},
		"no controller":     {store.Session{Memory: &store.MemoryPolicy{}}, memlimit.Size{}, 0},
		"its user's":        {store.Session{Memory: &store.MemoryPolicy{}, Limits: theirs}, memlimit.Bytes(200 << 20), 0},
		"nobody watches it": {store.Session{}, memlimit.Bytes(300 << 20), 0},
	} {
		noteBrake(&c.rec, ceilinged{has: &memlimit.Limits{MemoryHigh: c.high}})
		if c.rec.Memory != nil && c.rec.Memory.Brake != c.brake || c.rec.Memory == nil && name != "nobody watches it" {
			t.Errorf("%s: %+v", name, c.rec.Memory)
		}
	}
}
