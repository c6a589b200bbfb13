package session

import (
	"fmt"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/config"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// Events of a session's memory. The detail of the first is a [memlimit.Warning].
const (
	EventMemoryWarning = "memory_warning"
	EventMemoryAction  = "memory_action"
)

// MemoryOptions say how the memory of a session is watched, by a guard. Unset fields
// are the config file's.
type MemoryOptions struct {
	// Warn is "on" or "off"; "": warnings are given of a session that has a memory
	// ceiling or any of the following.
	Warn string
	// OnWarn is a command line for the shell, run with each warning; "-" is none.
	OnWarn string
	// Notify is "desktop" or "none".
	Notify string
	// Steps may be taken when it is short of memory; nil is what the config file says.
	Steps *memlimit.Steps
	// Protected keeps anything from being done to it.
	Protected bool
}

// policy puts together what is asked for and what the config file says; nil: nothing.
func (o *MemoryOptions) policy(cfg *config.Memory) (*store.MemoryPolicy, error) {
	switch o.Warn {
	case "", "on", "off":
	default:
		return nil, &Error{Kind: ErrUsage, Text: fmt.Sprintf("memory warnings: not %q", o.Warn), Hint: "want on or off"}
	}
	switch o.Notify {
	case "", "none", "desktop":
	default:
		return nil, &Error{Kind: ErrUsage, Text: fmt.Sprintf("notify: not %q", o.Notify), Hint: "want desktop or none"}
	}
	if strings.ContainsRune(o.OnWarn, 0) {
		return nil, &Error{Kind: ErrUsage, Text: "on warn: a command line with a NUL byte"}
	}
	p := store.MemoryPolicy{Warn: first(o.Warn, cfg.Warn), OnWarn: first(o.OnWarn, cfg.OnWarn), Notify: first(o.Notify, cfg.Notify), Protected: o.Protected}
	if p.OnWarn == "-" {
		p.OnWarn = ""
	}
	if p.Notify == "none" {
		p.Notify = ""
	}
	steps := memlimit.Steps(0)
	if cfg.Steps != nil {
		steps = *cfg.Steps
	}
	if o.Steps != nil {
		steps = *o.Steps
	}
	if steps != 0 {
		p.Steps = steps.String()
	}
	if p == (store.MemoryPolicy{}) {
		return nil, nil
	}
	return &p, nil
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// MemoryWatch is what a guard has to know of a session to watch its memory.
type MemoryWatch struct {
	// Policy says that somebody must watch; Warn that people are told.
	Policy, Warn bool
	// Path and Inode are of its box; "" for none that can be seen.
	Path  string
	Inode uint64
	// Lineage is the id of a session that no cgroup holds: see [Manager.Holding]. Around are
	// those that it is in, from the inside out.
	Lineage string
	Around  []string
	// Ceiling is what was asked for, in force or not; memlimit.Infinity for none.
	Ceiling uint64
	// High is the memory.high that was asked for; memlimit.Infinity for none. Brake is what
	// a guard has set it to, 0 if it has not.
	High, Brake uint64
	// Lifted says that a guard has lifted High.
	Lifted bool
	// OnWarn is a command line, run in Cwd; Notify is "" or "desktop".
	OnWarn, Cwd, Notify string
	Steps               memlimit.Steps
	Protected           bool
	// Opened is when it was, by the monotonic clock; 0: long ago.
	Opened time.Duration
	// Active is when it was last used, InUse that a command somebody waits for runs in
	// it; Supervisors are those who wait.
	Active      time.Duration
	InUse       bool
	Supervisors []ProcessID
	// Frozen and Thawed are those of [store.MemoryPolicy].
	Frozen, Thawed time.Duration
	// Hibernated says that it was; it means something only while it is frozen.
	Hibernated bool
}

// Place is what the session's memory is known by among others: the path of its box, or that
// it has none; "" when nobody can look.
func (w *MemoryWatch) Place() string {
	if w.Lineage != "" {
		return PlaceOfLineage(w.Lineage)
	}
	return w.Path
}

// PlaceOfLineage is [MemoryWatch.Place] of a session in a lineage box.
func PlaceOfLineage(id string) string { return "lineage:" + id }

// memoryWatch fills in what concerns the memory of an open session.
func memoryWatch(rec *store.Session, tasks []store.Task) MemoryWatch {
	w := MemoryWatch{Path: rec.Path, Inode: rec.Inode, Ceiling: memlimit.Infinity, High: memlimit.Infinity, Cwd: rec.Cwd, Opened: rec.Opened, Hibernated: rec.Hibernated != nil}
	if l, err := memlimit.FromOCI(rec.Limits); err == nil {
		if n, ok := l.MemoryMax.Value(); ok {
			w.Ceiling = n
		}
		if n, ok := l.MemoryHigh.Value(); ok {
			w.High = n
		}
	}
	w.Active, w.InUse = lastActive(rec, tasks)
	for i := range tasks {
		if t := &tasks[i]; !t.State.Ended() && !t.Detached && t.Supervisor.PID != 0 {
			w.Supervisors = append(w.Supervisors, proc.ID(t.Supervisor))
		}
	}
	p := rec.Memory
	if p == nil {
		p = &store.MemoryPolicy{}
	}
	w.OnWarn, w.Notify, w.Protected, w.Frozen, w.Thawed = p.OnWarn, p.Notify, p.Protected, p.Frozen, p.Thawed
	// Steps of another version: those that it does not know it does not take.
	w.Steps, _ = memlimit.ParseSteps(p.Steps)
	w.Warn = p.Warn == "on" || p.Warn == "" && (w.Ceiling != memlimit.Infinity || w.High != memlimit.Infinity || w.OnWarn != "" || w.Notify != "")
	w.Brake, w.Lifted = p.Brake, p.Lifted != nil && w.High != memlimit.Infinity
	w.Policy = w.Warn || w.Steps != 0 || w.Frozen != 0 || w.Brake != 0 || w.Lifted // what a guard froze it thaws
	if rec.Kind == store.KindLineage {
		w.Lineage = rec.ID
		w.Steps &^= memlimit.MayBrake | memlimit.MayHibernate // there is nothing to write to
	}
	return w
}

// watchesMemory says whether somebody must watch a session's memory.
func watchesMemory(rec *store.Session) bool { w := memoryWatch(rec, nil); return w.Policy }

// WatchesMemory says whether a guard is to watch the session's memory.
func (s *Session) WatchesMemory() bool { return watchesMemory(&s.rec) }

// memoryWatchInfo is what [Info] says of it; nil: nobody watches.
func memoryWatchInfo(rec *store.Session, frozen bool) *MemoryWatchInfo {
	w := memoryWatch(rec, nil)
	if rec.State != store.StateOpen || !w.Policy && !w.Protected {
		return nil
	}
	i := &MemoryWatchInfo{Warn: w.Warn, OnWarn: w.OnWarn, Notify: w.Notify, Steps: w.Steps.String(), Protected: w.Protected}
	if w.Lifted {
		i.HighLifted = &HighLiftedInfo{HighBytes: w.High, At: rec.Memory.Lifted.At, Reason: rec.Memory.Lifted.Reason}
	}
	if frozen && w.Frozen != 0 {
		since := (proc.Clock() - w.Frozen).Seconds()
		i.FrozenSeconds = &since
	}
	return i
}
