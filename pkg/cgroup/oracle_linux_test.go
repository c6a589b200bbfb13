package cgroup_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/testcgroup"
)

// containerd's library reads the same files by path. It is not linked into the
// program, where it would double the time of a start (1.2 ms and 5 MB, for
// protobuf and eBPF); here it says whether we read them right.
func TestFiguresAgreeWithContainerd(t *testing.T) {
	g := testcgroup.Root(t)
	leaf := make1(t, g, "leaf")
	start(t, leaf, "sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 600 & exec sleep 600")
	await(t, func() bool { m, _ := leaf.Members(); return len(m) == 2 })

	m, err := cgroup.FindMount()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := cgroup2.Load(strings.TrimPrefix(leaf.Path(), m.Point), cgroup2.WithMountpoint(m.Point))
	if err != nil {
		t.Fatal(err)
	}
	procs, err := theirs.Procs(true)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := leaf.Procs()
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, p := range procs {
		pids = append(pids, int(p))
	}
	slices.Sort(pids)
	if !slices.Equal(pids, ours) {
		t.Errorf("Procs = %v, containerd says %v", ours, pids)
	}

	stat, err := theirs.StatFiltered(cgroup2.StatMemory | cgroup2.StatMemoryEvents | cgroup2.StatPids | cgroup2.StatCPU)
	if err != nil {
		t.Fatal(err)
	}
	u, err := leaf.Usage()
	if err != nil {
		t.Fatal(err)
	}
	if u.CPU == nil || stat.GetCPU() == nil {
		t.Fatalf("no CPU time: %v, containerd %v", u.CPU, stat.GetCPU())
	}
	if usec := stat.GetCPU().UsageUsec; u.CPU.Microseconds() < int64(usec) || u.CPU.Microseconds() > int64(usec)+1e6 {
		t.Errorf("CPU = %v, containerd said %d µs just before", u.CPU, usec)
	}
	if leaf.Has("pids.current") && *u.Pids != stat.GetPids().Current {
		t.Errorf("Pids = %d, containerd says %d", *u.Pids, stat.GetPids().Current)
	}
	if leaf.Has("memory.stat") {
		mem := stat.GetMemory()
		if hard := mem.Anon + mem.Shmem + mem.KernelStack; *u.MemoryBytes < hard/2 || *u.MemoryBytes > mem.Usage {
			t.Errorf("MemoryBytes = %d, containerd says anon %d of %d in use", *u.MemoryBytes, mem.Anon, mem.Usage)
		}
	}
}
