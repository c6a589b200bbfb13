package integration_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
	"golang.org/x/sys/unix"
)

// allocation is a kind of memory, and which tiers see it.
type allocation struct {
	kind      string
	mib       uint64
	processes int
	seen      []memlimit.Tier
}

// allocations are what escape memory takes. Page cache is none: it can be had back.
func allocations() []allocation {
	all := []memlimit.Tier{memlimit.TierCgroup, memlimit.TierCgroupV1, memlimit.TierProcesses}
	pipe := []memlimit.Tier{memlimit.TierCgroupV1}
	if kernelFrom(5, 18) { // memory.stat has "kernel"
		pipe = all[:2]
	}
	return []allocation{
		{kind: "anon", mib: 64, processes: 1, seen: all},
		{kind: "huge", mib: 64, processes: 1, seen: all},
		{kind: "locked", mib: 64, processes: 1, seen: all},
		{kind: "shared", mib: 64, processes: 4, seen: all},
		{kind: "tmpfs", mib: 64, processes: 1, seen: all[:2]},
		{kind: "pipe", mib: 48, processes: 1, seen: pipe},
		{kind: "tcp", mib: 64, processes: 1, seen: all[:1]},
		{kind: "cache", mib: 64, processes: 1},
	}
}

// figure is how a tier measures what a session holds, once its processes are there.
type figure func(id string) (bytes uint64, tier memlimit.Tier)

// TestAccounting: what a session holds is told within 5 %, and what cannot be known is
// said to be so.
func TestAccounting(t *testing.T) {
	r := newRig(t)
	var unseen []string
	r.accounting(nil, func(id string) (uint64, memlimit.Tier) {
		u := r.stats(id).Usage
		unseen = u.Unseen
		if u.MemoryBytes == nil {
			t.Fatal("stats tells no memory")
		}
		return *u.MemoryBytes, memlimit.Tier(u.Source)
	}, func(a allocation) bool {
		word := map[string]string{"pipe": "pipes", "tcp": "socket", "tmpfs": "tmpfs"}[a.kind]
		return word != "" && strings.Contains(strings.Join(unseen, ", "), word)
	})
}

// TestAccountingV1: the same by the memory controller of cgroup v1, of a directory that
// the processes are alone in.
func TestAccountingV1(t *testing.T) {
	r := newRig(t)
	const top = "/sys/fs/cgroup/memory"
	if unix.Access(filepath.Join(top, "memory.stat"), unix.R_OK) != nil || unix.Access(top, unix.W_OK) != nil {
		t.Skip("the machine has no memory controller of cgroup v1 that we may use")
	}
	dir, err := os.MkdirTemp(top, "sbxtest-")
	if err != nil {
		t.Skipf("no directory in the v1 hierarchy: %v", err)
	}
	t.Cleanup(func() {
		eventually(t, "the end of "+dir, func() bool { return os.Remove(dir) == nil })
	})
	r.accounting([]string{"sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, dir}, func(string) (uint64, memlimit.Tier) {
		s, err := cgroup.OpenSampler1(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var got memlimit.Sample
		if err := s.Sample(&got); err != nil {
			t.Fatal(err)
		}
		return got.Hard + got.Swap, got.Tier
	}, func(a allocation) bool { return a.kind == "tcp" })
}

// accounting compares what is measured with what was taken. What the processes are
// themselves is measured with nothing taken, and left out.
func (r *rig) accounting(wrap []string, measure figure, said func(allocation) bool) {
	for _, a := range allocations() {
		r.t.Run(a.kind, func(t *testing.T) {
			if a.kind == "locked" && lockable() < a.mib<<20 {
				t.Skipf("RLIMIT_MEMLOCK is %d KiB", lockable()>>10)
			}
			id := r.open("holds")
			defer r.closed(id, "--now")
			r.take(a, id, 0, wrap) // with what the box itself takes for its first command
			first, _ := measure(id)
			r.take(a, id, 0, wrap)
			base, tier := measure(id)
			base += base - first // the same once more
			r.take(a, id, a.mib, wrap)
			truth := a.mib << 20
			right := base
			if slices.Contains(a.seen, tier) {
				right += truth
			}
			got, _ := measure(id)
			told := float64(got) - float64(base)
			t.Logf("%s: %+.1f MiB of %d on tier %s", a.kind, told/(1<<20), a.mib, tier)
			if diff(got, right) > truth/20 {
				t.Errorf("%d MiB of %s are measured as %.1f MiB on tier %s", a.mib, a.kind, told/(1<<20), tier)
			}
			if right == base && a.seen != nil && !said(a) {
				t.Errorf("that %s is not known on tier %s is not said", a.kind, tier)
			}
		})
	}
}

// take has a process in a session take so much, and waits until it has it. Its supervisor is
// outside: it would be measured as well, and in a guest with big pages it is now and then
// 2 MiB bigger.
func (r *rig) take(a allocation, id string, mib uint64, wrap []string) {
	r.t.Helper()
	p := r.payloads(fmt.Sprintf("%s-%s-%s", id, a.kind, tag()))
	exec := append([]string{"exec", id, "--"}, wrap...)
	c := r.start(bin(), append(exec, p.argv("memory", "--arg", fmt.Sprintf("%s:%d", a.kind, mib))...)...)
	r.t.Cleanup(func() { c.wait() })
	p.await(a.processes)
}

func diff(a, b uint64) uint64 { return max(a, b) - min(a, b) }

// lockable is how much memory a process may lock.
func lockable() uint64 {
	var l unix.Rlimit
	if os.Geteuid() == 0 {
		return unix.RLIM_INFINITY
	}
	_ = unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l) // 0 then
	return l.Cur
}

// stats is what the command tells of one session.
func (r *rig) stats(id string) session.Stats {
	r.t.Helper()
	var s session.Stats
	if err := json.Unmarshal(r.run("stats", "--no-stream", "--json", id).must(r.t, 0, "stats").stdout, &s); err != nil {
		r.t.Fatal(err)
	}
	return s
}
