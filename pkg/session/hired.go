package session

import (
	"context"
	"slices"
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

// HiredContainer is a container, or a pod, that a session had an engine start. Without an ID it
// is an engine that did not say what it has of the session's.
type HiredContainer struct {
	Engine string `json:"engine"` // docker, podman, nerdctl
	At     string `json:"at"`     // the engine, for people
	ID     string `json:"id"`     // "": not known
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

	returns bool // it may be started again though nothing of it runs
}

// JobInfo is something that a session had at or cron start later.
type JobInfo struct {
	Kind string `json:"kind"` // at, cron
	ID   string `json:"id,omitempty"`
	Line string `json:"line,omitempty"` // of the crontab
	Fate string `json:"fate"`           // alive, removed, survived, suspect
	Why  string `json:"why,omitempty"`
}

// enginesOf are those that a session has called. When the note of that is gone with its
// records, they are the usual ones.
func (m *Manager) enginesOf(rec *store.Session) []engines.Engine {
	dir := m.shimDir(rec)
	if dir == "" {
		return nil
	}
	all := dir.Engines()
	if lost(dir) {
		for _, tool := range []string{"docker", "podman"} {
			e := engines.Here(tool)
			if e.There() && !slices.ContainsFunc(all, func(a engines.Engine) bool { return a.Key() == e.Key() }) {
				all = append(all, e)
			}
		}
	}
	return all
}

// lost says whether what the shims have noted is gone, or was once.
func lost(dir shim.Dir) bool {
	c, err := dir.Config()
	return err != nil || c.Lost
}

// held is a container with the engine that has it.
type held struct {
	engines.Container
	engine engines.Engine
	info   HiredContainer
	known  bool // it was proven to be the session's

	removed bool
}

func (h *held) same(o *held) bool { return h.ID == o.ID }

// unproven says why a container with the session's label is not the session's, "" if it
// is. An error says that its engine does not tell. A label can be written by anybody, the token only by the session; and one token is
// for one container, or for those that its image did not give it to.
func (m *Manager) unproven(ctx context.Context, rec *store.Session, h *held) (string, error) {
	token := h.Labels[engines.LabelToken]
	if !(engines.Proof{Cookie: rec.Cookie}).Made(token) {
		return "it has the session's label and not its token", nil
	}
	if id := m.shimDir(rec).ContainerID(engines.Nonce(token)); id != "" {
		if id != h.ID {
			return "its labels are those of another container", nil
		}
		return "", nil
	}
	if h.Pod {
		return "", nil
	}
	inherited, err := h.engine.Inherited(ctx, &h.Container)
	if err != nil || !inherited {
		return "", err
	}
	return "its labels came with its image", nil
}

// without leaves out the engines that did not answer: each would cost its time again.
func without(list []engines.Engine, skip map[string]error) []engines.Engine {
	return slices.DeleteFunc(list, func(e engines.Engine) bool { return skip[e.Key()] != nil })
}

func hiredContainer(h *held) HiredContainer {
	return HiredContainer{Engine: h.engine.Tool, At: h.engine.String(), ID: h.ID, Name: h.Name, Image: h.Image, Pod: h.Pod,
		By: h.Labels[engines.LabelBy], Fate: fateAlive}
}

// briefTime and hiredTime bound asking engines for a look at one of many sessions, and at
// one alone: rootless podman has to be started for it, and does not hurry.
const (
	briefTime = 5 * time.Second
	hiredTime = 30 * time.Second
)

// inspectHired puts what others run for a session into what is known of it. shared is not nil
// if it is one of many.
func (m *Manager) inspectHired(i *Info, rec *store.Session, brief bool, shared *asked) {
	patience := hiredTime
	if brief {
		patience = briefTime
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var problems []string
	i.Containers, i.Units, i.Jobs, problems = m.lookAmong(ctx, rec, !brief, shared)
	if brief { // of a list of many: what is the session's
		i.Units = slices.DeleteFunc(i.Units, func(u UnitInfo) bool { return u.Fate == FateSuspect })
	}
	i.Problems = append(i.Problems, problems...)
}

// lookHired says what others run for a session, and changes nothing.
func (m *Manager) lookHired(ctx context.Context, rec *store.Session, jobs bool) (cs []HiredContainer, us []UnitInfo, js []JobInfo, problems []string) {
	return m.lookAmong(ctx, rec, jobs, nil)
}

// lookAmong is lookHired for one of many.
func (m *Manager) lookAmong(ctx context.Context, rec *store.Session, jobs bool, shared *asked) (cs []HiredContainer, us []UnitInfo, js []JobInfo, problems []string) {
	l := look{m: m, rec: rec, shared: shared}
	s := l.containers(ctx)
	for _, k := range slices.Concat(s.all, s.unsure) {
		cs = append(cs, k.info)
	}
	problems = couldNotAsk(s.failed)
	if jobs {
		called := m.enginesOf(rec)
		past, _ := m.past(ctx, rec, without(called, s.failed), "", 0)
		elsewhere, _ := m.past(ctx, rec, notAmongEngines(usualEngines(), called), "", usualTime)
		for _, more := range [][]HiredContainer{past, elsewhere} {
			cs = append(cs, notAmong(more, cs)...)
		}
	}
	if jobs || rec.Shims {
		us = unitsAmong(shared.unitFiles(), rec)
	}
	if jobs {
		js = m.endJobs(ctx, rec, true)
	}
	return cs, us, js, problems
}
