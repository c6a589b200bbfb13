package cgroup

import (
	"strconv"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// Usage reads the figures of g with all below it. What the kernel does not
// count here stays nil; without the memory controller the memory of the
// processes is added up instead, and Tier says so.
func (g *Group) Usage() (memlimit.Usage, error) {
	var u memlimit.Usage
	if cpu, ok := g.CPU(); ok {
		u.CPU = &cpu
	}
	if b, err := g.read("memory.pressure"); err == nil { // there without the controller, too
		if percent, ok := memlimit.Avg10(b); ok {
			u.Pressure = &percent
		}
	}
	u.Pids = g.number("pids.current")
	b, err := g.read("memory.stat")
	if isGone(err) {
		return u, g.addUp(&u)
	}
	if err != nil {
		return u, err
	}
	u.Tier = memlimit.TierCgroup
	stat, err := memlimit.ParseStat(b)
	if err != nil {
		return u, err
	}
	hard := stat.Hard()
	u.MemoryBytes, u.Unseen = &hard, stat.Unseen()
	u.PeakBytes = g.number("memory.peak") // 5.19
	u.SwapBytes = g.number("memory.swap.current")
	if b, err := g.read("memory.events"); err == nil {
		if ev, err := memlimit.ParseEvents(b); err == nil {
			u.OOMKills = &ev.OOMKill
		}
	}
	return u, nil
}

// CPU is the processor time that g, with all below it, has used; false when it cannot be read.
func (g *Group) CPU() (time.Duration, bool) {
	b, err := g.read("cpu.stat")
	if err != nil {
		return 0, false
	}
	usec, ok := flatKey(b, "usage_usec")
	return time.Duration(usec) * time.Microsecond, ok
}

// addUp sums over the processes.
func (g *Group) addUp(u *memlimit.Usage) error {
	var all []memlimit.Process
	if p, err := g.Populated(); err != nil || p {
		if all, err = g.Processes(); err != nil {
			return err
		}
	}
	Exact(all)
	var s memlimit.Sample
	memlimit.FillProcesses(&s, all)
	sum := s.Hard + s.Swap
	u.Tier, u.MemoryBytes, u.Unseen = memlimit.TierProcesses, &sum, memlimit.UnseenInProcesses()
	if u.Pids == nil {
		n := uint64(len(all))
		u.Pids = &n
	}
	return nil
}

// number reads a file of one number, nil when it is not there or says "max".
func (g *Group) number(file string) *uint64 {
	b, err := g.read(file)
	if err != nil {
		return nil
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

// flatKey reads one value of a file of "key value" lines.
func flatKey(b []byte, key string) (value uint64, ok bool) {
	memlimit.ScanFlat(b, func(k []byte, v uint64) {
		if string(k) == key {
			value, ok = v, true
		}
	})
	return value, ok
}
