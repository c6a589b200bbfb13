package cgroup

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// limitFiles are the ceilings that are known here.
var limitFiles = [...]string{"memory.max", "memory.high", "memory.swap.max", "pids.max"}

// SetLimits writes the ceilings that r sets and reads all of them back. A
// control that does not exist here is no error: the ceiling is not in force,
// and the answer says so. A value that the kernel refuses is one.
func (g *Group) SetLimits(r *specs.LinuxResources) ([]memlimit.Ceiling, error) {
	want, err := memlimit.FromOCI(r)
	if err != nil {
		return nil, err
	}
	files, err := want.Files()
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if !g.Has(f.Name) {
			continue
		}
		// The controller may be taken away between the two.
		if err := g.write(f.Name, f.Value); err != nil && !isGone(err) {
			return nil, err
		}
	}
	return g.Ceilings(want)
}

// Ceilings reads the ceilings and compares them with what is wanted.
func (g *Group) Ceilings(want memlimit.Limits) ([]memlimit.Ceiling, error) {
	got, err := g.Limits()
	if err != nil {
		return nil, err
	}
	return memlimit.Ceilings(want, got), nil
}

// Limits reads the ceilings; one whose control is not here is not set.
func (g *Group) Limits() (memlimit.Limits, error) {
	var files []memlimit.File
	for _, name := range limitFiles {
		b, err := g.read(name)
		if isGone(err) {
			continue
		}
		if err != nil {
			return memlimit.Limits{}, err
		}
		files = append(files, memlimit.File{Name: name, Value: strings.TrimSpace(string(b))})
	}
	return memlimit.FromFiles(files)
}

// EnableControllers lets the directories below g have the controllers that are
// wanted here, memory and pids, and those named, as far as g has them. The kernel refuses where
// g itself holds processes (EBUSY); moving them is not ours to do, so the error
// says which ceilings will not be in force below and nothing was changed.
func (g *Group) EnableControllers(also ...string) error {
	have, err := g.read("cgroup.controllers")
	if err != nil {
		return err
	}
	on, err := g.read("cgroup.subtree_control")
	if err != nil {
		return err
	}
	var failed error
	for _, c := range append([]string{"memory", "pids"}, also...) {
		if hasWord(have, c) && !hasWord(on, c) {
			failed = errors.Join(failed, g.write("cgroup.subtree_control", "+"+c))
		}
	}
	return failed
}

func hasWord(b []byte, word string) bool {
	return slices.Contains(strings.Fields(string(b)), word)
}

// HasUnit says whether the directory holds a unit of systemd's for its session:
// a box made by mkdir has only leaves.
func (g *Group) HasUnit() bool {
	names, err := g.Children()
	if err != nil {
		return false
	}
	for _, n := range names {
		if strings.HasSuffix(n, "-main.service") || strings.HasSuffix(n, "-main.scope") {
			return true
		}
	}
	return false
}

// Controllers names what this cgroup could limit.
func (g *Group) Controllers() ([]string, error) {
	b, err := g.read("cgroup.controllers")
	return strings.Fields(string(b)), err
}

// HostMemory is the size of this machine's memory and swap in bytes, 0 where it
// cannot be told.
func HostMemory() memlimit.Totals {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return memlimit.Totals{}
	}
	var t memlimit.Totals
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, err := strconv.ParseUint(f[1], 10, 64)
		if err != nil {
			continue
		}
		switch f[0] {
		case "MemTotal:":
			t.Memory = n << 10
		case "SwapTotal:":
			t.Swap = n << 10
		}
	}
	if b, err := os.ReadFile("/proc/sys/kernel/pid_max"); err == nil {
		t.Pids, _ = strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	}
	return t
}
