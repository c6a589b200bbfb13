package session

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/engines"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
)

// insideTime bounds, beyond the grace, ending what an engine has that runs in the session.
const insideTime = 5 * time.Second

// stopTime bounds, beyond the grace, how long podman may take to stop a container.
const stopTime = 10 * time.Second

// endInside has the engines that run in the box remove what they have of the session, while
// they still can: when the box is empty nobody answers for them. What they make later, and what
// no file tells of, may live then, as with any engine that is gone.
func (h *hired) endInside(ctx context.Context) {
	list := h.inside()
	if len(list) == 0 {
		return
	}
	grace := h.c.grace()
	ctx, cancel := context.WithTimeout(ctx, min(grace, insideTime)+insideTime)
	defer cancel()
	l := look{m: h.c.m, rec: &h.c.rec}
	for _, e := range list {
		s, err := l.containersAt(ctx, e)
		if err != nil {
			continue
		}
		h.add(&s)
		var wg sync.WaitGroup
		for _, k := range h.containers {
			if k.known && slices.ContainsFunc(s.all, k.same) {
				wg.Go(func() {
					if k.Running && grace > 0 {
						h.stop(ctx, k, min(grace, insideTime))
					}
					h.remove(ctx, k)
				})
			}
		}
		wg.Wait()
	}
}

// inside gives the engines whose process is in the box.
func (h *hired) inside() (list []engines.Engine) {
	if h.c.box == nil {
		return nil
	}
	var members []proc.Member
	for _, e := range h.c.m.enginesOf(&h.c.rec) {
		pid := engines.Listener(e.Socket())
		if pid == 0 {
			continue
		}
		if members == nil {
			members, _ = h.c.box.Members("")
		}
		if slices.ContainsFunc(members, func(p proc.Member) bool { return p.PID == pid }) {
			list = append(list, e)
		}
	}
	return list
}

// stopStarted has podman stop the containers that are not the session's own and whose conmon is
// in the box: those that were there before and were started or restarted in it, and those of a
// session that something was kept of. A container whose conmon is killed runs on, and nobody
// can stop or remove it any more.
func (h *hired) stopStarted(ctx context.Context) {
	if h.c.box == nil || !(engines.Engine{Tool: "podman"}).There() {
		return
	}
	members, _ := h.c.box.Members("")
	var in []conmon
	for _, p := range members {
		if nestedLeaf(p.Leaf) {
			continue // of a session that is closed by itself
		}
		if c, _ := conmonIn(p.PID); c != nil {
			in = append(in, *c)
		}
	}
	if len(in) == 0 {
		return
	}
	grace := min(h.c.grace(), insideTime)
	ctx, cancel := context.WithTimeout(ctx, grace+stopTime)
	defer cancel()
	l := look{m: h.c.m, rec: &h.c.rec, cookie: h.c.rec.Cookie}
	found, _, _ := l.watched(ctx, in)
	found = slices.DeleteFunc(found, func(k *held) bool { return k.known || !k.Running })
	var wg sync.WaitGroup
	for _, k := range found {
		wg.Go(func() {
			if h.stop(ctx, k, grace); k.info.Fate != FateSuspect {
				k.info.Why = "it is not the session's own, but was started in it: stopped, and not removed"
			}
		})
	}
	wg.Wait()
	h.add(&seen{all: found, conmons: nil})
}
