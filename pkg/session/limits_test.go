package session

import (
	"errors"
	"strings"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// holding is a box that holds so much hard memory, and does nothing else.
type holding struct {
	Box
	bytes uint64
	tier  memlimit.Tier
}

func (h holding) Usage(string) (memlimit.Usage, error) {
	return memlimit.Usage{MemoryBytes: &h.bytes, Tier: h.tier}, nil
}

func (h holding) Path() string { return "/sys/fs/cgroup/no-such-directory/box" }

// TestTooLow: a ceiling that what runs cannot live under is refused, with what to do;
// one that gives more than before never is.
func TestTooLow(t *testing.T) {
	const mib = 1 << 20
	l := func(max, high memlimit.Size) memlimit.Limits {
		return memlimit.Limits{MemoryMax: max, MemoryHigh: high}
	}
	m := func(n uint64) memlimit.Size { return memlimit.Bytes(n * mib) }
	none := memlimit.Size{}
	s := &Session{rec: store.Session{Name: "work"}}
	for name, c := range map[string]struct {
		l, had memlimit.Limits
		tier   memlimit.Tier
		low    string // the file that is too low, "" when it is taken
	}{
		"too low":                {l: l(m(120), none), tier: memlimit.TierCgroup, low: "memory.max"},
		"enough":                 {l: l(m(130), none), tier: memlimit.TierCgroup},
		"a low brake":            {l: l(none, m(101)), tier: memlimit.TierCgroup, low: "memory.high"},
		"lower than before":      {l: l(m(120), none), had: l(m(500), none), tier: memlimit.TierCgroup, low: "memory.max"},
		"more than before":       {l: l(m(120), none), had: l(m(110), none), tier: memlimit.TierCgroup},
		"lifted":                 {l: l(memlimit.Max(), memlimit.Max()), had: l(m(110), none), tier: memlimit.TierCgroup},
		"without the controller": {l: l(m(1), none), tier: memlimit.TierProcesses},
		"processes only":         {l: memlimit.Limits{PidsMax: memlimit.Bytes(1)}, tier: memlimit.TierCgroup},
	} {
		err := s.bear(holding{bytes: 100 * mib, tier: c.tier}, c.l, c.had)
		if c.low == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		low, is := errors.AsType[*memlimit.TooLowError](err)
		if !is || low.File != c.low || !errors.Is(err, ErrTooLow) || Code(err) != "too_low" {
			t.Errorf("%s: %v, code %s", name, err, Code(err))
			continue
		}
		if e, ok := errors.AsType[*Error](err); !ok || !strings.Contains(e.Hint, "--force") {
			t.Errorf("%s: no hint in %+v", name, err)
		}
	}
}

// TestRemark: a ceiling whose controller is not here says how to get it.
func TestRemark(t *testing.T) {
	all := memlimit.Ceilings(memlimit.Limits{MemoryMax: memlimit.Bytes(1 << 30), PidsMax: memlimit.Bytes(7)}, memlimit.Limits{PidsMax: memlimit.Bytes(7)})
	(&Manager{}).remark(&store.Session{Kind: store.KindCgroup}, holding{}, all)
	swap := memlimit.Ceilings(memlimit.Limits{SwapMax: memlimit.Bytes(1 << 30)}, memlimit.Limits{MemoryMax: memlimit.Max()})
	if (&Manager{}).remark(&store.Session{}, holding{}, swap); len(swap) != 1 || swap[0].Fix != "boot with swapaccount=1" {
		t.Errorf("%+v", swap)
	}
	for _, c := range all {
		if c.Missing() != (c.File == "memory.max") || c.Missing() && c.Why != "memory controller not delegated" {
			t.Errorf("%+v", c)
		}
	}
}
