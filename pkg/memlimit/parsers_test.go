package memlimit

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

const psi = "some avg10=0.12 avg60=0.00 avg300=0.00 total=1234567\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=89\n"

func TestParsePressure(t *testing.T) {
	p, err := ParsePressure([]byte(psi))
	if want := (Pressure{1234567 * time.Microsecond, 89 * time.Microsecond}); err != nil || p != want {
		t.Errorf("%v, %v; want %v", p, err, want)
	}
	if p, err := ParsePressure([]byte("some avg10=0.00 total=5")); err != nil || p.Some != 5*time.Microsecond { // /proc/pressure/cpu before 5.13
		t.Errorf("%v, %v", p, err)
	}
	for _, bad := range []string{"", "\n", "some avg10=0", "some total=", "some total=-1", "some total=99999999999999999999", "some total=9223372036854775807"} {
		if p, err := ParsePressure([]byte(bad)); err == nil {
			t.Errorf("%q: %v", bad, p)
		}
	}
}

func TestTrigger(t *testing.T) {
	b, err := Trigger(TriggerStall, TriggerWindow)
	if err != nil || string(b) != "some 150000 2000000\x00" {
		t.Errorf("%q, %v", b, err)
	}
	for _, bad := range [][2]time.Duration{{time.Millisecond, time.Second}, {time.Millisecond, 3 * time.Second}, {time.Millisecond, 12 * time.Second}, {0, 2 * time.Second}, {3 * time.Second, 2 * time.Second}, {time.Second, 0}, {-1, 2 * time.Second}} {
		if b, err := Trigger(bad[0], bad[1]); err == nil {
			t.Errorf("%v: %q", bad, b)
		}
	}
	armed := Pressure{Some: time.Hour}
	if (Pressure{Some: time.Hour + 18*time.Millisecond}).Fired(armed, TriggerStall) {
		t.Error("18 ms of stall count as 150 (facts/memory.md, fact 7)")
	}
	if !(Pressure{Some: time.Hour + 150*time.Millisecond}).Fired(armed, TriggerStall) {
		t.Error("150 ms of stall do not count")
	}
}

// The rate is taken over the whole time from before the first reading to after the
// second, so that a reader that stalls does not make it look higher.
func TestStallRates(t *testing.T) {
	then := point{at: time.Second, done: time.Second, some: time.Second, full: 0}
	now := point{at: 2 * time.Second, done: 5 * time.Second, some: 3 * time.Second, full: time.Second}
	if some, full := stallRates(&then, &now); some != .5 || full != .25 {
		t.Errorf("%v, %v; want 0.5, 0.25", some, full)
	}
	if some, full := stallRates(&now, &then); some != 0 || full != 0 {
		t.Errorf("backwards: %v, %v", some, full)
	}
}

// From this project's hybrid build host, kernel 6.18; lines that do not matter are
// left out.
const stat1 = `cache 12308480
rss 10260480
total_cache 3725553664
total_rss 202428416
total_rss_huge 0
total_shmem 9170944
total_workingset_refault_anon 5
total_workingset_refault_file 746191
total_swap 4096
hierarchical_memory_limit 9223372036854771712
hierarchical_memsw_limit 9223372036854771712
`

func TestStat1(t *testing.T) {
	st, err := ParseStat1([]byte(stat1))
	if err != nil {
		t.Fatal(err)
	}
	var s Sample
	st.Fill(&s, 1000)
	if s.Hard != 202428416+9170944+1000 || s.Swap != 4096 || s.Max != Infinity || s.SwapMax != Infinity || s.Tier != TierCgroupV1 || s.Soft != 3725553664-9170944 || s.Refaults != 746196 {
		t.Errorf("%+v", s)
	}
	st, err = ParseStat1([]byte("total_rss 5\nhierarchical_memory_limit 1000\nhierarchical_memsw_limit 1500\n"))
	if err != nil {
		t.Fatal(err)
	}
	if st.Fill(&s, 0); s.Max != 1000 || s.SwapMax != 500 || s.Hard != 5 {
		t.Errorf("%+v, want swap alone", s)
	}
	if n, err := ParseOOMControl([]byte("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n")); err != nil || n != 7 {
		t.Errorf("%d, %v", n, err)
	}
}

const status = "Name:\tnode\nVmRSS:\t    3000 kB\nRssAnon:\t    1024 kB\nRssFile:\t    1000 kB\nRssShmem:\t      12 kB\nVmSwap:\t       8 kB\nThreads:\t1\n"

const rollup = "55850201f000-7ffe056e9000 ---p 00000000 00:00 0                          [rollup]\nRss:                1768 kB\nPss:                 231 kB\nPss_Anon:            112 kB\nPss_File:            119 kB\nPss_Shmem:             3 kB\nSwap:                  0 kB\nSwapPss:               2 kB\n"

func TestProcesses(t *testing.T) {
	var p Process
	if err := p.ParseStatus([]byte(status)); err != nil || p.Anon != 1024<<10 || p.Shmem != 12<<10 || p.Swap != 8<<10 || p.RSS != 3000<<10 || p.Exact {
		t.Errorf("%+v, %v", p, err)
	}
	if err := p.ParseRollup([]byte(rollup)); err != nil || p.Anon != 112<<10 || p.Shmem != 3<<10 || p.Swap != 2<<10 || !p.Exact {
		t.Errorf("%+v, %v", p, err)
	}
	before := p
	if err := p.ParseRollup([]byte("Rss: 17 kB\nPss: 231 kB\n")); err != nil || p != before { // 5.3 has no Pss_Anon
		t.Errorf("%+v, %v", p, err)
	}
	if err := p.ParseStatm([]byte("765 419 390 5 0 123 0\n"), 4096); err != nil || p.Anon != 29*4096 || p.RSS != 419*4096 {
		t.Errorf("%+v, %v", p, err)
	}
	for _, bad := range []string{"", "1", "1 2", "1 x 3", "1 2 -3", "1 99999999999999999999 3"} {
		if err := p.ParseStatm([]byte(bad), 4096); err == nil {
			t.Errorf("statm %q: %+v", bad, p)
		}
	}
	if err := p.ParseStatus([]byte("RssAnon:\t x kB\n")); err == nil {
		t.Error("a status without a number")
	}
	const mib = 1 << 20
	ps := []Process{{Anon: 5, RSS: 10}, {Shmem: 50 * mib, RSS: 3 << 30}, {Shmem: 7 * mib, RSS: 7 * mib}, {RSS: 10}, {Shmem: mib - 1, RSS: mib}, {Shmem: 9 * mib, RSS: 9 * mib}}
	if got := Costly(ps); !slices.Equal(got, []int{5, 2}) {
		t.Errorf("%v, want who holds shared memory, but for those that are too big", got)
	}
	if got := Costly(ps[2:3]); got != nil {
		t.Errorf("%v, want none: it shares with nobody here", got)
	}
	s := Sample{Max: 100}
	FillProcesses(&s, []Process{{Anon: 5, Shmem: 2, Swap: 1}, {Anon: 10}})
	if s.Tier != TierProcesses || s.Hard != 17 || s.Anon != 15 || s.Swap != 1 || s.Max != 100 {
		t.Errorf("%+v", s)
	}
}

const meminfo = "MemTotal:       24683956 kB\nMemFree:        19321300 kB\nMemAvailable:   23397568 kB\nSwapTotal:       1048572 kB\nSwapFree:         524288 kB\nAnonPages:        500000 kB\nShmem:             51200 kB\nHugePages_Total:       0\n"

func TestParseMeminfo(t *testing.T) {
	h, err := ParseMeminfo([]byte(meminfo))
	if want := (Host{Total: 24683956 << 10, Available: 23397568 << 10, SwapTotal: 1048572 << 10, SwapFree: 524288 << 10, Anon: 500000 << 10, Shmem: 51200 << 10}); err != nil || h != want {
		t.Errorf("%+v, %v", h, err)
	}
	if _, err := ParseMeminfo([]byte("MemTotal: 99999999999999999999 kB\n")); err == nil {
		t.Error("no error")
	}
	var s Sample
	if err := ParseVmstat([]byte("nr_free_pages 5\npgscan_kswapd 3\npgscan_direct 4\npgscan_direct_throttle 99\nworkingset_refault_anon 1\nworkingset_refault_file 2\n"), &s); err != nil || s.Scans != 7 || s.Refaults != 3 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestSampleParsersDoNotAllocate(t *testing.T) {
	var s Sample
	var p Process
	files := [][]byte{[]byte(psi), []byte(stat1), []byte(status), []byte(rollup), []byte(meminfo), []byte("pgscan_kswapd 3\n"), []byte(stat612)}
	if n := testing.AllocsPerRun(100, func() {
		_, e1 := ParsePressure(files[0])
		st, e2 := ParseStat1(files[1])
		st.Fill(&s, 0)
		e3, e4 := p.ParseStatus(files[2]), p.ParseRollup(files[3])
		h, e5 := ParseMeminfo(files[4])
		h.Fill(&s)
		e6 := ParseVmstat(files[5], &s)
		v2, e7 := ParseStat(files[6])
		s.Of(&v2)
		if e1 != nil || e2 != nil || e3 != nil || e4 != nil || e5 != nil || e6 != nil || e7 != nil {
			t.Fatal(errors.Join(e1, e2, e3, e4, e5, e6, e7))
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestLook(t *testing.T) {
	var l Look
	for i, c := range []struct {
		current uint64
		want    bool
	}{{100 * mib, true}, {101 * mib, false}, {99 * mib, false}, {103 * mib, true}, {103 * mib, false}, {600 * mib, true}, {600 * mib, true}} {
		if got := l.Want(c.current, 1000*mib); got != c.want {
			t.Errorf("%d: %d MiB: %v", i, c.current/mib, got)
		}
	}
	l = Look{}
	read := 0
	for range 100 {
		if l.Want(mib, gib) {
			read++
		}
	}
	if read != 10 {
		t.Errorf("read %d times of 100 at rest, want every tenth", read)
	}
}

func FuzzParsers(f *testing.F) {
	for _, s := range []string{psi, stat1, status, rollup, meminfo, stat612, "1 2 3", "some total=1\nfull total=", "A: 1 kB"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var s Sample
		var p Process
		if pr, err := ParsePressure(b); err == nil && (pr.Some < 0 || pr.Full < 0) {
			t.Fatal(pr)
		}
		st, _ := ParseStat1(b)
		st.Fill(&s, 0)
		h, _ := ParseMeminfo(b)
		h.Fill(&s)
		if h.Reserve() > h.Total {
			t.Fatal(h)
		}
		_ = ParseVmstat(b, &s)
		_ = p.ParseStatus(b)
		_ = p.ParseRollup(b)
		if err := p.ParseStatm(b, 4096); err == nil && p.Anon > p.RSS {
			t.Fatal(p)
		}
		if _, err := ParseOOMControl(b); err != nil && !strings.Contains(err.Error(), "line") {
			t.Fatal(err)
		}
		if text, err := ParseSteps(string(b)); err == nil {
			if back, err := ParseSteps(text.String()); err != nil || back != text {
				t.Fatal(text, err)
			}
		}
		var j Judge
		j.Observe(&s)
	})
}
