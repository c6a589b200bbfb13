package session

import (
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// Schema is the version of the JSON that the types of this file make. Fields are
// added within a version, never changed or removed: readers ignore what they do
// not know.
const Schema = 1

// Info is what is known of a session: from its record what it is called, from
// the kernel what is alive.
type Info struct {
	Schema     int               `json:"schema"`
	ID         string            `json:"id"`
	Name       string            `json:"name,omitempty"`
	State      string            `json:"state"` // opening, open, closing, closed, broken
	Labels     map[string]string `json:"labels,omitempty"`
	Created    time.Time         `json:"created"`
	AgeSeconds float64           `json:"age_seconds"`
	Closed     *time.Time        `json:"closed,omitempty"`
	Parent     string            `json:"parent,omitempty"`
	Cwd        string            `json:"cwd,omitempty"`
	Grace      float64           `json:"grace_seconds"`
	// Owner is absent when the session is nobody's.
	Owner *OwnerInfo `json:"owner,omitempty"`
	// Idle is absent when the session may be idle for ever.
	Idle *IdleInfo `json:"idle,omitempty"`
	// MemoryWatch is absent when nobody watches its memory.
	MemoryWatch *MemoryWatchInfo `json:"memory_watch,omitempty"`
	// KeptFrom are the ids of the sessions that its processes were kept from.
	KeptFrom []string `json:"kept_from,omitempty"`
	// TmpDir is its directory for temporary files, removed when it is closed.
	TmpDir string `json:"tmp_dir,omitempty"`
	// Strict is absent when its commands may ask others to start something for them.
	Strict *StrictInfo `json:"strict,omitempty"`
	// Container is absent when the session is no OCI container.
	Container *ContainerInfo `json:"container,omitempty"`
	Box       BoxInfo        `json:"box"`
	Tasks     []TaskInfo     `json:"tasks"`
	// Running counts tasks whose command lives; Leftovers the processes that
	// outlived their command; Processes all that are alive in the box.
	Running   int       `json:"running"`
	Leftovers int       `json:"leftovers"`
	Processes int       `json:"processes"`
	Usage     UsageInfo `json:"usage"`
	// OOM is what the kernel killed in it for want of memory since it was opened, and
	// for whose limit; absent when nothing was.
	OOM *memlimit.Kill `json:"oom,omitempty"`
	// OOMPolicy is what the kernel is to kill then; absent when that was not said.
	OOMPolicy *OOMInfo           `json:"oom_policy,omitempty"`
	Limits    []memlimit.Ceiling `json:"limits"`
	Ports     []Port             `json:"ports"`
	// Suspects may be of the session, which cannot be proven: a close leaves them alone. They
	// are looked for in a lineage box, and not for a list of many.
	Suspects []Process `json:"suspects,omitempty"`
	// Served are daemons in it that serve others now: in the answer of inspect.
	Served []Served `json:"served,omitempty"`
	// Shims says that its commands find shims before docker and others. Containers, Units
	// and Jobs are what others run for it: engines, a systemd manager, at and cron; in the
	// answers of inspect and, but for jobs, of ls.
	Shims      bool             `json:"shims,omitempty"`
	Containers []HiredContainer `json:"containers,omitempty"`
	Units      []UnitInfo       `json:"units,omitempty"`
	Jobs       []JobInfo        `json:"jobs,omitempty"`
	// Problems says what is wrong with the session's record or box, for people.
	Problems []string `json:"problems,omitempty"`
}

// StrictInfo says which ways out of its box are closed to a session's commands.
type StrictInfo struct {
	Doors []store.Door `json:"doors"`
}

// IdleInfo says for how long a session was not used.
type IdleInfo struct {
	TimeoutSeconds float64 `json:"timeout_seconds"`
	Action         string  `json:"action"` // warn, freeze, close
	IdleSeconds    float64 `json:"idle_seconds"`
	InUse          bool    `json:"in_use"` // a command that somebody waits for runs in it
}

// MemoryWatchInfo says what a guard does about the memory of a session.
type MemoryWatchInfo struct {
	Warn      bool   `json:"warn"`
	OnWarn    string `json:"on_warn,omitempty"`
	Notify    string `json:"notify,omitempty"` // desktop
	Steps     string `json:"steps"`            // "warn,freeze"
	Protected bool   `json:"protected"`
	// FrozenSeconds is for how long it has been frozen for want of memory, absent when
	// it is not.
	FrozenSeconds *float64 `json:"frozen_seconds,omitempty"`
	// HighLifted says that a guard has lifted the memory.high that was asked for, absent when
	// it is in force.
	HighLifted *HighLiftedInfo `json:"high_lifted,omitempty"`
}

// HighLiftedInfo says when and why a guard has lifted a memory.high.
type HighLiftedInfo struct {
	HighBytes uint64    `json:"high_bytes"` // as it was asked for
	At        time.Time `json:"at"`
	Reason    string    `json:"reason"`
}

// How far a box holds what is in it, see [BoxInfo].
const (
	ByKernel    = "kernel"      // nothing can leave it
	ByCoalition = "coalition"   // what launchd started for the session, and its descendants (macOS)
	BestEffort  = "best effort" // as far as ancestry, process groups, sessions and cookies tell
)

// BoxInfo says what holds the session's processes.
type BoxInfo struct {
	Kind        string `json:"kind"`        // systemd, cgroup, lineage
	Containment string `json:"containment"` // kernel, coalition, best effort
	// MayEscape says what the box cannot hold, absent when the kernel holds everything.
	MayEscape []string `json:"may_escape,omitempty"`
	Path      string   `json:"path,omitempty"`
	Inode     uint64   `json:"inode,omitempty"`
	Unit      string   `json:"unit,omitempty"`
	Frozen    bool     `json:"frozen"`
	// Hibernated says that it is frozen and was put out of memory, or was about to be:
	// the next command that is started in it wakes it.
	Hibernated bool `json:"hibernated,omitempty"`
	Gone       bool `json:"gone,omitempty"` // the kernel object no longer exists
}

// TaskInfo is one command started in a session.
type TaskInfo struct {
	N        int        `json:"task"`
	State    string     `json:"state"` // see store.TaskState
	Argv     []string   `json:"argv"`
	Cwd      string     `json:"cwd,omitempty"`
	PID      int        `json:"pid,omitempty"`
	Start    uint64     `json:"start,omitempty"` // clock ticks since boot
	Started  time.Time  `json:"started"`
	Ended    *time.Time `json:"ended,omitempty"`
	Exit     *int       `json:"exit,omitempty"`
	Signal   string     `json:"signal,omitempty"`
	Reason   string     `json:"reason,omitempty"`
	Detached bool       `json:"detached,omitempty"`
	// Adopted says that it ran before it was brought into the session.
	Adopted bool    `json:"adopted,omitempty"`
	Timeout float64 `json:"timeout_seconds,omitempty"`
	// Log is the directory that holds the command's output, if that is kept.
	Log string `json:"log,omitempty"`
	// Leftovers counts what is alive in the task's leaf after its command ended.
	Leftovers int `json:"leftovers"`
	// PeakBytes is the most memory it was charged, page cache included; absent where
	// the kernel does not record it (before Linux 5.19).
	PeakBytes *uint64 `json:"peak_bytes,omitempty"`
	// OOM is what the kernel killed of it for want of memory; absent when nothing was.
	OOM       *memlimit.Kill `json:"oom,omitempty"`
	Processes []Process      `json:"processes"`
}

// Process is one process of a session.
type Process struct {
	PID     int      `json:"pid"`
	Start   uint64   `json:"start"` // clock ticks since boot
	PPID    int      `json:"ppid"`
	Task    int      `json:"task,omitempty"` // 0: of none
	Session string   `json:"session"`        // id; another than asked for when nested
	Comm    string   `json:"comm"`
	Argv    []string `json:"argv"`
	State   string   `json:"state"` // one letter as in ps
	UID     int      `json:"uid"`
	// AgeSeconds is since it started.
	AgeSeconds float64 `json:"age_seconds"`
	// MemoryBytes is anonymous, shared and swapped memory, as far as readable.
	MemoryBytes int64 `json:"memory_bytes"`
	// CPUSeconds is the processor time that it has used itself.
	CPUSeconds float64 `json:"cpu_seconds"`
	// Escaped says how it left the reach of process-group cleaners: "setsid"
	// (a session of its own), "reparented", "setsid, reparented"; else "".
	Escaped string `json:"escaped,omitempty"`
	Ports   []Port `json:"ports,omitempty"`

	sid int // its session in the sense of setsid(2)
}

// Port is a listening socket.
type Port struct {
	Proto   string `json:"proto"` // tcp, tcp6, udp, udp6
	Address string `json:"address"`
	Port    int    `json:"port"`
	PID     int    `json:"pid"`
}

// Fates of a process at the close of its session.
const (
	FateEnded    = "ended"    // ended by itself on SIGTERM, within the grace
	FateKilled   = "killed"   // ended by SIGKILL
	FateSurvived = "survived" // still there
)

// Receipt is what a close found and did.
type Receipt struct {
	Schema     int       `json:"schema"`
	ID         string    `json:"id"`
	Name       string    `json:"name,omitempty"`
	Box        BoxInfo   `json:"box"`
	Opened     time.Time `json:"opened"`
	Closed     time.Time `json:"closed"`
	AgeSeconds float64   `json:"age_seconds"`
	// TookSeconds is how long the close took.
	TookSeconds float64 `json:"took_seconds"`
	DryRun      bool    `json:"dry_run,omitempty"`
	// AlreadyClosed: there was nothing to do, this is the earlier receipt.
	AlreadyClosed bool `json:"already_closed,omitempty"`
	// Reason is why it was closed, absent when somebody asked for it.
	Reason string `json:"reason,omitempty"`
	// Resumed: an earlier close was interrupted, this one finished it.
	Resumed   bool    `json:"resumed,omitempty"`
	Processes []Fated `json:"processes"` // what was alive in the box
	Strays    []Fated `json:"strays"`    // ours by their cookie, outside the box
	// Survivors is what is left and why; empty when the session is closed.
	Survivors []proc.Survivor `json:"survivors"`
	Tasks     []TaskInfo      `json:"tasks"`
	Nested    []Receipt       `json:"nested"` // sessions inside this one, closed first
	// Suspects carry the session's cookie, or something else speaks for them, and were not ended: it cannot be told
	// that they are its own.
	Suspects []Process `json:"suspects,omitempty"`
	// Containers, Units and Jobs are what others started for it, with what became of each;
	// suspects among them were left alone.
	Containers []HiredContainer `json:"containers,omitempty"`
	Units      []UnitInfo       `json:"units,omitempty"`
	Jobs       []JobInfo        `json:"jobs,omitempty"`
	// Served are daemons in it that served others; those that were spared are among Kept.
	Served []Served `json:"served,omitempty"`
	// Kept asked for it by SESSIONBOX_KEEP=1, or serves others, and lives on in a session of its own.
	Kept []Process `json:"kept,omitempty"`
	// Forgotten: it is not closed, and its record was dropped, as was asked for.
	Forgotten bool `json:"forgotten,omitempty"`
	// Error is why the session is not closed, "" when it is.
	Error string    `json:"error,omitempty"`
	Usage UsageInfo `json:"usage"`
	// OOM is what the kernel killed in it for want of memory, as in [Info].
	OOM *memlimit.Kill `json:"oom,omitempty"`
	// Notes is what else the reader should know, e.g. that a unit was left.
	Notes []string `json:"notes,omitempty"`
}

// Fated is a process and what became of it.
type Fated struct {
	Process
	Fate string `json:"fate"` // ended, killed, survived; alive in a dry run
}

// addNested adds the receipt of a nested session; a later one of the same session
// says how it ended, the first one what was found.
func (r *Receipt) addNested(n *Receipt) {
	for i := range r.Nested {
		if old := &r.Nested[i]; old.ID == n.ID {
			n.resume(old, n.Clean(), n.Clean())
			*old = *n
			return
		}
	}
	r.Nested = append(r.Nested, *n)
}

// Clean says that nothing of the session is left.
func (r *Receipt) Clean() bool {
	if len(r.Survivors) > 0 || r.Error != "" {
		return false
	}
	for i := range r.Nested {
		if !r.Nested[i].Clean() {
			return false
		}
	}
	return true
}

// Suspected counts what was left alone because nothing proves whose it is.
func (r *Receipt) Suspected() int {
	n := len(r.Suspects)
	for i := range r.Containers {
		n += 1 - proven(r.Containers[i].Fate)
	}
	for i := range r.Units {
		n += 1 - proven(r.Units[i].Fate)
	}
	for i := range r.Jobs {
		n += 1 - proven(r.Jobs[i].Fate)
	}
	for i := range r.Nested {
		n += r.Nested[i].Suspected()
	}
	return n
}

// proven is 1 for what is the session's.
func proven(fate string) int {
	if fate == FateSuspect {
		return 0
	}
	return 1
}

// Swept counts what was alive, with strays, what others had started, and nested sessions.
func (r *Receipt) Swept() int {
	n := len(r.Processes) + len(r.Strays)
	for i := range r.Containers {
		n += proven(r.Containers[i].Fate)
	}
	for i := range r.Units {
		n += proven(r.Units[i].Fate)
	}
	for i := range r.Jobs {
		n += proven(r.Jobs[i].Fate)
	}
	for i := range r.Nested {
		n += r.Nested[i].Swept()
	}
	return n
}
