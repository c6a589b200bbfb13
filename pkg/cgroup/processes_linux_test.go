package cgroup_test

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/testcgroup"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// Tier C against the truth: 64 MiB of anonymous memory, and as much shared by two
// processes, which is counted twice until it is asked for exactly.
func TestProcesses(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	root := testcgroup.Root(t)
	const held, shared = 64 << 20, 48 << 20
	n := 0
	for name, c := range map[string]struct {
		code        string
		rough, fine uint64
	}{
		"anonymous": {"x = bytearray(64 << 20)", held, held},
		"shared":    {"import mmap, os\nm = mmap.mmap(-1, 48 << 20)\nfor i in range(0, 48 << 20, 4096): m[i] = 1\nos.fork()\ns = sum(m[i] for i in range(0, 48 << 20, 4096))", 2 * shared, shared},
	} {
		n++
		leaf := fmt.Sprintf("task-%d", n)
		g := make1(t, root, leaf)
		start(t, g, "python3", "-c", c.code+"\nimport time\ntime.sleep(60)")
		var all []memlimit.Process
		var s memlimit.Sample
		const interpreters = 24 << 20 // what two of them hold by themselves
		for end := time.Now().Add(20 * time.Second); s.Hard < c.rough && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			var err error
			if all, err = root.Processes(); err != nil {
				t.Fatal(err)
			}
			memlimit.FillProcesses(&s, all)
		}
		if s.Hard < c.rough || s.Hard > c.rough+interpreters {
			t.Errorf("%s: %d MiB, want %d and a little", name, s.Hard>>20, c.rough>>20)
		}
		if len(all) == 0 || all[0].Leaf != leaf || all[0].Start == 0 || all[0].Comm == "" {
			t.Errorf("%s: %+v", name, all)
		}
		cgroup.Exact(all)
		memlimit.FillProcesses(&s, all)
		if s.Hard < c.fine || s.Hard > c.fine+interpreters {
			t.Errorf("%s, exactly: %d MiB, want %d and a little", name, s.Hard>>20, c.fine>>20)
		}
		t.Logf("%s: exactly %.1f MiB", name, float64(s.Hard)/(1<<20))
		if err := g.Kill(deadline(t)); err != nil {
			t.Fatal(err)
		}
	}
}
