package session

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/sessionbox/sessionbox/pkg/store"
)

// waits says whether the rest of the close may wait for what others run: engines, and the
// runtime of a container, which cannot be started before what is around it was thawed.
func (c *closing) waits() bool {
	return c.rec.Shims || c.rec.Container != nil || slices.ContainsFunc(c.inside, (*closing).waits)
}

// endNested empties the boxes of the sessions inside this one, and closes those that need
// not wait for anybody.
func (c *closing) endNested(ctx context.Context) {
	for _, id := range c.m.children(&c.rec, c.box) {
		if slices.ContainsFunc(c.inside, func(n *closing) bool { return n.r.ID == id }) {
			continue
		}
		n := c.m.beginClose(ctx, id, c.inner(), false)
		if n.over || n.failed != nil || !n.waits() {
			r, err := n.complete(ctx)
			c.add(id, r, err)
		} else {
			n.bequeath() // before our own kill comes upon what was kept of it
			c.inside = append(c.inside, n)
		}
		c.lookAnew()
	}
}

// add takes over what became of a session inside. That there is none any more is no error, and
// the last time that one is closed counts.
func (c *closing) add(id string, r Receipt, err error) {
	if errors.Is(err, ErrNotFound) {
		err = nil
	} else if r.ID != "" && !r.AlreadyClosed {
		c.r.addNested(&r)
	}
	if c.nested == nil {
		c.nested = map[string]error{}
	}
	c.nested[id] = err
}

// nestedErrors are those of sessions inside that are not closed by now.
func (c *closing) nestedErrors() error {
	var failed error
	for _, id := range slices.Sorted(maps.Keys(c.nested)) {
		if err := c.nested[id]; err != nil {
			if _, gone := c.m.store.Get(id); !errors.Is(gone, store.ErrNotFound) { // else by somebody else
				failed = errors.Join(failed, err)
			}
		}
	}
	return failed
}

// completeNested closes those that had to wait, each with its own receipt.
func (c *closing) completeNested(ctx context.Context) error {
	for _, n := range c.inside {
		r, err := n.complete(ctx)
		if len(r.Survivors) > 0 && c.failed == nil { // our own kill may have helped
			c.add(n.rec.ID, r, nil)
			r, err = c.m.closeID(context.WithoutCancel(ctx), n.rec.ID, c.inner(), false)
		}
		c.add(n.rec.ID, r, err)
		c.oneLook(false)
	}
	c.inside = nil
	return c.nestedErrors()
}

// inner says how a session inside this one is closed: whoever owns it, and whatever
// becomes of the reason to close this one meanwhile.
func (c *closing) inner() CloseOptions {
	o := c.o
	o.Generation, o.only, o.nested, o.Forget = 0, nil, true, false
	if o.around == nil && c.box != nil {
		o.around = &Session{m: c.m, rec: c.rec, box: c.box}
	}
	return o
}
