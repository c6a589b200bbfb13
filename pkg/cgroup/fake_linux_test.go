package cgroup

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// fakeBox is a box whose top directory is a plain one with those files, as the memory
// controller may not be here. What is around it is no cgroup.
func fakeBox(t *testing.T, files map[string]string) *Box {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	g := &Group{dir: f, path: dir}
	return &Box{Top: g, Work: g}
}

const noEvents = "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n"

// TestTallyOfBox: the counters of a box, and what is not its own of them.
func TestTallyOfBox(t *testing.T) {
	events := func(oom, kills string) string {
		return "low 0\nhigh 0\nmax 9\noom " + oom + "\noom_kill " + kills + "\noom_group_kill 0\n"
	}
	b := fakeBox(t, map[string]string{"memory.events": events("2", "3"), "memory.events.local": events("2", "0"), "memory.peak": "4096\n"})
	y := b.Tally("", memlimit.Mark{}, true)
	if y.OOM == nil || y.OOM.Processes != 3 || !y.OOM.Sure || y.OOM.Limit.Kind != memlimit.KindAncestor || y.Shared {
		t.Errorf("%+v, %+v", y, y.OOM)
	}
	if y.PeakBytes == nil || *y.PeakBytes != 4096 {
		t.Errorf("the peak is %v", y.PeakBytes)
	}
	m := b.Mark(true)
	if m.Kills != 3 || m.OOMs[b.Top.path] != 2 || len(m.OOMs) != 1 {
		t.Errorf("the mark is %+v", m)
	}
	if own := b.Mark(false); own.Kills != m.Kills || own.OOMs[b.Top.path] != 2 {
		t.Errorf("the box's own mark is %+v", own)
	}
	// Its limit was not hit since: then it was somebody's that is not seen from here.
	y = b.Tally("", m, false)
	if y.OOM == nil || y.OOM.Limit.Kind != memlimit.KindHost || y.OOM.Sure {
		t.Errorf("after the mark: %+v", y.OOM)
	}
	for name, files := range map[string]map[string]string{
		"nothing happened":       {"memory.events": noEvents, "memory.events.local": noEvents},
		"without the controller": {},
		"events of another mind": {"memory.events": "oom_kill many\n"},
	} {
		b := fakeBox(t, files)
		if y := b.Tally("", memlimit.Mark{}, true); y.OOM != nil || y.PeakBytes != nil {
			t.Errorf("%s: %+v", name, y)
		}
		if m := b.Mark(true); !m.Zero() {
			t.Errorf("%s: mark %+v", name, m)
		}
		if y := b.Tally("task-1", memlimit.Mark{}, true); y.OOM != nil {
			t.Errorf("%s: of a task that is not there %+v", name, y.OOM)
		}
	}
}

// TestReclaimOfBox: why a box stays in memory, and that it is asked for in steps.
func TestReclaimOfBox(t *testing.T) {
	const frozen, thawed = "populated 1\nfrozen 1\n", "populated 1\nfrozen 0\n"
	files := func(state, anon string, reclaim bool) map[string]string {
		m := map[string]string{"cgroup.events": state, "cgroup.freeze": "0\n", "memory.current": "200000000\n",
			"memory.stat": "anon " + anon + "\nshmem 0\n", "memory.swap.current": "4096\n", "memory.swap.max": "max\n", "memory.max": "max\n"}
		if reclaim {
			m["memory.reclaim"] = ""
		}
		return m
	}
	noSwap := files(frozen, "100000000", true)
	noSwap["memory.swap.max"] = "0\n"
	gone, stop := context.WithCancel(t.Context())
	stop()
	for name, c := range map[string]struct {
		ctx   context.Context
		files map[string]string
		why   string
	}{
		"without the controller": {t.Context(), map[string]string{"cgroup.events": frozen}, memlimit.WhyNoController},
		"without memory.reclaim": {t.Context(), files(frozen, "100000000", false), memlimit.WhyNoReclaim},
		"nothing held":           {t.Context(), files(frozen, "4096", true), memlimit.WhyDone},
		"thawed":                 {t.Context(), files(thawed, "100000000", true), memlimit.WhyThawed},
		"broken off":             {gone, files(frozen, "100000000", true), memlimit.WhyBrokenOff},
		"no room in swap":        {t.Context(), noSwap, "swap"},
	} {
		b := fakeBox(t, c.files)
		r, err := b.Reclaim(c.ctx)
		if err != nil || !strings.Contains(r.Why, c.why) {
			t.Errorf("%s: %+v, %v; want %q", name, r, err, c.why)
		}
		if r.Complete() != (c.why == memlimit.WhyDone) || r.Bytes() != 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestOOMGroupOfBox: what was asked for is read back, and a box without the controller
// says so.
func TestOOMGroupOfBox(t *testing.T) {
	b := fakeBox(t, map[string]string{"memory.oom.group": "0\n", "memory.events": noEvents, "cgroup.subtree_control": "cpu memory\n"})
	if err := b.OOMGroup("", true); err != nil {
		t.Error(err)
	}
	if !b.LeafMemory() {
		t.Error("the controller reaches down to the leaves")
	}
	b = fakeBox(t, map[string]string{"cgroup.subtree_control": "cpu\n"})
	if err := b.OOMGroup("", true); !isGone(err) {
		t.Errorf("without the controller: %v", err)
	}
	if b.LeafMemory() {
		t.Error("the controller does not reach down to the leaves")
	}
}
