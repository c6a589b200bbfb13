package guard

import (
	"context"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// lister is where the figures come from that are asked for: a [session.Manager].
type lister interface {
	List(ctx context.Context, o session.ListOptions) ([]session.Info, error)
}

// metrics are what a guard tells of itself and of the sessions. The state of the
// sessions is looked up when somebody asks, so that it costs nothing else; looking is
// no activity in a session.
type metrics struct {
	sessions lister
	version  string

	mu                     sync.Mutex
	strays, ended, actions counts
	begunLag, doneLag      histogram
	memory                 *memory // nil: nobody watches it
	warnings, deeds        counts
}

func newMetrics(l lister, version string) *metrics {
	return &metrics{sessions: l, version: version, strays: counts{"": 0}, ended: counts{}, actions: counts{}, warnings: counts{}, deeds: counts{}}
}

// lagBounds returns the bounds of the buckets, in seconds.
func lagBounds() []float64 {
	return []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
}

// begun notes how long after its cause a reconcile was begun. Without metrics nobody
// asks.
func (m *metrics) begun(lag time.Duration) {
	if m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.begunLag.observe(lagBounds(), lag.Seconds())
	}
}

func (m *metrics) done(lag time.Duration) {
	if m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.doneLag.observe(lagBounds(), lag.Seconds())
	}
}

// acted notes what was done to a session.
func (m *metrics) acted(r *session.Reconciled) {
	if m == nil || r.Action == session.ActionNone {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.actions.add(1, r.Action)
	if r.Receipt != nil {
		m.receipt(r.Receipt, reasonWord(r.Reason))
	}
}

func (m *metrics) receipt(r *session.Receipt, reason string) {
	m.strays.add(float64(len(r.Strays)))
	for _, list := range [][]session.Fated{r.Processes, r.Strays} {
		for i := range list {
			m.ended.add(1, reason, list[i].Fate)
		}
	}
	for i := range r.Nested {
		m.receipt(&r.Nested[i], reason)
	}
}

// reasonWord is a word for a reason that is given to people: those name processes and
// times, of which there is no end.
func reasonWord(text string) string {
	for _, r := range []struct{ has, word string }{
		{"owner is gone", "owner_gone"}, {"lease", "lease_over"}, {"idle", "idle"}, {"rebooted", "reboot"},
		{"interrupted", "interrupted"}, {"box is gone", "box_gone"}, {"timed out", "timeout"},
	} {
		if strings.Contains(text, r.has) {
			return r.word
		}
	}
	return "other"
}

// listTime bounds one look at all sessions.
const listTime = 10 * time.Second

// write looks at all sessions and writes everything.
func (m *metrics) write(ctx context.Context, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	infos, err := m.sessions.List(ctx, session.ListOptions{})
	if err != nil {
		return err
	}
	sessions, tasks := counts{"open": 0}, counts{"running": 0}
	var leftovers, processes float64
	for i := range infos {
		in := &infos[i]
		sessions.add(1, in.State)
		leftovers += float64(in.Leftovers)
		processes += float64(in.Processes)
		for t := range in.Tasks {
			tasks.add(1, in.Tasks[t].State)
		}
	}
	hard, limit, level := m.figures()
	m.mu.Lock()
	defer m.mu.Unlock()
	const gauge, counter = "gauge", "counter"
	lag := family{name: "sessionbox_guard_lag_seconds", kind: "histogram",
		help: "Time from the cause of a reconcile, a time that came or an end that was noticed, until it was begun and done."}
	lag.samples = append(m.begunLag.samples(lagBounds(), label{"stage", "begun"}), m.doneLag.samples(lagBounds(), label{"stage", "done"})...)
	return writeFamilies(w, []family{
		counts{m.version: 1}.family("sessionbox_guard_build_info", gauge, "Always 1; the version is that of the program.", "version"),
		lag,
		m.deeds.family("sessionbox_memory_actions_total", counter, "What this guard has done for want of memory.", "action"),
		hard.family("sessionbox_memory_hard_bytes", gauge, "Memory that cannot be had back, of sessions, of cgroups around them and of the host.", "kind", "id", "name"),
		level.family("sessionbox_memory_level", gauge, "How near a place is to running out of memory: 0 ok, 1 notice, 2 warn, 3 critical, 4 emergency.", "kind", "id", "name"),
		limit.family("sessionbox_memory_limit_bytes", gauge, "What a place may have of memory; absent where there is no limit.", "kind", "id", "name"),
		m.warnings.family("sessionbox_memory_warnings_total", counter, "Warnings of memory that were given, by their level.", "level"),
		counts{"": leftovers}.family("sessionbox_leftover_processes", gauge, "Processes that have outlived the command that started them."),
		counts{"": processes}.family("sessionbox_processes", gauge, "Processes that are alive in the boxes of the sessions."),
		m.ended.family("sessionbox_processes_ended_total", counter, "Processes that closes by this guard have found alive, by the reason of the close and what became of them.", "reason", "fate"),
		m.actions.family("sessionbox_reconcile_actions_total", counter, "What this guard has done to sessions.", "action"),
		sessions.family("sessionbox_sessions", gauge, "Sessions by their state.", "state"),
		m.strays.family("sessionbox_strays_total", counter, "Processes outside of their session's box that closes by this guard have found."),
		tasks.family("sessionbox_tasks", gauge, "Tasks of the sessions that are not closed, by their state.", "state"),
	})
}
