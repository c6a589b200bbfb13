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
