package cgroup

import (
	"bytes"
	"path/filepath"
	"strconv"

	"github.com/sessionbox/sessionbox/pkg/internal/kfile"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"golang.org/x/sys/unix"
)

// Bound is the limit that the memory of g meets first: its own, one of a cgroup
// around it as far as those can be seen from here, or the machine. It is nil where
// not even the machine says what it has.
func (g *Group) Bound() *memlimit.Bound {
	var all []memlimit.Bound
	if b, ok := g.memoryMax(memlimit.BoundOwn); ok {
		all = append(all, b)
	}
	for path := filepath.Dir(g.path); g.Has("memory.max"); path = filepath.Dir(path) {
		above, err := Open(path)
		if err != nil {
			break // above the mount, or not ours to read
		}
		b, ok := above.memoryMax(filepath.Base(path))
		above.Close()
		if ok {
			all = append(all, b)
		}
	}
	if b, ok := host(); ok {
		all = append(all, b)
	}
	return memlimit.Binding(all)
}

// memoryMax is the ceiling of g, false if it has none.
func (g *Group) memoryMax(name string) (memlimit.Bound, bool) {
	limit := g.number("memory.max")
	if limit == nil {
		return memlimit.Bound{}, false
	}
	b, err := g.read("memory.stat")
	if err != nil {
		return memlimit.Bound{}, false
	}
	stat, err := memlimit.ParseStat(b)
	return memlimit.Bound{Of: name, Limit: *limit, Used: stat.Hard()}, err == nil
}

// host is the machine as a limit.
func host() (memlimit.Bound, bool) {
	b, err := kfile.ReadAt(unix.AT_FDCWD, "/proc/meminfo")
	if err != nil {
		return memlimit.Bound{}, false
	}
	total, available := meminfo(b, "MemTotal:"), meminfo(b, "MemAvailable:")
	return memlimit.Bound{Of: memlimit.BoundHost, Limit: total, Used: total - min(total, available)}, total > 0
}

// meminfo is one line of /proc/meminfo in bytes, 0 if it is not there.
func meminfo(b []byte, key string) uint64 {
	for line := range bytes.Lines(b) {
		if f := bytes.Fields(line); len(f) > 1 && string(f[0]) == key {
			kib, _ := strconv.ParseUint(string(f[1]), 10, 64)
			return kib << 10
		}
	}
	return 0
}

// Bound is that of the box; see [Group.Bound].
func (b *Box) Bound() *memlimit.Bound { return b.Top.Bound() }
