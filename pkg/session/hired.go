package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/engines"
	"github.com/sessionbox/sessionbox/pkg/internal/shim"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// What a session has somebody else start never was in its box: containers of an engine,
// units of a manager, jobs of at and cron. It is found by what its shims put on it, and
// by the session's secret that proves it. The box does not wait for any of it, nor does
// the kill of the box.

// Fates of what was started by others, beside those of processes.
const (
	FateRemoved = "removed" // it did not run any more, or yet
	FateSuspect = "suspect" // left alone: it cannot be proven to be the session's
)

// HiredContainer is a container, or a pod, that a session had an engine start.
type HiredContainer struct {
	Engine string `json:"engine"` // docker, podman, nerdctl
	At     string `json:"at"`     // the engine, for people
	ID     string `json:"id"`
	Name   string `json:"name,omitempty"`
	Image  string `json:"image,omitempty"`
	Pod    bool   `json:"pod,omitempty"`
	// By is who asked for it, as its shim saw it: "task 3, bash (4711)".
	By   string `json:"by,omitempty"`
	Fate string `json:"fate"` // alive, ended, killed, removed, survived, suspect
	// Why says why it is a suspect, or has survived.
	Why string `json:"why,omitempty"`
}

// UnitInfo is a transient unit of a systemd manager that a session had started.
type UnitInfo struct {
	Name    string `json:"name"`
	Manager string `json:"manager"` // user, system
	Command string `json:"command,omitempty"`
	Inside  bool   `json:"inside"` // it is in the session's slice
	Fate    string `json:"fate"`   // alive, ended, killed, survived, suspect
	Why     string `json:"why,omitempty"`
}

// JobInfo is something that a session had at or cron start later.
type JobInfo struct {
	Kind string `json:"kind"` // at, cron
	ID   string `json:"id,omitempty"`
	Line string `json:"line,omitempty"` // of the crontab
	Fate string `json:"fate"`           // alive, removed, survived, suspect
	Why  string `json:"why,omitempty"`
}

// shimDir is where the shims of a session are, "" if it has none.
func (m *Manager) shimDir(rec *store.Session) shim.Dir {
	if !rec.Shims {
		return ""
	}
	return shim.At(m.store.SessionDir(rec.ID))
}

// makeShims makes the shims of a new session, if they are wanted. It is done without
// where they cannot be made: they let a close find more, and hold nobody.
func (m *Manager) makeShims(rec *store.Session) {
	if !rec.Shims {
		return
	}
	helper, err := m.helper()
	if err == nil {
		_, err = shim.Make(string(m.shimDir(rec)), m.shimConfig(rec), helper)
	}
	if err != nil {
		m.log.Warn("the session has no shims for docker and others", "id", rec.ID, "err", err)
		rec.Shims = false
	}
}

// shimConfig is what the shims are told of a session.
func (m *Manager) shimConfig(rec *store.Session) shim.Config {
	c := shim.Config{ID: rec.ID, Cookie: rec.Cookie, Strict: rec.Strict, TableLock: m.tableLock()}
	switch rec.Kind {
	case store.KindSystemd:
		c.Slice, c.User = rec.Unit, os.Geteuid() != 0
	case store.KindCgroup:
		// An engine that makes cgroups itself counts from the place where it sees the tree.
		if rel, ok := strings.CutPrefix(rec.Path, rec.Mount+"/"); ok && rec.Mount == "/sys/fs/cgroup" && os.Geteuid() == 0 {
			c.Cgroup = "/" + rel
		}
	}
	return c
}

// shimEnviron puts the shims into the environment of a command, in place of those of a
// session around it: what is started through them is to be ours.
func (s *Session) shimEnviron(env []string) []string {
	switch dir := s.m.shimDir(&s.rec); {
	case dir != "":
		if _, err := dir.Config(); err != nil { // they were lost with the records
			s.m.makeShims(&s.rec)
		}
		return shim.Environ(env, dir)
	case s.rec.Parent == "": // those of a session that we are not inside of
		return shim.Environ(env, "")
	}
	return env
}

// shimCommand has a command that was looked up in our own PATH found in the session's.
func (s *Session) shimCommand(cmd *exec.Cmd) {
	dir := s.m.shimDir(&s.rec)
	if dir == "" || len(cmd.Args) == 0 || !slices.Contains(shim.Names(), cmd.Args[0]) {
		return // with a slash in it, it is meant as it is
	}
	link := filepath.Join(dir.Bin(), cmd.Args[0])
	if _, err := os.Stat(link); err == nil {
		cmd.Path = link
	}
}

// enginesOf are those that a session has called. When the note of that is gone with its
// records, they are the usual ones.
func (m *Manager) enginesOf(rec *store.Session) []engines.Engine {
	dir := m.shimDir(rec)
	if dir == "" {
		return nil
	}
	all := dir.Engines()
	if _, err := dir.Config(); err != nil {
		all = []engines.Engine{{Tool: "docker"}, {Tool: "podman"}}
		all = slices.DeleteFunc(all, func(e engines.Engine) bool { return !e.There() })
	}
	return all
}

// held is a container with the engine that has it.
type held struct {
	engines.Container
	engine engines.Engine
	info   HiredContainer
	known  bool // it was proven to be the session's

	removed bool
}

// containersAt asks an engine for the containers of a session, and proves each.
func (m *Manager) containersAt(ctx context.Context, rec *store.Session, e engines.Engine) ([]*held, error) {
	found, err := e.List(ctx, rec.ID)
	if err != nil {
		return nil, err
	}
	all := make([]*held, 0, len(found))
	for i := range found {
		h := &held{Container: found[i], engine: e}
		h.info = hiredContainer(h)
		if why := m.unproven(ctx, rec, h); why != "" {
			h.info.Fate, h.info.Why = FateSuspect, why
		} else {
			h.known = true
		}
		all = append(all, h)
	}
	return all, nil
}

// unproven says why a container with the session's label is not the session's, "" if it
// is. A label can be written by anybody, the token only by the session; and one token is
// for one container, or for those that its image did not give it to.
func (m *Manager) unproven(ctx context.Context, rec *store.Session, h *held) string {
	token := h.Labels[engines.LabelToken]
	if !(engines.Proof{Cookie: rec.Cookie}).Made(token) {
		return "it has the session's label and not its token"
	}
	if id := m.shimDir(rec).ContainerID(engines.Nonce(token)); id != "" {
		if id != h.ID {
			return "its labels are those of another container"
		}
		return ""
	}
	if h.Pod {
		return ""
	}
	inherited, err := h.engine.Inherited(ctx, &h.Container)
	switch {
	case err != nil:
		return "it cannot be told whether its labels came with its image: " + err.Error()
	case inherited:
		return "its labels came with its image"
	}
	return ""
}

// containers asks all engines that a session has called but those that skip names. cookie
// marks the commands that ask: what they leave behind ends with the session then. It is for
// who asks when the box is empty alone: while that is being emptied, who carries the mark is
// a member of a lineage box, and would be killed over the question.
func (m *Manager) containers(ctx context.Context, rec *store.Session, skip map[string]error, cookie string) (all []*held, failed map[string]error) {
	list := without(m.enginesOf(rec), skip)
	for i := range list {
		list[i] = list[i].Marked(cookie)
	}
	found, errs := make([][]*held, len(list)), make([]error, len(list))
	var wg sync.WaitGroup
	for i := range list {
		wg.Go(func() { found[i], errs[i] = m.containersAt(ctx, rec, list[i]) })
	}
	wg.Wait()
	failed = map[string]error{}
	for i := range list {
		if errs[i] != nil {
			failed[list[i].String()] = errs[i]
			continue
		}
		for _, h := range found[i] { // two ways may lead to one engine
			if !slices.ContainsFunc(all, func(o *held) bool { return o.ID == h.ID }) {
				all = append(all, h)
			}
		}
	}
	for _, c := range conmons(rec) { // of those that were made past the shims
		if skip[c.engine.String()] != nil || slices.ContainsFunc(all, func(o *held) bool { return o.ID == c.id }) {
			continue
		}
		c.engine = c.engine.Marked(cookie)
		found, err := c.engine.Get(ctx, c.id)
		switch {
		case err == nil && found.ID == c.id:
			h := &held{Container: found, engine: c.engine, known: true}
			h.info = hiredContainer(h)
			all = append(all, h)
		case err != nil && !errors.Is(err, engines.ErrGone):
			failed[c.engine.String()] = err
		}
	}
	return all, failed
}

// without leaves out the engines that did not answer: each would cost its time again.
func without(list []engines.Engine, skip map[string]error) []engines.Engine {
	return slices.DeleteFunc(list, func(e engines.Engine) bool { return skip[e.String()] != nil })
}

func hiredContainer(h *held) HiredContainer {
	return HiredContainer{Engine: h.engine.Tool, At: h.engine.String(), ID: h.ID, Name: h.Name, Image: h.Image, Pod: h.Pod,
		By: h.Labels[engines.LabelBy], Fate: fateAlive}
}

// usualTime bounds asking the docker that a session has not called.
const usualTime = 300 * time.Millisecond

// past gives the containers that were made since the session was opened and that no
// session has put its label on: suspects, as engines do not say who asked. Asked are those
// that the session has called, and docker if it runs already.
func (m *Manager) past(ctx context.Context, rec *store.Session, skip map[string]error, cookie string) []HiredContainer {
	if !rec.Shims {
		return nil // it did not want to know
	}
	list := without(m.enginesOf(rec), skip)
	called := len(list)
	usual := engines.Engine{Tool: "docker"}
	if skip[usual.String()] == nil && engines.DockerRuns() && !slices.ContainsFunc(list, func(e engines.Engine) bool { return e.Socket() == usual.Socket() }) {
		list = append(list, usual)
	}
	found := make([][]engines.Container, len(list))
	var wg sync.WaitGroup
	for i, e := range list {
		wg.Go(func() {
			ctx := ctx
			if i >= called {
				brief, cancel := context.WithTimeout(ctx, usualTime)
				defer cancel()
				ctx = brief
			}
			var err error
			if found[i], err = e.Marked(cookie).Since(ctx, rec.Created); err != nil {
				m.log.Debug("look for what went past the shims", "engine", e, "err", err)
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	var all []HiredContainer
	for i, e := range list {
		for _, f := range found[i] {
			if seen[f.ID] {
				continue // two ways may lead to one engine
			}
			seen[f.ID] = true
			c := hiredContainer(&held{Container: f, engine: e})
			c.Fate, c.Why = FateSuspect, "it was made since the session was opened, and not through its shims; its engine does not say by whom"
			all = append(all, c)
		}
	}
	return all
}

// notAmong leaves out those that are known already.
func notAmong(all, known []HiredContainer) []HiredContainer {
	return slices.DeleteFunc(all, func(c HiredContainer) bool {
		return slices.ContainsFunc(known, func(k HiredContainer) bool { return k.ID == c.ID })
	})
}

// watching are the processes of podman beside containers that have survived. They are what
// proves to the next close whose those are.
func (c *closing) watching() []int {
	survived := map[string]bool{}
	for _, k := range c.r.Containers {
		survived[k.ID] = k.Fate == FateSurvived
	}
	if !slices.Contains(slices.Collect(maps.Values(survived)), true) {
		return nil
	}
	var pids []int
	for _, w := range conmons(&c.rec) {
		if survived[w.id] {
			pids = append(pids, w.pid)
		}
	}
	return pids
}

// hired is what a close does about what others started for the session.
type hired struct {
	c  *closing
	wg sync.WaitGroup

	mu         sync.Mutex
	containers []*held
	units      []UnitInfo
	jobs       []JobInfo
	hanging    map[string]error // engines that hung: each would cost its time again
	silent     map[string]error // those, and who did not answer in the finish under way
	said       []string         // notes of the last finish
}

// beginTime is how long beyond the grace engines may take while the box is being emptied.
const beginTime = 25 * time.Second

// beginHired asks all to end while the processes in the box are asked: nothing waits for it.
// It ends with ctx.
func (c *closing) beginHired(ctx context.Context) *hired {
	h := &hired{c: c, hanging: map[string]error{}}
	h.units = c.m.unitsOf(&c.rec)
	grace := c.grace()
	h.wg.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, grace+min(beginTime, math.MaxInt64-grace))
		defer cancel()
		found, failed := c.m.containers(ctx, &c.rec, nil, "")
		h.add(found)
		if ctx.Err() == nil { // else they may just be slow
			h.mute(failed)
		}
		if grace == 0 {
			return
		}
		var wg sync.WaitGroup
		for _, k := range found {
			if k.known && k.Running {
				wg.Go(func() { h.stop(ctx, k, grace) })
			}
		}
		wg.Wait()
	})
	h.wg.Go(func() { h.endUnits(ctx) })
	return h
}

// mute remembers who hung. One that refuses, or is not there, costs nothing to be asked again.
func (h *hired) mute(failed map[string]error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, err := range failed {
		if errors.Is(err, context.DeadlineExceeded) {
			h.hanging[name] = err
		}
	}
}

// add takes over what was found, once. Who could not be proven to be the session's before,
// and is now, takes the place of what was known of it.
func (h *hired) add(found []*held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range found {
		i := slices.IndexFunc(h.containers, func(o *held) bool { return o.ID == f.ID })
		switch {
		case i < 0:
			h.containers = append(h.containers, f)
		case f.known && !h.containers[i].known:
			h.containers[i] = f
		}
	}
}

func (h *hired) stop(ctx context.Context, k *held, grace time.Duration) {
	killed, err := k.engine.Stop(ctx, &k.Container, grace)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		h.hanging[k.engine.String()] = err
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
)

// finish ends what is left when the box is empty. It says in the receipt what became of
// everything, and gives an error if something is known to be left, or may be.
//
// It may be called again, when somebody was ended who may have asked for more meanwhile: all
// are asked again but those who hung, and what it says takes the place of what it said before.
func (h *hired) finish(ctx context.Context) error {
	c := h.c
	h.wg.Wait() // it is bounded by the grace
	c.r.Notes = slices.DeleteFunc(c.r.Notes, func(n string) bool { return slices.Contains(h.said, n) })
	h.said = nil
	h.removeContainers(ctx)
	c.r.Containers = nil
	for _, k := range h.containers {
		c.r.Containers = append(c.r.Containers, k.info)
	}
	c.r.Containers = append(c.r.Containers, h.unseen()...)
	c.r.Containers = append(c.r.Containers, notAmong(c.m.past(ctx, &c.rec, h.silent, c.rec.Cookie), c.r.Containers)...)
	h.leftUnits(ctx)
	c.r.Units = slices.Clone(h.units)
	h.jobs = joinJobs(h.jobs, c.m.endJobs(ctx, &c.rec, false))
	c.r.Jobs = slices.Clone(h.jobs)
	left := c.r.hiredLeft()
	if left == 0 {
		return nil
	}
	return &Error{Kind: ErrSurvivors, Session: c.name(), Text: fmt.Sprintf("%d of what others started for it could not be ended (containers, units, jobs)", left),
		Hint: "the receipt names them; close again when the engine or manager answers", Retry: true}
}

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
	inFlight := time.Since(time.Unix(0, c.m.shimDir(&c.rec).Used())) < recent
	h.silent = maps.Clone(h.hanging) // nobody adds any more
	for pass := range listPasses {
		found, failed := c.m.containers(ctx, &c.rec, h.silent, c.rec.Cookie)
		h.mute(failed)
		maps.Copy(h.silent, failed)
		h.add(found)
		again := h.removeAll(ctx, found)
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
	for _, name := range slices.Sorted(maps.Keys(h.silent)) {
		h.note("could not ask: " + h.silent[name].Error())
	}
}

// note notes what the next finish may say otherwise.
func (h *hired) note(s string) {
	h.said = append(h.said, s)
	h.c.note(s)
}

// unseen gives the containers that the session has made, and of which nobody can say whether
// they live: their engine is silent.
func (h *hired) unseen() (all []HiredContainer) {
	for _, made := range h.c.m.shimDir(&h.c.rec).Made() {
		err := h.silent[made.Engine.String()]
		if err == nil || slices.ContainsFunc(h.containers, func(o *held) bool { return o.ID == made.ID }) {
			continue
		}
		k := hiredContainer(&held{Container: engines.Container{ID: made.ID}, engine: made.Engine})
		k.Fate, k.Why = FateSurvived, "it may live, its engine does not answer: "+err.Error()
		all = append(all, k)
	}
	return all
}

// removeAll removes those that are the session's: what an engine has just named, and what
// it named before and is not known to be gone. It says whether there were any.
func (h *hired) removeAll(ctx context.Context, found []*held) bool {
	var wg sync.WaitGroup
	any := false
	for _, k := range h.containers { // nobody adds any more
		if !k.known || h.hung(k) || k.removed && !slices.ContainsFunc(found, func(f *held) bool { return f.ID == k.ID }) {
			continue
		}
		any = true
		wg.Go(func() {
			err := k.engine.Marked(h.c.rec.Cookie).Remove(ctx, &k.Container)
			if errors.Is(err, context.DeadlineExceeded) {
				h.muteNow(k.engine.String(), err)
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
		})
	}
	wg.Wait()
	return any
}

// muteNow is mute for one that hung in a finish.
func (h *hired) muteNow(name string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hanging[name], h.silent[name] = err, err
}

// hung says whether the engine of a container has hung: it has survived then, as far as
// can be told.
func (h *hired) hung(k *held) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.silent[k.engine.String()]
	if err != nil && !k.removed {
		k.info.Fate, k.info.Why = FateSurvived, "its engine does not answer: "+err.Error()
	}
	return err != nil
}

// briefTime and hiredTime bound asking engines for a look at one of many sessions, and at
// one alone: rootless podman has to be started for it, and does not hurry.
const (
	briefTime = 5 * time.Second
	hiredTime = 30 * time.Second
)

// inspectHired puts what others run for a session into what is known of it.
func (m *Manager) inspectHired(i *Info, rec *store.Session, brief bool) {
	patience := hiredTime
	if brief {
		patience = briefTime
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var problems []string
	i.Containers, i.Units, i.Jobs, problems = m.lookHired(ctx, rec, !brief)
	if brief { // of a list of many: what is the session's
		i.Units = slices.DeleteFunc(i.Units, func(u UnitInfo) bool { return u.Fate == FateSuspect })
	}
	i.Problems = append(i.Problems, problems...)
}

// lookHired says what others run for a session, and changes nothing.
func (m *Manager) lookHired(ctx context.Context, rec *store.Session, jobs bool) (cs []HiredContainer, us []UnitInfo, js []JobInfo, problems []string) {
	found, failed := m.containers(ctx, rec, nil, "")
	for _, k := range found {
		cs = append(cs, k.info)
	}
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		problems = append(problems, "could not ask: "+failed[name].Error())
	}
	if jobs {
		cs = append(cs, notAmong(m.past(ctx, rec, failed, ""), cs)...)
	}
	if jobs || rec.Shims {
		us = m.unitsOf(rec)
	}
	if jobs {
		js = m.endJobs(ctx, rec, true)
	}
	return cs, us, js, problems
}
