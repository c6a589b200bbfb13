package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/scope"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// stepOut takes the calling process out of the session it is about to close,
// if it runs inside: else the kill would end the one who reports it. The rest of
// what runs in the session, our own parent included, is ended as asked.
func (c *closing) stepOut(ctx context.Context, id string) error {
	own := ownSession() // a lineage box needs no stepping out
	if !slices.Contains(own, id) {
		return nil
	}
	rec, _, err := c.m.load(id)
	if err != nil {
		return c.m.lookupError(id, err)
	}
	if rec.Kind == store.KindLineage {
		return nil // the box itself spares who closes it
	}
	var tried []error
	if rec.Kind == store.KindSystemd {
		err := scope.LeaveBox(ctx, own[:slices.Index(own, id)], id)
		if err == nil && !slices.Contains(ownSession(), id) {
			return nil
		}
		tried = append(tried, err)
	}
	err = leaveByHand(rec.Path)
	if err == nil && !slices.Contains(ownSession(), id) {
		return nil
	}
	return &Error{Kind: ErrPermission, Session: id, Text: "cannot leave the session to close it from inside",
		Err: errors.Join(append(tried, err)...), Hint: "close it from a shell outside"}
}

// leaveByHand moves the calling process to a directory above the box. One that
// has controllers enabled for its children takes no process; as the last resort
// a leaf beside the box does.
func leaveByHand(box string) error {
	mount, err := cgroup.FindMount()
	if err != nil {
		return err
	}
	var tried []error
	for dir := filepath.Dir(box); len(dir) >= len(mount.Point); dir = filepath.Dir(dir) {
		err := enterDir(dir)
		if err == nil {
			return nil
		}
		tried = append(tried, err)
	}
	base, err := cgroup.Open(filepath.Dir(box))
	if err != nil {
		return errors.Join(append(tried, err)...)
	}
	defer base.Close()
	leaf, err := base.Ensure(fmt.Sprintf("%s%d", closerPrefix, os.Getpid()))
	if err != nil {
		return errors.Join(append(tried, err)...)
	}
	defer leaf.Close()
	return leaf.Enter()
}

// closerPrefix names the leaves of closers that came from inside. A process
// cannot remove the directory it is in, so a later close does.
const closerPrefix = "closer-"

func enterDir(dir string) error {
	g, err := cgroup.Open(dir)
	if err != nil {
		return err
	}
	defer g.Close()
	return g.Enter()
}

// sweepUp removes what is left beside a box made by mkdir once it is gone: the
// leaves of earlier closers, and the directory of all boxes if it is empty.
func (c *closing) sweepUp() {
	base, err := cgroup.Open(filepath.Dir(c.box.Path()))
	if err != nil {
		return
	}
	defer base.Close()
	names, err := base.Children()
	if err != nil {
		return
	}
	done, cancel := context.WithCancel(context.Background())
	cancel() // one try each: a closer that is at work stays
	for _, n := range names {
		if len(n) > len(closerPrefix) && n[:len(closerPrefix)] == closerPrefix {
			if g, err := base.Child(n); err == nil {
				g.Remove(done)
				g.Close()
			}
		}
	}
	if c.rec.Kind == store.KindCgroup && filepath.Base(base.Path()) == cgroup.Base {
		base.RemoveEmpty() // whoever opens the next session makes it again
	}
}
