package session

import (
	"context"
	"slices"
)

// listed says which pids are accounted for by the box: in a dry run they live, else they have
// survived its kill.
func (c *closing) listed(dry bool) map[int]bool {
	pids := map[int]bool{}
	for i := range c.r.Processes {
		if p := &c.r.Processes[i]; p.Fate == FateSurvived {
			pids[p.PID] = true
		}
	}
	if dry && c.box != nil {
		members, _ := c.box.Members("") // with our own, which the receipt leaves out
		for _, m := range members {
			pids[m.PID] = true
		}
	}
	return pids
}

// look is the dry run.
func (c *closing) look(ctx context.Context) error {
	if c.box != nil {
		c.list()
		for i := range c.r.Processes {
			c.r.Processes[i].Fate = fateAlive
		}
		if u, err := c.box.Usage(""); err == nil {
			c.r.Usage = usage(u)
		}
	}
	for _, id := range c.m.children(&c.rec, c.box) {
		if r, err := c.m.closeID(ctx, id, c.inner(), false); err == nil {
			c.r.Nested = append(c.r.Nested, r)
			c.r.Processes = slices.DeleteFunc(c.r.Processes, func(p Fated) bool { // they are told once
				return slices.ContainsFunc(r.Processes, func(n Fated) bool { return sameFated(&n, &p) })
			})
		}
	}
	var problems []string
	c.r.Containers, c.r.Units, c.r.Jobs, problems = c.m.lookHired(ctx, &c.rec, true)
	c.r.Notes = append(c.r.Notes, problems...)
	if _, err := c.sweep(ctx, true); err != nil {
		c.note(err.Error())
	}
	c.r.Tasks = c.tasks()
	return nil
}
