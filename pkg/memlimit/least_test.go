package memlimit

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestBear(t *testing.T) {
	const inUse = 1000 * mib
	for name, c := range map[string]struct {
		l    Limits
		file string
	}{
		"nothing set":       {Limits{}, ""},
		"room":              {Limits{MemoryMax: Bytes(1300 * mib)}, ""},
		"just too little":   {Limits{MemoryMax: Bytes(1299 * mib)}, "memory.max"},
		"less than is used": {Limits{MemoryMax: Bytes(mib)}, "memory.max"},
		"no limit":          {Limits{MemoryMax: Max(), MemoryHigh: Max()}, ""},
		"a low brake":       {Limits{MemoryMax: Bytes(2 * gib), MemoryHigh: Bytes(gib)}, "memory.high"},
		"swap and pids":     {Limits{SwapMax: Bytes(0), PidsMax: Bytes(1)}, ""},
	} {
		err := c.l.Bear(inUse)
		low, is := errors.AsType[*TooLowError](err)
		if is != (c.file != "") || is && low.File != c.file {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (Limits{MemoryMax: Bytes(gib)}).Bear(inUse); err == nil || !strings.Contains(err.Error(), "memory.max 1G is too low: it used up to 1000M of late; the least is 1.27G") {
		t.Errorf("%v", err)
	}
	if got := LeastCeiling(Infinity); got != Infinity {
		t.Errorf("%d", got)
	}
}

func TestIdleLimits(t *testing.T) {
	for name, c := range map[string]struct {
		l    Limits
		t    Totals
		want string
	}{
		"swap without swap":         {Limits{SwapMax: Bytes(gib)}, Totals{Memory: 8 * gib}, "[swap_max 1G does nothing: this host has no swap]"},
		"no swap without swap":      {Limits{SwapMax: Bytes(0)}, Totals{Memory: 8 * gib}, "[]"},
		"any swap without swap":     {Limits{SwapMax: Max()}, Totals{Memory: 8 * gib}, "[]"},
		"swap with swap":            {Limits{SwapMax: Bytes(gib)}, Totals{Memory: 8 * gib, Swap: 1}, "[]"},
		"more than there is":        {Limits{MemoryMax: Bytes(9 * gib), MemoryHigh: Bytes(8 * gib)}, Totals{Memory: 8 * gib}, "[memory_max 9G does nothing: this host has 8G of memory memory_high 8G does nothing: this host has 8G of memory]"},
		"nothing known of the host": {Limits{MemoryMax: Bytes(9 * gib), SwapMax: Bytes(1)}, Totals{}, "[]"},
		"fine":                      {Limits{MemoryMax: Bytes(gib), MemoryHigh: Max()}, Totals{Memory: 8 * gib}, "[]"},
	} {
		if got := fmt.Sprint(c.l.Idle(c.t)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestRemark(t *testing.T) {
	all := Ceilings(Limits{SwapMax: Bytes(gib), MemoryMax: Bytes(gib), PidsMax: Bytes(5)}, Limits{MemoryMax: Bytes(gib), PidsMax: Bytes(5)})
	Remark(all, Totals{Memory: 8 * gib})
	for _, c := range all {
		if want := c.File == "memory.swap.max"; (c.Note != "") != want || c.Missing() != want {
			t.Errorf("%s: %q, missing %v", c.File, c.Note, c.Missing())
		}
		if c.File == "memory.swap.max" && c.Why != "this kernel does not account swap" {
			t.Errorf("%q", c.Why)
		}
	}
	all = Ceilings(Limits{MemoryMax: Bytes(gib)}, Limits{})
	if len(all) != 1 || all[0].Why != "memory controller not delegated" || all[0].Controller() != "memory" {
		t.Errorf("%+v", all)
	}
}

func TestShareOfNoLimit(t *testing.T) {
	if got, err := must(t, "5%").Resolve(Infinity); err == nil || !strings.Contains(err.Error(), "no limit") {
		t.Errorf("5%% of an unlimited parent is %v, %v", got, err)
	}
}
