package darwinjob

import (
	"cmp"
	"slices"
)

// topDown orders processes so that each comes after its parent.
//
// They are stopped in this order, as a running parent would see its child stop and go
// on; and killed in the reverse one: the exit of a parent that leaves a group with a
// stopped process behind makes the kernel send SIGHUP and SIGCONT to all of that group
// (orphanpg of bsd/kern/kern_proc.c, kill_orphaned_pgrp of kernel/exit.c).
func topDown(ms []*Member) []*Member {
	at := make(map[int]*Member, len(ms))
	for _, m := range ms {
		at[m.PID] = m
	}
	depth := make(map[int]int, len(ms))
	var of func(m *Member) int
	of = func(m *Member) int {
		if d, ok := depth[m.PID]; ok {
			return d
		}
		depth[m.PID] = 0 // also ends a circle, which a blurred listing may show
		if up := at[m.PPID]; up != nil {
			depth[m.PID] = of(up) + 1
		}
		return depth[m.PID]
	}
	for _, m := range ms {
		of(m)
	}
	sorted := slices.Clone(ms)
	slices.SortStableFunc(sorted, func(a, b *Member) int { return cmp.Compare(depth[a.PID], depth[b.PID]) })
	return sorted
}

func bottomUp(ms []*Member) []*Member {
	s := topDown(ms)
	slices.Reverse(s)
	return s
}
