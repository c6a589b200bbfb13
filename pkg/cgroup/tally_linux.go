package cgroup

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// Mark is what was counted of want of memory in the box by now, and if that is wanted
// in all that is around it.
func (b *Box) Mark(around bool) memlimit.Mark {
	var m memlimit.Mark
	path := []counted{}
	if around {
		path = b.around(b.Top)
	} else if c, ok := b.Top.counts(); ok {
		c.path = b.Top.path
		path = append(path, c)
	}
	for i, c := range path {
		if i == 0 {
			m.Kills = c.After.OOMKill
		}
		if n := c.ooms(); n > 0 {
			if m.OOMs == nil {
				m.OOMs = map[string]uint64{}
			}
			m.OOMs[c.path] = n
		}
	}
	return m
}

// Tally reads what is known of the box or a leaf as long as it is there. Of want of
// memory it counts what came since the mark; without counters of its own, because the
// controller does not reach down to it, those of the box stand in for a leaf's.
//
// Who was killed is in the kernel's log, which is read if that is wanted and may be.
func (b *Box) Tally(leaf string, since memlimit.Mark, who bool) memlimit.Tally {
	var t memlimit.Tally
	g, done, err := b.group(leaf)
	if err != nil {
		return t
	}
	defer done()
	t.PeakBytes = g.number("memory.peak") // 5.19
	own := leaf == "" || g.Has("memory.events")
	if !own {
		g = b.Top
	}
	before := uint64(0)
	if !own {
		before = since.Kills
	}
	kills, ok := g.kills()
	t.Counted, t.Shared = ok, !own
	if kills <= before {
		return t // as nearly always: what is around it need not be read
	}
	path := b.around(g)
	if len(path) == 0 {
		return t
	}
	path[0].Before.OOMKill = before
	counts := make([]memlimit.Counts, 0, len(path)+1)
	for i := range path {
		c := &path[i]
		c.Before.OOM, c.LocalBefore.OOM = since.OOMs[c.path], since.OOMs[c.path]
		counts = append(counts, c.Counts)
	}
	// What has counters is no root: there is more around it.
	machine := memlimit.Place{Kind: memlimit.KindHost, Name: "this host", Hidden: path[len(path)-1].highest}
	kill, killed := memlimit.WhoseLimit(append(counts, memlimit.Counts{Place: machine}))
	if !killed {
		return t
	}
	t.OOM = &kill
	if who && own {
		b.ask(g.path, path, machine, &kill)
	}
	return t
}

// ask takes from the kernel's log who was killed below a directory and for whose limit.
func (b *Box) ask(dir string, path []counted, machine memlimit.Place, k *memlimit.Kill) {
	mount, err := FindMount()
	if err != nil {
		return
	}
	log, err := readKernelLog()
	if err != nil {
		return // kernel.dmesg_restrict: most users may not
	}
	pids := initPIDs()
	for _, l := range log {
		if _, ok := below(l.task, mount, dir); !ok {
			continue
		}
		v := memlimit.Victim{Comm: l.comm}
		if pids {
			v.PID = l.pid
		}
		k.Victims = append(k.Victims, v)
		k.Limit, k.Sure = machine, true
		k.Limit.Hidden = false
		if l.limit == "" {
			continue // of the whole machine
		}
		k.Limit = memlimit.Place{Kind: memlimit.KindAncestor, Name: filepath.Base(l.limit)}
		for i := range path {
			if rel, ok := below(l.limit, mount, path[i].path); ok && rel == "" {
				k.Limit = path[i].Place
			}
		}
	}
	k.Processes = max(k.Processes, uint64(len(k.Victims)))
}

// below gives what is left of a cgroup's path, as the kernel's log has it, after that of
// a directory that we see. In a cgroup namespace only the end of the latter is seen.
func below(cgroup string, m Mount, dir string) (rel string, ok bool) {
	seen, ok := strings.CutPrefix(dir, strings.TrimSuffix(m.Point, "/"))
	if !ok || seen == "" {
		return "", false
	}
	_, rel, ok = strings.Cut(cgroup, seen)
	return rel, ok && (rel == "" || rel[0] == '/')
}

// counted is a directory with its counters.
type counted struct {
	memlimit.Counts
	path string
	// highest: there are cgroups around it that we do not see.
	highest bool
}

// ooms is how often memory ran out at its own limit.
func (c *counted) ooms() uint64 {
	if c.HasLocal {
		return c.LocalAfter.OOM
	}
	return c.After.OOM
}

// around reads the counters of g and of all around it, from the inside out, as far as
// the memory controller reaches and can be seen.
func (b *Box) around(g *Group) []counted {
	c, ok := g.counts()
	if !ok {
		return nil
	}
	c.Place, c.path = b.place(g.path), g.path
	path := []counted{c}
	for dir := filepath.Dir(g.path); ; dir = filepath.Dir(dir) {
		at, err := Open(dir)
		if err != nil { // above the mount, or not ours to read
			path[len(path)-1].highest = true
			return path
		}
		c, ok := at.counts()
		at.Close()
		if !ok {
			return path // the root of the hierarchy has none
		}
		c.Place, c.path = b.place(dir), dir
		path = append(path, c)
	}
}

// counts reads the counters of g; not ok without the memory controller.
func (g *Group) counts() (c counted, ok bool) {
	text, err := g.read("memory.events")
	if err != nil {
		return c, false
	}
	if c.After, err = memlimit.ParseEvents(text); err != nil {
		return c, false
	}
	if text, err := g.read("memory.events.local"); err == nil { // 5.2
		c.LocalAfter, err = memlimit.ParseEvents(text)
		c.HasLocal = err == nil
	}
	return c, true
}

// kills is how many were killed in g and below; not ok without the memory controller.
func (g *Group) kills() (n uint64, ok bool) {
	text, err := g.read("memory.events")
	if err != nil {
		return 0, false
	}
	e, err := memlimit.ParseEvents(text)
	return e.OOMKill, err == nil
}

// place says what a directory in or around the box is called.
func (b *Box) place(dir string) memlimit.Place {
	name := filepath.Base(dir)
	ids, isBox := SliceIDs(name)
	switch {
	case isBox:
		id := ids[len(ids)-1]
		return memlimit.Place{Kind: memlimit.KindSession, Name: id, Session: id}
	case slices.Contains(b.workNames(), name): // systemd's unit in the box
		return b.place(b.Top.path)
	case strings.HasPrefix(dir, b.Top.path+"/"):
		return memlimit.Place{Kind: memlimit.KindTask, Name: name}
	}
	return memlimit.Place{Kind: memlimit.KindAncestor, Name: name}
}
