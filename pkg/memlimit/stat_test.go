package memlimit

import (
	"math"
	"strings"
	"testing"
)

// From a Debian 13 guest (kernel 6.12), after reading 600 MB of files; lines that
// do not matter are left out.
const stat612 = `anon 44040192
file 636219392
kernel 9437184
kernel_stack 196608
pagetables 1048576
sec_pagetables 0
percpu 8640
sock 4096
vmalloc 0
shmem 12288
zswap 0
zswapped 0
file_mapped 7340032
inactive_anon 44000000
active_file 600000000
inactive_file 36219392
slab_reclaimable 8388608
slab_unreclaimable 262144
slab 8650752
workingset_refault_anon 3
workingset_refault_file 17
pgscan 4711
`

func TestHard(t *testing.T) {
	for name, c := range map[string]struct {
		stat string
		want uint64
	}{
		"6.12":                    {stat612, 44040192 + 12288 + (9437184 - 8388608) + 4096},
		"no kernel (before 5.18)": {strings.ReplaceAll(stat612, "kernel 9437184\n", ""), 44040192 + 12288 + (262144 + 196608 + 1048576 + 8640) + 4096},
		"counters that disagree":  {"kernel 10\nslab_reclaimable 20\nanon 5\n", 5},
		"empty":                   {"", 0},
		"overflow":                {"anon 18446744073709551615\nshmem 18446744073709551615\n", math.MaxUint64},
	} {
		s, err := ParseStat([]byte(c.stat))
		if err != nil || s.Hard() != c.want {
			t.Errorf("%s: %d, %v; want %d", name, s.Hard(), err, c.want)
		}
		m, err := ParseFlat([]byte(c.stat))
		if err != nil || Hard(m) != c.want {
			t.Errorf("%s: by map %d, %v; want %d", name, Hard(m), err, c.want)
		}
	}
	s, _ := ParseStat([]byte(stat612))
	if s.File != 636219392 || s.ActiveFile != 600000000 || s.InactiveFile != 36219392 || s.Pgscan != 4711 || s.RefaultAnon != 3 || s.RefaultFile != 17 || !s.HasKernel {
		t.Errorf("%+v", s)
	}
}

func TestParseEvents(t *testing.T) {
	e, err := ParseEvents([]byte("low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\noom_group_kill 6\nsock_throttled 9\n"))
	if want := (Events{1, 2, 3, 4, 5, 6}); err != nil || e != want {
		t.Errorf("%+v, %v; want %+v", e, err, want)
	}
}

func TestScanFlatErrors(t *testing.T) {
	for _, in := range []string{"anon", "anon ", " 5", "anon x", "anon -1", "anon 1 2", "anon 18446744073709551616", "anon\t5", "ok 1\nbad\n", "anon 5\r\n"} {
		if m, err := ParseFlat([]byte(in)); err == nil {
			t.Errorf("ParseFlat(%q) = %v", in, m)
		}
	}
	for _, in := range []string{"", "\n", "a 1", "a 1\n\nb 2\n"} {
		if _, err := ParseFlat([]byte(in)); err != nil {
			t.Errorf("ParseFlat(%q): %v", in, err)
		}
	}
}

func TestParsersDoNotAllocate(t *testing.T) {
	data := []byte(stat612)
	if n := testing.AllocsPerRun(100, func() {
		s, err := ParseStat(data)
		if err != nil || s.Hard() == 0 {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("ParseStat allocates %v times", n)
	}
}

func FuzzParseFlat(f *testing.F) {
	f.Add([]byte(stat612))
	f.Add([]byte("low 0\nhigh 0\n"))
	f.Add([]byte("a 99999999999999999999"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseFlat(data)
		s, err2 := ParseStat(data)
		if (err == nil) != (err2 == nil) {
			t.Fatalf("ParseFlat: %v, ParseStat: %v", err, err2)
		}
		if err == nil && Hard(m) != s.Hard() {
			t.Fatalf("%d by map, %d by struct", Hard(m), s.Hard())
		}
	})
}

func BenchmarkParseStat(b *testing.B) {
	data := []byte(stat612)
	for b.Loop() {
		if _, err := ParseStat(data); err != nil {
			b.Fatal(err)
		}
	}
}
