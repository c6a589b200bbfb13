package session

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// InspectOptions say how much is looked at.
type InspectOptions struct {
	// Processes lists each process of each task; Ports finds listening sockets.
	Processes, Ports bool
	// Limit finds the limit that its memory meets first.
	Limit bool
	// Others asks engines and managers what they run for it, and looks whom its daemons
	// serve. It may take seconds.
	Others bool

	brief  bool    // one of many
	survey *survey // of all lineage boxes, if there are any
	asked  *asked  // what others said for all, if there are many
}

// ListOptions say which sessions are listed.
type ListOptions struct {
	// All also gives closed ones, from the history of this month and the last.
	All   bool
	Ports bool
	// Others asks engines what they run for each, as far as its commands have called one.
	Others bool
}

// UsageInfo is what a session used. A figure that cannot be had here is absent,
// which differs from 0.
type UsageInfo struct {
	MemoryBytes *uint64  `json:"memory_bytes,omitempty"` // cannot be had back without killing or swapping
	PeakBytes   *uint64  `json:"peak_bytes,omitempty"`   // the most it was charged, page cache included
	SwapBytes   *uint64  `json:"swap_bytes,omitempty"`
	Pids        *uint64  `json:"pids,omitempty"`
	CPUSeconds  *float64 `json:"cpu_seconds,omitempty"`
	OOMKills    *uint64  `json:"oom_kills,omitempty"`
	// PressurePercent is the share of the last ten seconds in which something in it
	// waited for memory.
	PressurePercent *float64 `json:"pressure_percent,omitempty"`
	// Limit is the limit that its memory meets first, where it was asked for.
	Limit *LimitInfo `json:"limit,omitempty"`
	// Source says how memory was measured: cgroup, or processes (added up).
	Source string `json:"source,omitempty"`
	// Unseen names memory that cannot be known when it is measured so.
	Unseen []string `json:"unseen,omitempty"`
}

// LimitInfo is a limit with all that counts against it.
type LimitInfo struct {
	Of          string  `json:"of"` // session, host, or the name of the cgroup around the session
	LimitBytes  uint64  `json:"limit_bytes"`
	UsedBytes   uint64  `json:"used_bytes"` // by the session and all others that share the limit
	UsedPercent float64 `json:"used_percent"`
}

func limitInfo(b *memlimit.Bound) *LimitInfo {
	if b == nil {
		return nil
	}
	return &LimitInfo{Of: b.Of, LimitBytes: b.Limit, UsedBytes: b.Used, UsedPercent: b.Percent()}
}

func usage(u memlimit.Usage) UsageInfo {
	i := UsageInfo{MemoryBytes: u.MemoryBytes, PeakBytes: u.PeakBytes, SwapBytes: u.SwapBytes, Pids: u.Pids,
		OOMKills: u.OOMKills, PressurePercent: u.Pressure, Source: string(u.Tier), Unseen: u.Unseen}
	if u.CPU != nil {
		s := u.CPU.Seconds()
		i.CPUSeconds = &s
	}
	return i
}

// List gives all sessions, oldest first: those with a record, those that only
// their box tells of, and those whose record cannot be used, which are "broken".
func (m *Manager) List(ctx context.Context, o ListOptions) ([]Info, error) {
	infos, err := m.list(ctx, InspectOptions{Ports: o.Ports, Others: o.Others, brief: true})
	if o.All {
		infos = append(infos, m.closedInfos()...)
		slices.SortStableFunc(infos, oldestFirst)
	}
	return infos, err
}

func oldestFirst(a, b Info) int { return a.Created.Compare(b.Created) }

// list looks at all sessions that are not closed.
func (m *Manager) list(ctx context.Context, o InspectOptions) ([]Info, error) {
	recs, bad, err := m.store.Sessions()
	if err != nil {
		m.log.Warn("read the records", "err", err)
	}
	have := map[string]store.Kind{}
	for i := range recs {
		have[recs[i].ID] = recs[i].Kind
	}
	boxes := m.unrecorded(have)
	why := map[string]string{}
	for _, b := range bad {
		if b.Task == 0 {
			why[b.ID] = b.Error()
		}
	}
	problems := make([]string, len(recs), len(recs)+len(boxes))
	for _, f := range boxes {
		// Who was opened since the records were read has one by now.
		if rec, err := m.store.Get(f.rec.ID); err == nil {
			recs, problems = append(recs, rec), append(problems, "")
			delete(why, rec.ID)
			continue
		}
		recs = append(recs, f.rec)
		p := "it has no record; known from its cgroup alone"
		if w, ok := why[f.rec.ID]; ok {
			p = w
			delete(why, f.rec.ID)
		}
		problems = append(problems, p)
	}
	if slices.ContainsFunc(recs, func(r store.Session) bool { return r.Kind == store.KindLineage }) {
		if o.survey, err = surveyAll(m); err != nil {
			m.log.Debug("look at all lineage boxes at once", "err", err)
		}
	}
	if o.Others {
		o.asked = newAsked()
	}
	infos := make([]Info, len(recs))
	each(len(recs), func(i int) {
		infos[i] = m.inspect(&recs[i], problems[i], o)
	})
	infos = m.lookAgain(infos, o)
	for id, w := range why {
		infos = append(infos, broken(id, w))
	}
	slices.SortStableFunc(infos, oldestFirst)
	return infos, ctx.Err()
}

// lookAgain drops those that were closed since their records were read, and asks the record
// anew of those whose box is gone: it may say by now that it is being closed.
func (m *Manager) lookAgain(infos []Info, o InspectOptions) []Info {
	still := infos[:0]
	for _, i := range infos {
		if i.Box.Gone {
			rec, err := m.store.Get(i.ID)
			if errors.Is(err, store.ErrNotFound) {
				continue
			}
			if err == nil {
				o.survey = nil
				i = m.inspect(&rec, "", o)
			}
		}
		still = append(still, i)
	}
	return still
}

// each runs fn for 0…n-1 on all processors.
func each(n int, fn func(int)) {
	workers := min(n, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				fn(i)
			}
		})
	}
	wg.Wait()
}

func broken(id, why string) Info {
	return Info{Schema: Schema, ID: id, State: StateBroken, Tasks: []TaskInfo{}, Limits: []memlimit.Ceiling{},
		Ports: []Port{}, Problems: []string{why}}
}

// StateBroken is the state of a session whose record cannot be used and whose
// box is not found.
const StateBroken = "broken"

// Inspect looks at one session.
func (m *Manager) Inspect(ctx context.Context, ref string, o InspectOptions) (Info, error) {
	id, err := m.resolve(ref)
	if err != nil {
		return Info{}, err
	}
	rec, problem, err := m.load(id)
	if err != nil {
		if bad, ok := errors.AsType[*store.BadRecord](err); ok {
			return broken(id, bad.Error()), nil
		}
		return Info{}, m.lookupError(ref, err)
	}
	is := m.lookAgain([]Info{m.inspect(&rec, problem, o)}, o)
	if len(is) == 0 {
		if r, ok := m.lastReceipt(id); ok {
			return Info{}, closedAt(ref, r.Closed)
		}
		return Info{}, notFound(ref)
	}
	return is[0], nil
}

func (m *Manager) inspect(rec *store.Session, problem string, o InspectOptions) Info {
	box, err := m.boxFor(rec, o.survey)
	if err != nil {
		box = nil
		if !errors.Is(err, ErrBoxGone) {
			problem = join(problem, err.Error())
		} else if rec.State == store.StateOpen {
			problem = join(problem, "its box is gone, and with it all its processes: close it")
		}
	}
	if m.overdue(rec) {
		problem = join(problem, "its owner is gone: close it, or attach to it")
	}
	if abandoned(rec) {
		problem = join(problem, "its opening was interrupted: close it")
	}
	i := Info{Schema: Schema, ID: rec.ID, Name: rec.Name, State: string(rec.State), Labels: rec.Labels,
		Created: rec.Created, Parent: rec.Parent, Cwd: rec.Cwd, Grace: rec.Grace.Seconds(),
		Owner: m.ownerInfo(rec), KeptFrom: rec.KeptFrom, TmpDir: rec.TmpDir, Container: m.containerInfo(rec), Strict: strictInfo(rec),
		Box: boxInfo(rec, box), OOMPolicy: oomInfo(rec, box), Tasks: []TaskInfo{}, Limits: []memlimit.Ceiling{}, Ports: []Port{}}
	if !rec.Created.IsZero() {
		i.AgeSeconds = time.Since(rec.Created).Seconds()
	}
	if problem != "" {
		i.Problems = []string{problem}
	}
	v := view{m: m, rec: rec, box: box, now: ticksNow(), o: o}
	if l, ok := box.(*lineageBox); ok {
		l.oneLook(true)
	}
	if box != nil {
		defer box.Close()
		if !o.brief {
			i.Idle = m.idleInfo(rec, box)
			if o.Others {
				i.Served = (&serving{m: m, rec: rec, box: box}).find()
			}
			i.MemoryWatch = memoryWatchInfo(rec, i.Box.Frozen)
			if l, ok := box.(*lineageBox); ok {
				i.Suspects = l.suspects()
			}
		}
		p, err := box.Populated("")
		empty := err == nil && !p
		if !empty {
			v.members()
			empty = len(v.byTsk) == 0 // but for our own
		}
		if !empty || !o.brief { // a list of many says nothing of what an idle one has used
			if u, err := box.Usage(""); err == nil {
				i.Usage = usage(u)
			}
		}
		// Who it was is in the kernel's log, too long to be read for each of many.
		i.OOM = m.oomOf(box, rec, !o.brief)
		if o.Limit {
			i.Usage.Limit = limitInfo(box.Bound())
		}
		// A list of many leaves out ceilings that nobody asked for.
		if want, err := memlimit.FromOCI(rec.Limits); err == nil && (want.IsSet() || !o.brief) {
			if c, err := box.Limits(want); err == nil && c != nil {
				m.remark(rec, box, c)
				i.Limits = c
			}
		}
	}
	v.tasks(&i)
	victimsOf(i.OOM, i.Tasks)
	i.Shims = rec.Shims
	if o.Others {
		m.inspectHired(&i, rec, o.brief, o.asked)
	}
	return i
}

// boxFor opens a session's box as a survey sees it, if there is one.
func (m *Manager) boxFor(rec *store.Session, s *survey) (Box, error) {
	if s == nil || rec.Kind != store.KindLineage {
		return m.openBox(rec)
	}
	if err := m.mayJudge(rec); err != nil {
		return nil, err
	}
	b, err := m.lineageIn(rec, s)
	if err != nil {
		return nil, err // not as a Box that is not nil
	}
	return b, nil
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

func boxInfo(rec *store.Session, box Box) BoxInfo {
	b := BoxInfo{Kind: string(rec.Kind), Containment: ByKernel, Path: rec.Path, Inode: rec.Inode, Unit: rec.Unit, Gone: box == nil}
	if rec.Kind == store.KindLineage {
		b.Containment, b.MayEscape = containment(rec)
	}
	if box != nil {
		b.Path, b.Inode = box.Path(), box.Inode()
		b.Frozen, _ = box.Frozen()
		b.Hibernated = b.Frozen && rec.Hibernated != nil
	}
	return b
}

// view is one look at a session: its records beside what the kernel says.
type view struct {
	m     *Manager
	rec   *store.Session
	box   Box
	now   uint64
	o     InspectOptions
	byTsk map[int][]proc.Member // 0: in no task's leaf
}

func (v *view) members() {
	v.byTsk = map[int][]proc.Member{}
	all, err := v.box.Members("")
	if err != nil {
		return
	}
	for _, m := range all {
		if isHelper(m) || nestedLeaf(m.Leaf) {
			continue
		}
		n := taskOfLeaf(m.Leaf)
		v.byTsk[n] = append(v.byTsk[n], m)
	}
}

// tasks fills in the tasks and the sums over them.
func (v *view) tasks(i *Info) {
	recs, bad, err := v.m.store.Tasks(v.rec.ID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		i.Problems = append(i.Problems, err.Error())
	}
	for _, b := range bad {
		i.Problems = append(i.Problems, b.Error())
	}
	known := map[int]bool{0: true}
	for t := range recs {
		if recs[t].Moved != "" && len(v.byTsk[recs[t].N]) == 0 {
			continue // it is one of the session that it was kept in
		}
		known[recs[t].N] = true
		i.Tasks = append(i.Tasks, v.task(&recs[t]))
	}
	for n, members := range v.byTsk {
		if !known[n] { // its record was lost, its processes were not
			t := v.unrecorded(n, members)
			ti := v.task(&t)
			ti.State, ti.Leftovers = string(store.TaskOrphaned), 0
			i.Tasks = append(i.Tasks, ti)
		}
	}
	slices.SortFunc(i.Tasks, func(a, b TaskInfo) int { return a.N - b.N })
	i.Processes = len(v.byTsk[0])
	i.Leftovers = len(v.byTsk[0])
	for t := range i.Tasks {
		ti := &i.Tasks[t]
		n := len(v.byTsk[ti.N])
		i.Processes += n
		i.Leftovers += ti.Leftovers
		if alive(ti.State) {
			i.Running++
		}
		for _, p := range ti.Processes {
			i.Ports = append(i.Ports, p.Ports...)
		}
	}
	if v.o.Ports && !v.o.Processes && i.Processes > 0 {
		var pids []int
		for _, ms := range v.byTsk {
			for _, m := range ms {
				pids = append(pids, m.PID)
			}
		}
		for _, p := range ports(pids) {
			i.Ports = append(i.Ports, p...)
		}
		slices.SortFunc(i.Ports, func(a, b Port) int { return a.Port - b.Port })
	}
}

// unrecorded is a task of which only the processes tell.
func (v *view) unrecorded(n int, members []proc.Member) store.Task {
	t := store.Task{N: n, State: store.TaskOrphaned, Reason: "it has no record"}
	if p, ok := describe(members[0].PID, named, v.now); ok {
		t.Argv, t.PID, t.Start = p.Argv, p.PID, p.Start
	}
	return t
}

func alive(state string) bool {
	switch store.TaskState(state) {
	case store.TaskRunning, store.TaskStarting, store.TaskOrphaned:
		return true
	}
	return false
}

// task puts what a record says and what is alive together.
func (v *view) task(t *store.Task) TaskInfo {
	v.correct(t)
	ti := taskInfo(t)
	members := v.byTsk[t.N]
	if !alive(ti.State) {
		ti.Leftovers = len(members)
	}
	if v.o.Processes {
		ti.Processes = describeAll(members, v.rec.ID, []store.Task{*t}, v.o.Ports, full, v.now)
	}
	return ti
}

// correct sets right what a record says of a command that may have ended with
// nobody there to record it. Alive is shown as alive; lost is only what cannot
// be known.
func (v *view) correct(t *store.Task) {
	if t.State.Ended() {
		return
	}
	if t.PID == 0 && t.State != store.TaskStarting {
		if t.State == store.TaskOrphaned && len(v.byTsk[t.N]) == 0 { // its command was never known
			t.State, t.Reason = store.TaskLost, "nobody waited for it, its status is not known"
		}
		return
	}
	supervised := t.Supervisor.PID != 0
	supervisor := proc.Gone
	if supervised {
		supervisor = proc.FateOf(proc.ID(t.Supervisor))
	}
	command := proc.Gone
	if t.PID != 0 {
		command = proc.FateOf(proc.ID(t.ID(v.rec.Boot)))
	}
	switch {
	case command == proc.Alive:
		if supervised && supervisor == proc.Gone {
			t.State, t.Reason = store.TaskOrphaned, "its supervisor is gone"
		}
	case command == proc.Unknown:
		if len(v.byTsk[t.N]) == 0 {
			t.State, t.Reason = store.TaskLost, "it was started in another pid namespace, where it cannot be checked from here"
		}
	case supervisor == proc.Alive: // it is about to record the end, or the start
	case supervisor == proc.Unknown:
		t.State, t.Reason = store.TaskLost, "its supervisor is in another pid namespace, where it cannot be checked from here"
	case t.State == store.TaskStarting && v.beingStarted(t.N): // by a keeper that is about to start or end it
	case t.State == store.TaskStarting && t.Adopted && len(v.byTsk[t.N]) == 0:
		t.State, t.Reason = store.TaskFailed, "not adopted: who was to do it died"
	case t.State == store.TaskStarting && len(v.byTsk[t.N]) > 0:
		t.State, t.Reason = store.TaskOrphaned, "its supervisor is gone"
	case t.State == store.TaskStarting:
		t.State, t.Reason = store.TaskFailed, "not started: its supervisor died"
	case !supervised && t.State == store.TaskOrphaned:
		t.State, t.Reason = store.TaskLost, "nobody waited for it, its status is not known"
	case !supervised && t.Adopted:
		t.State, t.Reason = store.TaskExited, "it was adopted, its own parent has its status"
	case !supervised:
		t.State, t.Reason = store.TaskExited, "it replaced its starter, which has its status"
	default:
		t.State, t.Reason = store.TaskLost, "it ended after its supervisor, its status is not known"
	}
	v.ofMemory(t)
}

// ofMemory sets right what is said of a command that ended unseen, if the kernel killed
// it for want of memory.
func (v *view) ofMemory(t *store.Task) {
	if v.box == nil || t.PID == 0 || t.State != store.TaskLost && t.State != store.TaskExited {
		return
	}
	if y := v.m.tally(v.box, v.rec, t); y.OOM.Of(t.PID) {
		t.State, t.Reason, t.OOM, t.PeakBytes = store.TaskOOMKilled, y.OOM.String(), y.OOM, y.PeakBytes
	}
}

// beingStarted says whether a task's keeper is there, with nobody to keep yet.
func (v *view) beingStarted(n int) bool {
	b, ok := v.box.(*lineageBox)
	return ok && len(v.byTsk[n]) == 0 && b.watched(LeafName(n))
}

func taskInfo(t *store.Task) TaskInfo {
	return TaskInfo{N: t.N, State: string(t.State), Argv: t.Argv, Cwd: t.Cwd, PID: t.PID, Start: t.Start,
		Started: t.Started, Ended: t.Ended, Exit: t.Exit, Signal: t.Signal, Reason: t.Reason, Detached: t.Detached, Adopted: t.Adopted,
		Timeout: t.Timeout.Seconds(), Log: t.Log, PeakBytes: t.PeakBytes, OOM: t.OOM, Processes: []Process{}}
}

// describeAll describes members, passing over those that are gone.
func describeAll(members []proc.Member, session string, tasks []store.Task, withPorts bool, d detail, now uint64) []Process {
	all := make([]Process, len(members))
	each(len(members), func(i int) {
		m := members[i]
		if p, ok := describe(m.PID, d, now); ok && !isHelper(m) {
			p.Task, p.Session = taskOfLeaf(m.Leaf), session
			all[i] = p
		}
	})
	list := slices.DeleteFunc(all, func(p Process) bool { return p.PID == 0 })
	markEscaped(list, tasks)
	pids := make([]int, len(list))
	for i := range list {
		pids[i] = list[i].PID
	}
	if withPorts {
		held := ports(pids)
		for i := range list {
			list[i].Ports = held[list[i].PID]
		}
	}
	return list
}

// markEscaped says of each process whether those who clean up by process group or
// by parent would miss it. A command is the child of its supervisor, which is
// outside; a detached one has a session of its own because we gave it one. Parents
// are not compared with pid 1: a user's manager adopts orphans, too.
func markEscaped(list []Process, tasks []store.Task) {
	member := map[int]bool{}
	for i := range list {
		member[list[i].PID] = true
	}
	for i := range list {
		p := &list[i]
		own, reparented := p.sid == p.PID, !member[p.PPID]
		for t := range tasks {
			if tasks[t].PID == p.PID && tasks[t].Start == p.Start {
				own, reparented = own && !tasks[t].Detached, false
			}
		}
		switch {
		case own && reparented:
			p.Escaped = "setsid, reparented"
		case own:
			p.Escaped = "setsid"
		case reparented:
			p.Escaped = "reparented"
		}
	}
}

// taskOfLeaf is the number of the task whose leaf a process is in, 0 for none.
func taskOfLeaf(leaf string) int {
	var n int
	if _, err := fmt.Sscanf(leaf, "task-%d", &n); err != nil || n < 0 {
		return 0
	}
	return n
}
