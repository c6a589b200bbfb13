package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/engines"
	"github.com/sessionbox/sessionbox/pkg/internal/shim"
)

// hired is what a close does about what others started for the session.
type hired struct {
	c     *closing
	wg    sync.WaitGroup
	begun time.Time

	mu         sync.Mutex
	containers []*held
	unsure     []*held
	units      []UnitInfo
	jobs       []JobInfo
	watched    []conmon         // all that were seen: each may be ended as a stray
	elsewhere  []HiredContainer // made where nobody was called
	deaf       bool             // who has those did not answer
	hanging    map[string]error // engines that hung, by key: each would cost its time again
	silent     map[string]error // those, and who did not answer in the finish under way
	said       []string         // notes of the last finish
	dialled    bool             // the manager was tried that did not answer a moment ago
}

// beginTime is how long beyond the grace engines may take while the box is being emptied.
const beginTime = 25 * time.Second

// moment is how long a session has to be open, or a close to take, for it to be worth asking
// an engine that nobody has called: nobody makes a container in less.
const moment = 100 * time.Millisecond

// beginHired asks all to end while the processes in the box are asked: nothing waits for it.
// It ends with ctx.
func (c *closing) beginHired(ctx context.Context) *hired {
	h := &hired{c: c, begun: time.Now(), hanging: map[string]error{}, silent: map[string]error{}}
	h.units = c.m.unitsOf(&c.rec)
	grace := c.grace()
	h.endInside(ctx)
	h.stopStarted(ctx)
	h.wg.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, grace+min(beginTime, math.MaxInt64-grace))
		defer cancel()
		l := look{m: c.m, rec: &c.rec, skip: maps.Clone(h.hanging), cookie: c.rec.Cookie}
		s := l.containers(ctx)
		h.add(&s)
		if ctx.Err() == nil { // else they may just be slow
			h.mute(s.failed)
		}
		if grace == 0 {
			return
		}
		var wg sync.WaitGroup
		for _, k := range s.all {
			if k.known && k.Running {
				wg.Go(func() { h.stop(ctx, k, grace) })
			}
		}
		wg.Wait()
	})
	h.wg.Go(func() { h.endUnits(ctx) })
	if time.Since(c.rec.Created) > moment {
		h.wg.Go(func() { h.lookElsewhere(ctx) })
	}
	return h
}

// lookElsewhere looks for what somebody made past the shims, where the session has called
// nobody.
func (h *hired) lookElsewhere(ctx context.Context) {
	rec := &h.c.rec
	found, err := h.c.m.past(ctx, rec, notAmongEngines(usualEngines(), h.c.m.enginesOf(rec)), rec.Cookie, usualTime)
	h.elsewhere = append(h.elsewhere, notAmong(found, h.elsewhere)...)
	h.deaf = err != nil
}

// mute remembers who hung. One that refuses, or is not there, costs nothing to be asked again.
func (h *hired) mute(failed map[string]error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, err := range failed {
		if errors.Is(err, context.DeadlineExceeded) {
			h.hanging[key] = err
		}
	}
}

// add takes over what a look has found, once. Who nobody could speak for stays unsure until the
// engine is heard.
func (h *hired) add(s *seen) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watched = joinConmons(h.watched, s.conmons)
	h.containers = addHeld(h.containers, s.all)
	unsure := slices.Clone(s.unsure)
	for _, u := range h.unsure {
		if s.failed[u.engine.Key()] != nil || h.hanging[u.engine.Key()] != nil {
			unsure = addHeld(unsure, []*held{u})
		}
	}
	h.unsure = slices.DeleteFunc(unsure, func(u *held) bool { return slices.ContainsFunc(h.containers, u.same) })
}

func (h *hired) stop(ctx context.Context, k *held, grace time.Duration) {
	killed, err := k.engine.Stop(ctx, &k.Container, grace)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		h.hanging[k.engine.Key()] = err
	case err != nil && !errors.Is(err, engines.ErrGone): // it is killed below
	case killed:
		k.info.Fate = FateKilled
	default:
		k.info.Fate = FateEnded
	}
}

const (
	// listPasses bounds how often engines are asked for what is left.
	listPasses = 5
	// recent is how long before the kill of the box a call to an engine may be under way
	// still, on the engine's side, and settle how long that is waited for.
	recent = 10 * time.Second
	settle = 300 * time.Millisecond
	// hurryTime is how long a close that is told to hurry still asks others.
	hurryTime = time.Second
	// removers bounds how many containers are removed at once: one engine does not do it
	// faster for more, and each is waited for.
	removers = 8
)

// hurried is a context that outlives ctx by hurryTime: what answers at once is still asked.
func hurried(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-longer.Done():
		case <-time.After(hurryTime):
			cancel()
		}
	})
	return longer, func() { stop(); cancel() }
}

// finish ends what is left when the box is empty. It says in the receipt what became of
// everything, and gives an error if something is known to be left, or may be. When ctx ends it
// is cut short: who was not heard may have something.
//
// It may be called again, when somebody was ended who may have asked for more meanwhile: all
// are asked again but those who hung, and what it says takes the place of what it said before.
func (h *hired) finish(ctx context.Context) error {
	c := h.c
	ctx, cancel := hurried(ctx)
	defer cancel()
	h.wg.Wait() // it is bounded by the grace
	c.r.Notes = slices.DeleteFunc(c.r.Notes, func(n string) bool { return slices.Contains(h.said, n) })
	h.said = nil
	var wg sync.WaitGroup
	wg.Go(func() { h.leftUnits(ctx) })
	wg.Go(func() { h.jobs = joinJobs(h.jobs, c.m.endJobs(ctx, &c.rec, false)) })
	h.removeContainers(ctx)
	c.r.Containers = h.fates()
	past, _ := c.m.past(ctx, &c.rec, without(c.m.enginesOf(&c.rec), h.silent), c.rec.Cookie, 0)
	if !h.deaf && time.Since(h.begun) > moment {
		h.lookElsewhere(ctx)
	}
	for _, more := range [][]HiredContainer{past, h.elsewhere} {
		c.r.Containers = append(c.r.Containers, notAmong(slices.Clone(more), c.r.Containers)...)
	}
	wg.Wait()
	c.r.Units, c.r.Jobs = slices.Clone(h.units), slices.Clone(h.jobs)
	left := c.r.hiredLeft()
	if left == 0 {
		return nil
	}
	return &Error{Kind: ErrSurvivors, Session: c.name(), Text: fmt.Sprintf("%d of what others started for it could not be ended (containers, units, jobs)", left),
		Hint: "the receipt names them; close again when the engine or manager answers, or `sessionbox close --forget` if it never will", Retry: true}
}

// fates say what became of containers, and of those that nobody could speak for: they may live.
func (h *hired) fates() (all []HiredContainer) {
	left := map[string]bool{} // engines of which something is told already
	tell := func(e engines.Engine, info HiredContainer) {
		all = append(all, info)
		if info.Fate == FateSurvived {
			left[e.Key()] = true
		}
	}
	for _, k := range h.containers {
		tell(k.engine, k.info)
	}
	for _, k := range h.unsure {
		info := k.info
		info.Fate = FateSurvived
		tell(k.engine, info)
	}
	dir := h.c.m.shimDir(&h.c.rec)
	for _, made := range dir.Made() {
		err := h.silent[made.Engine.Key()]
		if err == nil || slices.ContainsFunc(all, func(c HiredContainer) bool { return c.ID == made.ID }) {
			continue
		}
		info := hiredContainer(&held{Container: engines.Container{ID: made.ID}, engine: made.Engine})
		info.Fate, info.Why = FateSurvived, "it may live, its engine does not answer: "+err.Error()
		tell(made.Engine, info)
	}
	for _, e := range h.c.m.enginesOf(&h.c.rec) {
		err := h.silent[e.Key()]
		if err == nil || left[e.Key()] || !mayHave(dir, &e, err) {
			continue
		}
		info := hiredContainer(&held{engine: e})
		info.Fate, info.Why = FateSurvived, "what the session made there may live, it does not answer: "+err.Error()
		all = append(all, info)
	}
	return all
}

// mayHave says whether an engine that was not heard may have something that no file tells of:
// if it hangs, what it was asked for before it did; if it refuses or is not there, what
// was made without a file, as by compose. One that has never answered has nothing, or it is a
// call of just now.
func mayHave(dir shim.Dir, e *engines.Engine, err error) bool {
	hangs := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	switch {
	case dir.Answered(e):
		return hangs || dir.Blind(e)
	case lost(dir): // the files are, and the engine is a guess
		return hangs || e.Tool == "docker" && engines.DockerRuns()
	}
	return hangs && inFlight(dir)
}

// commanded says whether engines were asked by their commands.
func (h *hired) commanded() bool {
	return len(h.watched) > 0 || slices.ContainsFunc(h.c.m.enginesOf(&h.c.rec), func(e engines.Engine) bool { return e.Socket() == "" })
}

// inFlight says whether a call to an engine may be under way still, on the engine's side.
func inFlight(dir shim.Dir) bool { return time.Since(time.Unix(0, dir.Used())) < recent }

// hiredLeft counts what others started, and that has survived.
func (r *Receipt) hiredLeft() (left int) {
	count := func(fate string) {
		if fate == FateSurvived {
			left++
		}
	}
	for i := range r.Containers {
		count(r.Containers[i].Fate)
	}
	for i := range r.Units {
		count(r.Units[i].Fate)
	}
	for i := range r.Jobs {
		count(r.Jobs[i].Fate)
	}
	return left
}

// joinJobs is what was removed before, then what is found now.
func joinJobs(before, now []JobInfo) []JobInfo {
	removed := slices.DeleteFunc(slices.Clone(before), func(b JobInfo) bool {
		return b.Fate != FateRemoved || slices.ContainsFunc(now, func(n JobInfo) bool { return n.Kind == b.Kind && n.ID == b.ID && n.Line == b.Line })
	})
	return append(removed, now...)
}

// removeContainers removes what there is, and notes which engines did not answer.
func (h *hired) removeContainers(ctx context.Context) {
	c := h.c
	inFlight := inFlight(c.m.shimDir(&c.rec))
	h.silent = maps.Clone(h.hanging) // nobody adds any more
	for pass := range listPasses {
		l := look{m: c.m, rec: &c.rec, skip: h.silent, cookie: c.rec.Cookie, conmons: h.watched}
		s := l.containers(ctx)
		h.mute(s.failed)
		maps.Copy(h.silent, s.failed)
		h.add(&s)
		again := h.removeAll(ctx, s.all)
		if !again && (!inFlight || pass > 0) {
			break
		}
		if !again { // who was killed in the middle of asking may have been heard
			select {
			case <-ctx.Done():
			case <-time.After(settle):
			}
		}
	}
	for _, text := range couldNotAsk(h.silent) {
		h.said = append(h.said, text) // the next finish may say otherwise
		c.note(text)
	}
}

// couldNotAsk names the engines that did not answer.
func couldNotAsk(failed map[string]error) []string {
	var all []string
	for _, err := range failed {
		all = append(all, "could not ask: "+err.Error())
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// removeAll removes those that are the session's: what an engine has just named, and what
// it named before and is not known to be gone. It says whether there were any.
func (h *hired) removeAll(ctx context.Context, found []*held) bool {
	var wg sync.WaitGroup
	places := make(chan struct{}, removers)
	any := false
	for _, k := range h.containers { // nobody adds any more
		if !k.known || h.hung(k) || k.removed && !slices.ContainsFunc(found, k.same) {
			continue
		}
		any = true
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			if !h.hung(k) { // while it waited
				h.remove(ctx, k)
			}
		})
	}
	wg.Wait()
	return any
}

func (h *hired) remove(ctx context.Context, k *held) {
	err := k.engine.Marked(h.c.rec.Cookie).Remove(ctx, &k.Container)
	if errors.Is(err, context.DeadlineExceeded) {
		h.muteNow(k.engine.Key(), err)
	}
	switch {
	case err != nil:
		k.info.Fate, k.info.Why = FateSurvived, err.Error()
		return
	case k.info.Fate == FateEnded || k.info.Fate == FateKilled:
	case k.Running: // now, or until the box was killed
		k.info.Fate = FateKilled
	default:
		k.info.Fate = FateRemoved
	}
	k.removed, k.info.Why = true, ""
}

// muteNow is mute for one that hung in a finish.
func (h *hired) muteNow(key string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hanging[key], h.silent[key] = err, err
}

// hung says whether the engine of a container did not answer: it has survived then, as far as
// can be told.
func (h *hired) hung(k *held) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.silent[k.engine.Key()]
	if err != nil && !k.removed {
		k.info.Fate, k.info.Why = FateSurvived, "its engine does not answer: "+err.Error()
	}
	return err != nil
}
