package memlimit

import (
	"testing"

	"pgregory.net/rapid"
)

func TestHeadroom(t *testing.T) {
	for name, c := range map[string]struct {
		s        Sample
		headroom uint64
		used     float64
	}{
		"no ceiling":                {Sample{Hard: gib, Max: Infinity}, Infinity, 0},
		"no swap":                   {Sample{Hard: 3 * gib, Max: 4 * gib}, gib, .75},
		"as much again in swap":     {Sample{Hard: 3 * gib, Max: 4 * gib, SwapRoom: 3 * gib}, 4 * gib, 0},
		"full, some swap":           {Sample{Hard: 4 * gib, Max: 4 * gib, SwapRoom: gib}, gib, .75},
		"exceeded":                  {Sample{Hard: 5 * gib, Max: 4 * gib}, 0, 1},
		"exceeded by less than is":  {Sample{Hard: 5 * gib, Max: 4 * gib, SwapRoom: 2 * gib}, gib, .75},
		"nothing":                   {Sample{}, 0, 1},
		"more than a number can be": {Sample{Max: Infinity - 1, SwapRoom: Infinity}, Infinity, 0},
	} {
		if h, u := c.s.Headroom(), c.s.Used(); h != c.headroom || u != c.used {
			t.Errorf("%s: %d, %v; want %d, %v", name, h, u, c.headroom, c.used)
		}
	}
}

func TestSpreadSwap(t *testing.T) {
	for name, c := range map[string]struct {
		max, used [3]uint64 // of swap: session, slice, host
		free      uint64
		worth     float64
		want      [3]uint64
	}{
		"no swap":                  {[3]uint64{Infinity, Infinity, 0}, [3]uint64{}, 0, WorthDisk, [3]uint64{0, 0, 0}},
		"no limits":                {[3]uint64{Infinity, Infinity, 1000}, [3]uint64{0, 0, 400}, 600, WorthDisk, [3]uint64{600, 600, 600}},
		"the session's":            {[3]uint64{100, Infinity, 1000}, [3]uint64{30, 30, 400}, 600, WorthDisk, [3]uint64{70, 600, 600}},
		"the slice's":              {[3]uint64{500, 200, 1000}, [3]uint64{30, 150, 400}, 600, WorthDisk, [3]uint64{50, 50, 600}},
		"none for the session":     {[3]uint64{0, Infinity, 1000}, [3]uint64{0, 0, 0}, 1000, WorthDisk, [3]uint64{0, 1000, 1000}},
		"more in swap than may be": {[3]uint64{100, Infinity, 1000}, [3]uint64{200, 200, 200}, 800, WorthDisk, [3]uint64{0, 800, 800}},
		"zram":                     {[3]uint64{100, Infinity, 1000}, [3]uint64{0, 0, 0}, 1000, WorthZram, [3]uint64{60, 600, 600}},
	} {
		var path []*Sample
		for i := range c.max {
			path = append(path, &Sample{SwapMax: c.max[i], Swap: c.used[i]})
		}
		SpreadSwap(path, c.free, c.worth)
		for i, s := range path {
			if s.SwapRoom != c.want[i] {
				t.Errorf("%s: %d of %d has %d, want %d", name, i, len(path), s.SwapRoom, c.want[i])
			}
		}
	}
}

// More in use, a lower ceiling or less swap never means more headroom.
func TestHeadroomIsMonotone(t *testing.T) {
	n := rapid.Uint64()
	rapid.Check(t, func(t *rapid.T) {
		s := Sample{Hard: n.Draw(t, "hard"), Max: n.Draw(t, "max"), SwapRoom: n.Draw(t, "room")}
		for name, worse := range map[string]Sample{
			"more in use": {Hard: sum(s.Hard, n.Draw(t, "more")), Max: s.Max, SwapRoom: s.SwapRoom},
			"lower max":   {Hard: s.Hard, Max: s.Max - min(s.Max, n.Draw(t, "less")), SwapRoom: s.SwapRoom},
			"less swap":   {Hard: s.Hard, Max: s.Max, SwapRoom: s.SwapRoom - min(s.SwapRoom, n.Draw(t, "swap"))},
		} {
			if worse.Headroom() > s.Headroom() {
				t.Fatalf("%s: %+v has %d, %+v has %d", name, s, s.Headroom(), worse, worse.Headroom())
			}
		}
	})
}

func TestRoomInside(t *testing.T) {
	v := func(grown int64, headroom uint64) *Verdict { return &Verdict{Grown: grown * mib, Headroom: headroom} }
	// What was frozen has grown by nothing, however steep it was before; somebody else then
	// is who grows.
	frozen := v(0, gib)
	frozen.Frozen, frozen.Slope = true, 40*mib
	steep := v(1, Infinity)
	steep.Slope = 100 * mib
	for name, c := range map[string]struct {
		place  *Verdict
		inside []*Verdict
		want   uint64
	}{
		"one with a ceiling grows": {v(20, 8*gib), []*Verdict{v(20, gib), v(0, Infinity)}, gib},
		"two with ceilings":        {v(20, 8*gib), []*Verdict{v(10, gib), v(10, gib)}, 2 * gib},
		"one without":              {v(20, 8*gib), []*Verdict{v(10, gib), v(10, Infinity)}, Infinity},
		"nobody we know":           {v(20, 8*gib), []*Verdict{v(0, gib)}, Infinity},
		"somebody else, too":       {v(20, 8*gib), []*Verdict{v(10, gib)}, Infinity},
		"it was frozen":            {v(18, 8*gib), []*Verdict{frozen}, Infinity},
		"next to a frozen one":     {v(20, 8*gib), []*Verdict{frozen, v(20, gib)}, gib},
		"steep, and of no amount":  {v(60, 8*gib), []*Verdict{steep, v(59, gib)}, gib},
		"nothing grows":            {v(0, 8*gib), []*Verdict{v(0, gib)}, 1},
	} {
		if got := RoomInside(c.place, c.inside); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestHostFill(t *testing.T) {
	var s Sample
	h := Host{Total: gib, Available: 400 * mib, SwapTotal: gib, SwapFree: 100 * mib}
	h.Fill(&s)
	s.SwapRoom = h.SwapFree
	if got, want := s.Headroom(), uint64(400-64+100)*mib; got != want {
		t.Errorf("%d MiB, want available − reserve + swap: %d", got/mib, want/mib)
	}
	for total, reserve := range map[uint64]uint64{0: 0, 32 * mib: 32 * mib, 512 * mib: 64 * mib, 10 * gib: 512 * mib, 100 * gib: gib} {
		if got := (Host{Total: total}).Reserve(); got != reserve {
			t.Errorf("reserve of %d MiB: %d, want %d", total/mib, got/mib, reserve/mib)
		}
	}
}
