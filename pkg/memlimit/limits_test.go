package memlimit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"pgregory.net/rapid"
)

const gib = 1 << 30

func must(t testing.TB, text string) Size {
	t.Helper()
	s, err := ParseSize(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOCI(t *testing.T) {
	for _, c := range []struct {
		limits Limits
		want   *specs.LinuxResources
	}{
		{Limits{}, nil},
		{Limits{MemoryMax: Bytes(4 * gib)}, &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: new(int64(4 * gib))}}},
		{Limits{MemoryMax: Max()}, &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: new(int64(-1))}}},
		{Limits{MemoryMax: Bytes(4 * gib), SwapMax: Bytes(gib)}, &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: new(int64(4 * gib)), Swap: new(int64(5 * gib))}}},
		{Limits{MemoryMax: Bytes(4 * gib), SwapMax: Bytes(0)}, &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: new(int64(4 * gib)), Swap: new(int64(4 * gib))}}},
		{Limits{MemoryMax: Bytes(4 * gib), SwapMax: Max()}, &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: new(int64(4 * gib)), Swap: new(int64(-1))}}},
		{Limits{SwapMax: Bytes(gib)}, &specs.LinuxResources{Unified: map[string]string{"memory.swap.max": "1073741824"}}},
		{Limits{MemoryMax: Max(), SwapMax: Bytes(0)}, &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: new(int64(-1))}, Unified: map[string]string{"memory.swap.max": "0"}}},
		{Limits{MemoryHigh: Bytes(gib), PidsMax: Bytes(99)}, &specs.LinuxResources{Pids: &specs.LinuxPids{Limit: new(int64(99))}, Unified: map[string]string{"memory.high": "1073741824"}}},
		{Limits{MemoryHigh: Max(), PidsMax: Max()}, &specs.LinuxResources{Pids: &specs.LinuxPids{Limit: new(int64(-1))}, Unified: map[string]string{"memory.high": "max"}}},
	} {
		got, err := c.limits.OCI()
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%+v: %v (-want +got):\n%s", c.limits, err, diff)
		}
		if back, err := FromOCI(got); err != nil || back != c.limits {
			t.Errorf("back: %+v, %v; want %+v", back, err, c.limits)
		}
	}
	for name, r := range map[string]*specs.LinuxResources{
		"swap below memory": {Memory: &specs.LinuxMemory{Limit: new(int64(5)), Swap: new(int64(4))}},
		"swap, no memory":   {Memory: &specs.LinuxMemory{Swap: new(int64(4))}},
		"negative":          {Memory: &specs.LinuxMemory{Limit: new(int64(-2))}},
		"negative pids":     {Pids: &specs.LinuxPids{Limit: new(int64(-7))}},
		"garbage":           {Unified: map[string]string{"memory.max": "4G"}},
	} {
		if l, err := FromOCI(r); err == nil {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

// The three forms say the same.
func TestFormsRoundTrip(t *testing.T) {
	size := rapid.OneOf(rapid.Just(Size{}), rapid.Just(Max()), rapid.Map(rapid.Uint64Max(MaxBytes), Bytes))
	rapid.Check(t, func(t *rapid.T) {
		want := Limits{size.Draw(t, "max"), size.Draw(t, "high"), size.Draw(t, "swap"), size.Draw(t, "pids")}
		oci, err := want.OCI()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := FromOCI(oci); err != nil || got != want {
			t.Fatalf("oci: %+v, %v; want %+v", got, err, want)
		}
		files, err := want.Files()
		if err != nil {
			t.Fatal(err)
		}
		for i := range files {
			files[i].Value += "\n" // as the kernel writes them
		}
		if got, err := FromFiles(files); err != nil || got != want {
			t.Fatalf("files: %+v, %v; want %+v", got, err, want)
		}
		props, err := want.Properties()
		if err != nil {
			t.Fatal(err)
		}
		if got := FromProperties(props); got != want {
			t.Fatalf("properties: %+v; want %+v", got, want)
		}
		if diff := want.Diff(want); len(diff) > 0 {
			t.Fatalf("differs from itself: %v", diff)
		}
	})
}

func TestPropertiesAndFiles(t *testing.T) {
	l := Limits{MemoryMax: Bytes(4 * gib), MemoryHigh: Max(), SwapMax: Bytes(0), PidsMax: Bytes(512)}
	props, err := l.Properties()
	want := []Property{{"MemoryMax", 4 * gib}, {"MemoryHigh", Infinity}, {"MemorySwapMax", 0}, {"TasksMax", 512}}
	if diff := cmp.Diff(want, props); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	files, err := l.Files()
	wantFiles := []File{{"pids.max", "512"}, {"memory.swap.max", "0"}, {"memory.high", "max"}, {"memory.max", "4294967296"}}
	if diff := cmp.Diff(wantFiles, files); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	l.MemoryMax = must(t, "75%")
	for name, f := range map[string]func() error{
		"OCI":        func() error { _, err := l.OCI(); return err },
		"Properties": func() error { _, err := l.Properties(); return err },
		"Files":      func() error { _, err := l.Files(); return err },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), "memory_max 75%") {
			t.Errorf("%s with a percentage: %v", name, err)
		}
	}
	if _, err := FromFiles([]File{{"memory.max", "4G\n"}}); err == nil || !strings.Contains(err.Error(), "memory.max") {
		t.Errorf("%v", err)
	}
	if l, err := FromFiles([]File{{"cpu.max", "max 100000\n"}}); err != nil || l.IsSet() {
		t.Errorf("%v, %v", l, err)
	}
}

func TestLimitsResolve(t *testing.T) {
	l := Limits{MemoryMax: must(t, "75%"), MemoryHigh: Bytes(gib), SwapMax: must(t, "50%"), PidsMax: must(t, "10%")}
	got, err := l.Resolve(Totals{Memory: 8 * gib, Swap: 2 * gib, Pids: 32768})
	want := Limits{Bytes(6 * gib), Bytes(gib), Bytes(gib), Bytes(3276)}
	if err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if _, err := l.Resolve(Totals{Memory: gib}); err == nil || !strings.Contains(err.Error(), "swap_max") || !strings.Contains(err.Error(), "pids_max") {
		t.Errorf("%v, want both that are unknown", err)
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		limits Limits
		want   string // "" = valid
	}{
		{Limits{}, ""},
		{Limits{MemoryMax: Bytes(4 * gib), MemoryHigh: Bytes(4 * gib), SwapMax: Bytes(0), PidsMax: Bytes(1)}, ""},
		{Limits{MemoryMax: Bytes(gib), MemoryHigh: Max()}, ""},
		{Limits{MemoryMax: Max(), MemoryHigh: Bytes(gib)}, ""},
		{Limits{MemoryMax: must(t, "10%"), MemoryHigh: Bytes(gib)}, ""}, // known after Resolve
		{Limits{MemoryMax: Bytes(4)}, "did you mean 4G?"},
		{Limits{MemoryMax: Bytes(0)}, "memory_max is 0 bytes"},
		{Limits{MemoryHigh: Bytes(4096)}, "memory_high is 4096 bytes"},
		{Limits{PidsMax: Bytes(0)}, "pids_max"},
		{Limits{MemoryMax: Bytes(gib), MemoryHigh: Bytes(gib + 1)}, "above memory_max (1G)"},
		{Limits{MemoryMax: must(t, "50%"), MemoryHigh: must(t, "60%")}, "memory_high (60%) is above"},
	} {
		err := c.limits.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.limits, err, c.want)
		}
	}
}

func TestMerge(t *testing.T) {
	base := Limits{MemoryMax: Bytes(4 * gib), PidsMax: Bytes(10)}
	got := Limits{MemoryMax: Max(), SwapMax: Bytes(0)}.Merge(base)
	if want := (Limits{MemoryMax: Max(), SwapMax: Bytes(0), PidsMax: Bytes(10)}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestDiffAndCeilings(t *testing.T) {
	want := Limits{MemoryMax: Bytes(1_000_000_000), MemoryHigh: Max(), SwapMax: Bytes(0), PidsMax: Bytes(100)}
	for _, c := range []struct {
		name string
		got  Limits
		diff string
	}{
		{"rounded to pages", Limits{Bytes(999_997_440), Max(), Bytes(0), Bytes(100)}, "[]"},
		{"rounded to large pages", Limits{Bytes(1_000_000_000 &^ 0xffff), Max(), Bytes(0), Bytes(100)}, "[]"},
		{"no control", Limits{}, "[memory.max 1000000000 is not in force: no such control memory.swap.max 0 is not in force: no such control pids.max 100 is not in force: no such control]"},
		{"no ceiling", Limits{Max(), Max(), Bytes(0), Bytes(100)}, "[memory.max 1000000000 is not in force: it is max]"},
		{"above", Limits{Bytes(1_000_000_001), Max(), Bytes(0), Bytes(100)}, "[memory.max 1000000000 is not in force: it is 1000000001]"},
		{"another count", Limits{Bytes(1_000_000_000), Max(), Bytes(0), Bytes(99)}, "[pids.max 100 is not in force: it is 99]"},
	} {
		diff := want.Diff(c.got)
		if got := fmt.Sprint(diff); got != c.diff {
			t.Errorf("%s: %s, want %s", c.name, got, c.diff)
		}
		for _, ceil := range Ceilings(want, c.got) {
			bad := false
			for _, m := range diff {
				bad = bad || m.File == ceil.File
			}
			if ceil.InForce == bad || (ceil.Why == "") != ceil.InForce {
				t.Errorf("%s: %+v", c.name, ceil)
			}
		}
	}
	if all := Ceilings(Limits{}, Limits{MemoryMax: Max(), PidsMax: Bytes(7)}); len(all) != 1 || all[0].File != "pids.max" || !all[0].InForce {
		t.Errorf("%+v, want the ceiling that nobody asked for", all)
	}
}
