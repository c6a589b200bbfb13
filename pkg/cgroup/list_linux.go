package cgroup

import (
	"bytes"
	"errors"
	"slices"
	"strconv"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"golang.org/x/sys/unix"
)

// Procs lists the processes directly in g. A 0 stands for one that lives in a
// pid namespace we cannot see into.
//
// A process whose leading thread has ended is listed by the kernel where that thread
// was, also when the others, all that lives of it, were moved away; in the place where
// they are it is not listed (measured on 6.18). It is listed here where its threads
// are, but among others only when those have ended.
func (g *Group) Procs() ([]int, error) {
	pids, err := g.numbers("cgroup.procs")
	// A threaded group refuses; its processes are listed by its domain, which
	// is at or above the top of any tree that a process could have made.
	if errors.Is(err, unix.EOPNOTSUPP) || isGone(err) {
		return nil, nil
	}
	if err != nil || len(pids) > fewLeft {
		return pids, err
	}
	threads, err := g.numbers("cgroup.threads")
	if err != nil || len(pids) == 0 && len(threads) == 0 {
		return pids, nil // the list of threads is more than most kernels are asked for
	}
	leads := func(pid int) bool { _, ok := slices.BinarySearch(threads, pid); return ok }
	if len(pids) > 0 && !slices.ContainsFunc(pids, func(pid int) bool { return !leads(pid) }) {
		return pids, nil
	}
	pids = slices.DeleteFunc(pids, func(pid int) bool { return !leads(pid) && proc.Elsewhere(pid) })
	if len(pids) == 0 {
		for _, tid := range threads {
			if pid, err := proc.Of(tid); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// numbers reads a list of processes or threads, sorted.
func (g *Group) numbers(file string) ([]int, error) {
	b, err := g.read(file)
	if err != nil {
		return nil, err
	}
	all := make([]int, 0, bytes.Count(b, []byte{'\n'}))
	for line := range bytes.Lines(b) {
		if n, err := strconv.Atoi(string(bytes.TrimSpace(line))); err == nil {
			all = append(all, n)
		}
	}
	slices.Sort(all) // while processes move the kernel may list one twice
	return slices.Compact(all), nil
}

// Members lists the processes of g and everything below it.
func (g *Group) Members() ([]proc.Member, error) {
	var all []proc.Member
	err := g.Walk(func(rel string, d *Group) error {
		pids, err := d.Procs()
		for _, p := range pids {
			all = append(all, proc.Member{PID: p, Leaf: rel})
		}
		return err
	})
	return all, err
}

// Walk calls fn for g ("") and every directory below it ("a", "a/b"), parents
// first. Directories that vanish meanwhile are passed over.
func (g *Group) Walk(fn func(rel string, d *Group) error) error {
	return g.walk("", fn)
}

func (g *Group) walk(rel string, fn func(string, *Group) error) error {
	if err := fn(rel, g); err != nil {
		return err
	}
	names, err := g.Children()
	if err != nil {
		if isGone(err) {
			return nil
		}
		return err
	}
	for _, name := range names {
		c, err := g.Child(name)
		if err != nil {
			if isGone(err) {
				continue
			}
			return err
		}
		sub := name
		if rel != "" {
			sub = rel + "/" + name
		}
		if c.childless { // as it was a moment ago, which is all a walk can say
			err = fn(sub, c)
		} else {
			err = c.walk(sub, fn)
		}
		c.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
