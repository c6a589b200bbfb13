package cgroup_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/testcgroup"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"golang.org/x/sys/unix"
)

// fixture makes a directory that looks like a cgroup with the memory controller, as
// this host may have none.
func fixture(t testing.TB, change map[string]string) (*cgroup.Sampler, string, error) {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"cgroup.events":          "populated 1\nfrozen 0\n",
		"memory.current":         "646000000\n",
		"memory.stat":            "anon 44040192\nfile 600000000\nkernel 9437184\nsock 4096\nshmem 12288\nslab_reclaimable 8388608\npgscan 4711\nworkingset_refault_anon 3\nworkingset_refault_file 17\n",
		"memory.swap.current":    "1048576\n",
		"memory.max":             "1073741824\n",
		"memory.high":            "max\n",
		"memory.swap.max":        "max\n",
		"memory.events":          "low 0\nhigh 1\nmax 2\noom 3\noom_kill 4\noom_group_kill 0\n",
		"memory.pressure":        "some avg10=0.00 avg60=0.00 avg300=0.00 total=150000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=50000\n",
		"cgroup.subtree_control": "",
	}
	maps.Copy(files, change)
	for name, content := range files {
		if content == "-" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	s, err := cgroup.NewSampler(fd, dir)
	if err == nil {
		t.Cleanup(func() { s.Close() })
	}
	return s, dir, err
}

func TestSample(t *testing.T) {
	s, dir, err := fixture(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got memlimit.Sample
	if err := s.Sample(&got); err != nil {
		t.Fatal(err)
	}
	want := memlimit.Sample{At: got.At, Done: got.Done, Tier: memlimit.TierCgroup, Hard: 44040192 + 12288 + 1048576 + 4096, Swap: 1 << 20, Soft: 600000000 - 12288 + 8388608, Anon: 44040192,
		Max: 1 << 30, High: memlimit.Infinity, SwapMax: memlimit.Infinity, Events: memlimit.Events{High: 1, Max: 2, OOM: 3, OOMKill: 4},
		Pressure: memlimit.Pressure{Some: 150 * time.Millisecond, Full: 50 * time.Millisecond}, Scans: 4711, Refaults: 20}
	if got != want || got.Done < got.At || got.At == 0 {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	// At rest memory.stat is not read each time; a limit that was changed is seen.
	rewrite := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rewrite("memory.current", "100000000\n")
	if err := s.Sample(&got); err != nil {
		t.Fatal(err)
	}
	rewrite("memory.stat", "anon 1\n")
	rewrite("memory.max", "max\n")
	if err := s.Sample(&got); err != nil || got.Hard != want.Hard || got.Max != memlimit.Infinity {
		t.Errorf("at rest: %+v, %v", got, err)
	}
	s.Fresh()
	if err := s.Sample(&got); err != nil || got.Hard != 1 {
		t.Errorf("fresh: %+v, %v", got, err)
	}
}

func TestSampleOfOldAndOddKernels(t *testing.T) {
	for name, c := range map[string]struct {
		change map[string]string
		check  func(memlimit.Sample) bool
		err    string
	}{
		"no swap accounting":     {map[string]string{"memory.swap.current": "-", "memory.swap.max": "-"}, func(s memlimit.Sample) bool { return s.Swap == 0 && s.SwapMax == memlimit.Infinity }, ""},
		"no pressure":            {map[string]string{"memory.pressure": "-"}, func(s memlimit.Sample) bool { return s.Pressure == memlimit.Pressure{} }, ""},
		"no freezer":             {map[string]string{"cgroup.events": "populated 1\n"}, func(s memlimit.Sample) bool { return !s.Frozen }, ""},
		"frozen":                 {map[string]string{"cgroup.events": "populated 1\nfrozen 1\n"}, func(s memlimit.Sample) bool { return s.Frozen }, ""},
		"no controller":          {map[string]string{"memory.stat": "-", "memory.current": "-"}, func(s memlimit.Sample) bool { return s.Tier == memlimit.TierProcesses && s.Max == memlimit.Infinity }, "memory controller is not available"},
		"garbage in memory.max":  {map[string]string{"memory.max": "4G\n"}, nil, `memory.max: "4G\n" is no amount`},
		"nothing in memory.max":  {map[string]string{"memory.max": ""}, nil, "memory.max is empty"},
		"a number too large":     {map[string]string{"memory.current": "99999999999999999999999\n"}, nil, "is no amount"},
		"garbage in memory.stat": {map[string]string{"memory.stat": "anon x\n"}, nil, `"anon x"`},
		"a very long stat":       {map[string]string{"memory.stat": "anon 5\n" + strings.Repeat("some_new_counter 1\n", 1000)}, func(s memlimit.Sample) bool { return s.Hard == 5 }, ""},
	} {
		s, _, err := fixture(t, c.change)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got memlimit.Sample
		err = s.Sample(&got)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", name, err, c.err)
		}
		if c.check != nil && !c.check(got) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestSamplersDoNotAllocate(t *testing.T) {
	s, _, err := fixture(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	h, err := cgroup.NewHostSampler("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	var out, host memlimit.Sample
	if n := testing.AllocsPerRun(100, func() {
		s.Fresh()
		if err := s.Sample(&out); err != nil {
			t.Fatal(err)
		}
		if _, _, err := h.Sample(&host); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations for a sample", n)
	}
}

// A real cgroup, whose memory controller may be elsewhere: it is said, what else
// there is is read, and its end is told from the controller's.
func TestSampleRealGroup(t *testing.T) {
	root := testcgroup.Root(t)
	g := make1(t, root, "sampled")
	s, err := g.Sampler()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var got memlimit.Sample
	err = s.Sample(&got)
	if g.Has("memory.stat") != (err == nil) || err != nil && !errors.Is(err, cgroup.ErrNoMemory) {
		t.Fatalf("%v with memory.stat: %v", err, g.Has("memory.stat"))
	}
	if err := g.Freeze(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if _ = s.Sample(&got); !got.Frozen {
		t.Errorf("frozen: %+v", got)
	}
	if err := g.Remove(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if err := s.Sample(&got); !errors.Is(err, cgroup.ErrGone) {
		t.Errorf("removed: %v", err)
	}
}

func TestHostSample(t *testing.T) {
	h, err := cgroup.NewHostSampler("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	var s memlimit.Sample
	free, worth, err := h.Sample(&s)
	total := cgroup.HostMemory()
	if err != nil || s.Max != total.Memory-(memlimit.Host{Total: total.Memory}).Reserve() || s.Hard == 0 || s.Hard >= total.Memory || free > total.Swap || worth <= 0 || s.Tier != memlimit.TierHost {
		t.Errorf("%+v, %d, %v, %v", s, free, worth, err)
	}
	if _, err := cgroup.NewHostSampler(t.TempDir()); err == nil {
		t.Error("a procfs without meminfo")
	}
	dir := t.TempDir()
	for name, content := range map[string]string{"meminfo": "MemTotal: 1048576 kB\nMemAvailable: 524288 kB\nSwapTotal: 1000 kB\nSwapFree: 600 kB\n", "swaps": "Filename Type Size Used Priority\n/dev/zram0 partition 1000 400 100\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	z, err := cgroup.NewHostSampler(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	if free, worth, err := z.Sample(&s); err != nil || free != 600<<10 || worth != memlimit.WorthZram || s.Hard != 512<<20 {
		t.Errorf("%d, %v, %v, %+v", free, worth, err, s)
	}
	if n, err := z.Available(); err != nil || n != 512<<20 {
		t.Errorf("%d is available, %v", n, err)
	}
}

// Tier B against the truth: a process that holds 64 MiB in a v1 memory cgroup.
func TestSample1(t *testing.T) {
	const top = "/sys/fs/cgroup/memory"
	if _, err := os.Stat(filepath.Join(top, "memory.stat")); err != nil || os.Getuid() != 0 {
		t.Skip("needs a v1 memory hierarchy and root")
	}
	dir := filepath.Join(top, fmt.Sprintf("sbxtest-v1-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip(err)
	}
	// tail keeps a line that does not end until it has all of it.
	cmd := exec.Command("sh", "-c", `echo $$ >"$0/cgroup.procs" && head -c 67108864 /dev/zero | tail -n 1 | sleep 60`, dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		for end := time.Now().Add(10 * time.Second); os.Remove(dir) != nil; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("%s is left", dir)
				return
			}
		}
	})
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s, err := cgroup.OpenSampler1(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var got memlimit.Sample
	const held = 64 << 20
	for end := time.Now().Add(20 * time.Second); got.Hard < held; time.Sleep(20 * time.Millisecond) {
		if err := s.Sample(&got); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(end) {
			break
		}
	}
	time.Sleep(200 * time.Millisecond) // it may hold more than its input
	if err := s.Sample(&got); err != nil || got.Tier != memlimit.TierCgroupV1 || got.Hard < held || got.Hard > held*5/4 {
		t.Errorf("%v: %d MiB, want 64 and a little for the programs", err, got.Hard>>20)
	}
	if n := testing.AllocsPerRun(10, func() { _ = s.Sample(&got) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	t.Logf("%.1f MiB of 64", float64(got.Hard)/(1<<20))
}

func BenchmarkSample(b *testing.B) {
	h, err := cgroup.NewHostSampler("/proc")
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	var s memlimit.Sample
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := h.Sample(&s); err != nil {
			b.Fatal(err)
		}
	}
}
