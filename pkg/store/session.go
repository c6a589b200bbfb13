package store

import (
	"encoding/json"
	"fmt"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// Schema is the version of the records that this package writes, and the newest
// that it reads.
const Schema = 1

// State is where a session is in its life.
type State string

// The states of a session, in the order they are gone through.
const (
	StateOpening State = "opening" // name and id are claimed, the box is being made
	StateOpen    State = "open"
	StateClosing State = "closing" // the gate is shut: no new tasks
	StateClosed  State = "closed"  // proven empty; its name is free to be claimed
)

// Kind is the kind of box that holds a session's processes.
type Kind string

// The kinds of boxes.
const (
	KindSystemd Kind = "systemd"
	KindCgroup  Kind = "cgroup"
	KindLineage Kind = "lineage"
)

// ProcID names one process for good: a pid alone is reused.
type ProcID struct {
	// PID is the process id, 0 when there is no process.
	PID int `json:"pid"`
	// Start is the start time as the operating system counts it: on Linux clock
	// ticks since boot (field 22 of /proc/PID/stat).
	Start uint64 `json:"start"`
	// Boot is the boot id under which PID and Start mean something.
	Boot string `json:"boot,omitempty"`
	// NS is the inode of the pid namespace that PID is of, 0 when it is not known.
	NS uint64 `json:"pid_namespace,omitempty"`
}

// OwnerExit is what happens to a session when its owner is gone.
type OwnerExit string

// What can happen when an owner is gone.
const (
	OwnerExitClose OwnerExit = "close" // the session is closed; also what "" means
	OwnerExitKeep  OwnerExit = "keep"  // it stays, with no owner
)

// IdleAction is what happens to a session that was idle for long enough.
type IdleAction string

// What can happen to an idle session.
const (
	IdleWarn   IdleAction = "warn" // an event tells of it; also what "" means
	IdleFreeze IdleAction = "freeze"
	IdleClose  IdleAction = "close"
)

// OOMPolicy is what the kernel kills when a task runs out of memory.
type OOMPolicy string

// What can be killed for want of memory.
const (
	OOMProcess OOMPolicy = "process" // the one that holds most; also what "" means
	OOMTask    OOMPolicy = "task"    // all of its task
)

// Owner is on whose behalf a session exists: a process, or whoever renews a lease.
type Owner struct {
	Process ProcID   `json:"process"`           // PID 0: a lease
	Command []string `json:"command,omitempty"` // of the process, for people
	// Lease is how long the owner may be silent; 0: it is a process.
	Lease time.Duration `json:"lease_seconds,omitempty"`
	// Ends is when the lease ends unless it is renewed: a reading of the monotonic
	// clock of the boot Boot, which nobody can set.
	Ends time.Duration `json:"ends_clock_seconds,omitempty"`
	Boot string        `json:"boot,omitempty"`
	// Generation counts the owners of the session, from 1. It only grows: whoever
	// acts for an earlier one was taken over from.
	Generation int       `json:"generation"`
	Since      time.Time `json:"since"` // stored in UTC
}

// Container says that a session is an OCI container.
type Container struct {
	ID      string `json:"id"`      // for its runtime
	Bundle  string `json:"bundle"`  // the user's, absolute
	Runtime string `json:"runtime"` // absolute path of the program
	// Init is the container's first process, a program of ours.
	Init ProcID `json:"init"`
}

// Door is one way out of a session's box.
type Door struct {
	Name   string `json:"door"`
	Closed bool   `json:"closed"`
	Text   string `json:"text"` // how it is closed, or why not
}

// Session is the record of one session.
type Session struct {
	Schema int               `json:"schema"`         // set by Claim and Put
	ID     string            `json:"id"`             // [a-z0-9]{10}, see NewID
	Name   string            `json:"name,omitempty"` // see ValidName
	Labels map[string]string `json:"labels,omitempty"`
	State  State             `json:"state"`
	// Created is when the session was opened; Closing and Closed are when those
	// states were entered. All are stored in UTC.
	Created  time.Time  `json:"created"`
	Closing  *time.Time `json:"closing,omitempty"`
	ClosedAt *time.Time `json:"closed,omitempty"`

	Boot string `json:"boot"` // boot id at creation
	// Opened is Created by the monotonic clock, which nobody can set; 0: not known.
	Opened  time.Duration `json:"opened_clock_seconds,omitempty"`
	Machine string        `json:"machine,omitempty"` // /etc/machine-id, may be empty
	UID     int           `json:"uid"`               // whose session it is

	Kind Kind `json:"kind"`
	// Lineage is how a lineage box holds: "direct", "job"; "" is the former.
	Lineage string `json:"lineage_mode,omitempty"`
	Path    string `json:"path,omitempty"`  // cgroup path of the box
	Inode   uint64 `json:"inode,omitempty"` // of the box's cgroup directory
	// Mount and MountInode are where the cgroup tree was seen: only who sees the
	// same one can tell that the box is gone.
	Mount      string `json:"mount,omitempty"`
	MountInode uint64 `json:"mount_inode,omitempty"`
	Unit       string `json:"unit,omitempty"`   // the systemd slice, or the label of the launchd job
	Parent     string `json:"parent,omitempty"` // id of the enclosing session
	Cookie     string `json:"cookie,omitempty"` // see NewCookie

	// Grace is how long a close waits between SIGTERM and the kill; stored in
	// seconds.
	Grace  time.Duration         `json:"grace_seconds"`
	Limits *specs.LinuxResources `json:"limits,omitempty"`
	// OOMPolicy is for its tasks, each by itself.
	OOMPolicy OOMPolicy `json:"oom_policy,omitempty"`

	Creator ProcID `json:"creator"` // the process that opened it
	Cwd     string `json:"cwd,omitempty"`
	// StateDir is where the record is kept: the box carries a copy of it, and may be
	// seen by who keeps records elsewhere.
	StateDir string `json:"state_dir,omitempty"`

	// Owner is nil when the session is nobody's: it stays until it is closed.
	Owner *Owner `json:"owner,omitempty"`
	// Former are the processes that owned it before, the newest last.
	Former []ProcID `json:"former_owners,omitempty"`
	// Generation is that of the newest owner, 0 when there was none.
	Generation int `json:"generation,omitempty"`
	// OnOwnerExit is what happens when the owner is gone.
	OnOwnerExit OwnerExit `json:"on_owner_exit,omitempty"`

	// IdleTimeout is how long the session may be idle, 0: for ever; IdleAction is
	// what happens then.
	IdleTimeout time.Duration `json:"idle_timeout_seconds,omitempty"`
	IdleAction  IdleAction    `json:"idle_action,omitempty"`
	// Active is when something was last done in or to the session that counts as
	// activity: a reading of the monotonic clock. The start and end of a task are in
	// its own record. Sampled is when the box was last asked what it had used of the
	// processor, SampledCPU what it said.
	Active     time.Duration `json:"active_clock_seconds,omitempty"`
	Sampled    time.Duration `json:"sampled_clock_seconds,omitempty"`
	SampledCPU time.Duration `json:"sampled_cpu_seconds,omitempty"`
	// IdleDone is when IdleAction was last done, 0 when the session was active since.
	IdleDone time.Duration `json:"idle_done_clock_seconds,omitempty"`

	// Hibernated is since when the session is put out of memory; it means something
	// only while the box is frozen.
	Hibernated *time.Time `json:"hibernated,omitempty"`

	// Memory says what is done about its memory; nil: nothing was asked for.
	Memory *MemoryPolicy `json:"memory,omitempty"`

	// KeptFrom are the ids of the sessions that its processes were kept from: they
	// carry the marks of those.
	KeptFrom []string `json:"kept_from,omitempty"`
	// TmpDir is the session's own directory for temporary files, removed with it; ""
	// for none.
	TmpDir string `json:"tmp_dir,omitempty"`
	// KeptTmp are those of the sessions that its processes were kept from: they may use
	// them still.
	KeptTmp []string `json:"kept_tmp_dirs,omitempty"`
	// PrivateTmp makes TmpDir the TMPDIR of its commands.
	PrivateTmp bool `json:"private_tmp,omitempty"`

	// Container is nil when the session is no container.
	Container *Container `json:"container,omitempty"`

	// Strict says that for its commands the doors are closed that can be; Doors which those
	// are, found when it was opened.
	Strict bool   `json:"strict,omitempty"`
	Doors  []Door `json:"doors,omitempty"`
	// DoorEnv is what named doors in the environment that it was opened with.
	DoorEnv []string `json:"door_env,omitempty"`

	// Shims says that its commands find shims in their PATH, before docker and others.
	Shims bool `json:"shims,omitempty"`

	// Mark is what had been counted of want of memory around the box when it was made.
	Mark *memlimit.Mark `json:"oom_before,omitempty"`

	// Extra holds the fields this version does not know, as they were read: at
	// the top level by their name, inside a known object below that object's
	// name. They are written back by Put.
	Extra map[string]json.RawMessage `json:"-"`
}

// MarshalJSON writes the record as it is stored, Extra included.
func (s Session) MarshalJSON() ([]byte, error) { return encodeRecord(sessionLayout(), &s, s.Extra) }

// UnmarshalJSON reads a stored record. It does not judge it: the Store's methods
// do, see Check.
func (s *Session) UnmarshalJSON(b []byte) error {
	var out Session
	extra, err := decodeRecord(sessionLayout(), b, &out)
	if err != nil {
		return err
	}
	out.Extra = extra
	*s = out
	return nil
}

// Check tells what makes the record unusable: a schema newer than this version
// or none, an id, name, parent or state that is none, a pid that no process can
// have. Every record that the Store reads or writes has passed it.
func (s *Session) Check() error {
	if err := checkSchema(s.Schema); err != nil {
		return err
	}
	if !ValidID(s.ID) {
		return fmt.Errorf("id %q is not 10 of a-z0-9", s.ID)
	}
	if s.Name != "" && !ValidName(s.Name) {
		return fmt.Errorf("%w: %q", ErrBadName, s.Name)
	}
	if s.Parent != "" && !ValidID(s.Parent) {
		return fmt.Errorf("parent %q is not an id", s.Parent)
	}
	if s.Parent == s.ID {
		return fmt.Errorf("session %s is its own parent", s.ID)
	}
	switch s.State {
	case StateOpening, StateOpen, StateClosing, StateClosed:
	default:
		return fmt.Errorf("state %q is none of opening, open, closing, closed", s.State)
	}
	if s.Grace < 0 {
		return fmt.Errorf("grace %v is negative", s.Grace)
	}
	if err := s.Creator.check("creator"); err != nil {
		return err
	}
	if o := s.Owner; o != nil {
		if err := o.Process.check("owner"); err != nil {
			return err
		}
		if o.Generation < 1 || o.Lease < 0 {
			return fmt.Errorf("owner of generation %d with a lease of %v", o.Generation, o.Lease)
		}
	}
	if s.IdleTimeout < 0 {
		return fmt.Errorf("idle timeout %v is negative", s.IdleTimeout)
	}
	if err := s.Memory.check(); err != nil {
		return err
	}
	if c := s.Container; c != nil {
		if err := c.Init.check("container"); err != nil {
			return err
		}
	}
	for _, id := range s.KeptFrom {
		if !ValidID(id) {
			return fmt.Errorf("kept from %q, which is no id", id)
		}
	}
	return nil
}

func checkSchema(n int) error {
	switch {
	case n > Schema:
		return fmt.Errorf("schema %d is newer than %d: %w", n, Schema, ErrNewerSchema)
	case n < 1:
		return fmt.Errorf("schema %d: not a record of sessionbox", n)
	}
	return nil
}

// maxPID is PID_MAX_LIMIT of 64-bit Linux; macOS ends at 99999.
const maxPID = 1 << 22

// check refuses a pid that would reach other processes than one if it were ever
// signalled. Pid 1 is allowed: in a container the caller may be it.
func (p ProcID) check(what string) error {
	if p.PID < 0 || p.PID > maxPID {
		return fmt.Errorf("%s has pid %d, which no process can have", what, p.PID)
	}
	return nil
}
