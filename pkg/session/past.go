package session

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/engines"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// What went past the shims: podman's containers are proven by the process beside each, those
// of others are suspects.

// conmon is podman's process beside each container. It has the environment of the
// command that started the container, and with it the session's cookie: proof of who that
// was, whatever labels the container has.
type conmon struct {
	engine engines.Engine
	id     string
	pid    int
	cookie string
}

// conmonsOf are those that carry a session's cookie.
func conmonsOf(all []conmon, cookie string) []conmon {
	if cookie == "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(all), func(c conmon) bool { return c.cookie != cookie })
}

// joinConmons adds those of containers that are not known yet.
func joinConmons(known, now []conmon) []conmon {
	for _, n := range now {
		if !slices.ContainsFunc(known, func(k conmon) bool { return k.id == n.id }) {
			known = append(known, n)
		}
	}
	return known
}

// watched gives the containers that conmons speak for. All of one engine are asked for at
// once; what that does not tell is unsure.
func (l *look) watched(ctx context.Context, conmons []conmon) (found, unsure []*held, failed map[string]error) {
	groups := map[string][]conmon{}
	for _, c := range conmons {
		groups[c.engine.Key()] = append(groups[c.engine.Key()], c)
	}
	failed = map[string]error{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for key, group := range groups {
		wg.Go(func() {
			e := group[0].engine.Marked(l.cookie)
			ids := make([]string, len(group))
			for i := range group {
				ids[i] = group[i].id
			}
			all, err := []engines.Container(nil), l.skip[key]
			if err == nil {
				all, err = e.GetAll(ctx, ids)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed[key] = err
				for _, id := range ids {
					unsure = append(unsure, newUnsure(engines.Container{ID: id}, e, "it was started in the session, and its engine does not say by which one it was made", err))
				}
				return
			}
			for i := range all {
				found = append(found, l.started(&all[i], e))
			}
		})
	}
	wg.Wait()
	return found, unsure, failed
}

// started is a container that the session has started. That does not say that the session made
// it: an older one may be started or restarted by anybody.
func (l *look) started(c *engines.Container, e engines.Engine) *held {
	h := &held{Container: *c, engine: e}
	h.info = hiredContainer(h)
	switch owner := c.Labels[engines.LabelID]; {
	case owner != "" && owner != l.rec.ID:
		h.info.Fate, h.info.Why = FateSuspect, "it was started in the session, and has the label of another"
	case c.Created.IsZero() || l.rec.Created.IsZero():
		h.info.Fate, h.info.Why = FateSuspect, "it was started in the session, and it is not known whether it was there before"
	case c.Created.Before(l.rec.Created):
		h.info.Fate, h.info.Why = FateSuspect, "it was started in the session, and made before that was opened"
	default:
		h.known = true
	}
	return h
}

// usualTime bounds asking the docker that a session has not called.
const usualTime = 300 * time.Millisecond

// past gives the containers that engines have made since the session was opened and that no
// session has put its label on: suspects, as engines do not say who asked. patience, if not
// 0, is what each is given. An error says that one did not answer.
func (m *Manager) past(ctx context.Context, rec *store.Session, list []engines.Engine, cookie string, patience time.Duration) (all []HiredContainer, err error) {
	if !rec.Shims || len(list) == 0 || rec.Created.IsZero() {
		return nil, nil // it did not want to know, or it is not known since when
	}
	if patience > 0 {
		brief, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		ctx = brief
	}
	found, errs := make([][]engines.Container, len(list)), make([]error, len(list))
	var wg sync.WaitGroup
	for i, e := range list {
		wg.Go(func() { found[i], errs[i] = e.Marked(cookie).Since(ctx, rec.Created) })
	}
	wg.Wait()
	for i, e := range list {
		for _, f := range found[i] {
			c := hiredContainer(&held{Container: f, engine: e})
			c.Fate, c.Why = FateSuspect, "it was made since the session was opened, and not through its shims; its engine does not say by whom"
			all = append(all, notAmong([]HiredContainer{c}, all)...) // two ways may lead to one engine
		}
	}
	if err = errors.Join(errs...); err != nil {
		m.log.Debug("look for what went past the shims", "session", rec.ID, "err", err)
	}
	return all, err
}

// usualEngines is the docker that somebody may have gone to past the shims, if it runs.
func usualEngines() []engines.Engine {
	if !engines.DockerRuns() {
		return nil
	}
	return []engines.Engine{{Tool: "docker"}}
}

// notAmongEngines leaves out those that listen where one of the others does.
func notAmongEngines(all, others []engines.Engine) []engines.Engine {
	return slices.DeleteFunc(all, func(e engines.Engine) bool {
		return slices.ContainsFunc(others, func(o engines.Engine) bool { return o.Socket() == e.Socket() })
	})
}

// notAmong leaves out those that are known already.
func notAmong(all, known []HiredContainer) []HiredContainer {
	return slices.DeleteFunc(all, func(c HiredContainer) bool {
		return slices.ContainsFunc(known, func(k HiredContainer) bool { return k.ID == c.ID })
	})
}

// watching are the processes of podman beside containers that are not ended: those that have
// survived, as it is what proves to the next close whose they are, and those that are not the
// session's, which run on.
func (c *closing) watching() []int {
	conmons := conmonsOf(allConmons(), c.rec.Cookie)
	if c.hired != nil {
		c.hired.watched = joinConmons(c.hired.watched, conmons) // the others are ended now
	}
	var pids []int
	for _, w := range conmons {
		if slices.ContainsFunc(c.r.Containers, func(k HiredContainer) bool {
			return k.ID == w.id && (k.Fate == FateSurvived || k.Fate == FateSuspect)
		}) {
			pids = append(pids, w.pid)
		}
	}
	return pids
}

// look is one look at what engines have of a session.
type look struct {
	m    *Manager
	rec  *store.Session
	skip map[string]error // engines that are not asked, by key: each would cost its time again
	// cookie marks the commands that ask, "" does not: what they leave behind ends with the session
	// then.
	cookie  string
	conmons []conmon // seen before, and may have ended since
	shared  *asked   // of a look at many sessions
}

// seen is what a look has found.
type seen struct {
	all     []*held          // each is the session's, or a suspect
	unsure  []*held          // nobody could say
	failed  map[string]error // engines that were asked, by key
	conmons []conmon
}

// containers asks all engines that the session has called, and those of podman that its
// conmons name.
func (l *look) containers(ctx context.Context) seen {
	list := without(l.m.enginesOf(l.rec), l.skip)
	for i := range list {
		list[i] = list[i].Marked(l.cookie)
	}
	answers, errs := make([]seen, len(list)), make([]error, len(list))
	var started, unsure []*held
	var s seen
	var wg sync.WaitGroup
	for i := range list {
		wg.Go(func() { answers[i], errs[i] = l.containersAt(ctx, list[i]) })
	}
	wg.Go(func() {
		s.conmons = joinConmons(l.conmons, conmonsOf(l.shared.allConmons(), l.rec.Cookie))
		started, unsure, s.failed = l.watched(ctx, s.conmons)
	})
	wg.Wait()
	for i := range list {
		if errs[i] != nil {
			s.failed[list[i].Key()] = errs[i]
		}
		s.all, s.unsure = addHeld(s.all, answers[i].all), addHeld(s.unsure, answers[i].unsure)
	}
	s.all = addHeld(s.all, started)
	s.unsure = slices.DeleteFunc(addHeld(s.unsure, unsure), func(u *held) bool { return slices.ContainsFunc(s.all, u.same) })
	return s
}

// addHeld adds those that are not known yet: two ways may lead to one engine.
func addHeld(all, more []*held) []*held {
	for _, h := range more {
		if !slices.ContainsFunc(all, h.same) {
			all = append(all, h)
		}
	}
	return all
}

// containersAt asks an engine for the containers of the session, and proves each.
func (l *look) containersAt(ctx context.Context, e engines.Engine) (s seen, err error) {
	found, err := l.shared.list(ctx, e, l.rec.ID)
	if err != nil {
		return seen{}, err
	}
	for i := range found {
		h := &held{Container: found[i], engine: e}
		h.info = hiredContainer(h)
		why, err := l.m.unproven(ctx, l.rec, h)
		switch {
		case err != nil:
			s.unsure = append(s.unsure, newUnsure(found[i], e, "it cannot be told whether its labels came with its image", err))
			continue
		case why != "":
			h.info.Fate, h.info.Why = FateSuspect, why
		default:
			h.known = true
		}
		s.all = append(s.all, h)
	}
	return s, nil
}

// newUnsure is a container of which its engine does not say enough.
func newUnsure(c engines.Container, e engines.Engine, why string, err error) *held {
	h := &held{Container: c, engine: e}
	h.info = hiredContainer(h)
	h.info.Why = why + ": " + err.Error()
	return h
}
