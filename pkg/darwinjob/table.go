package darwinjob

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// Table is a system's process table: all that the tracker knows of a kernel. What it
// signals and reads is of the process that the ID names or of none; errors are those
// of package proc ([proc.ErrGone], [proc.ErrReused]) or say fs.ErrPermission.
type Table interface {
	// List reads all processes. One that lives during the whole of it is in it; the
	// rest of it is as inexact as the kernel's listing.
	List(ctx context.Context) (*Snapshot, error)
	// Lookup is whoever has the pid now.
	Lookup(pid int) (Proc, error)
	// Children are the living children of a process that is alive now; of one that has
	// ended it says proc.ErrGone. That there are none is said only if it is proven, else
	// ErrUnsettled. It may say errors.ErrUnsupported: it is a short cut.
	Children(parent ID) ([]Proc, error)
	// Marks reads what the process carries of ours, as far as want asks.
	Marks(id ID, want Marks) (Marks, error)
	// Signal reaches exactly this process, however late the caller is.
	Signal(id ID, sig syscall.Signal) error
	// Wait returns when one of the processes did something (ended, or forked where
	// the kernel tells), after d, or when ctx is done.
	Wait(ctx context.Context, ids []ID, d time.Duration)
	// Clock is monotonic.
	Clock() time.Duration
	// Memory is what the process holds, in bytes: phys_footprint on macOS, anonymous,
	// shared and swapped memory on Linux.
	Memory(id ID) (int64, error)
}

// Here is a snapshot that says whose table it is, of a process that lists nothing where the
// table can tell that without: enough for [NewLedger].
func Here(ctx context.Context, t Table) (*Snapshot, error) {
	if h, ok := t.(interface{ here() *Snapshot }); ok {
		return h.here(), nil
	}
	return t.List(ctx)
}

// ErrUnsettled says that children came faster than they could be looked at, all of them
// ended by then: what forks them lives.
var ErrUnsettled = errors.New("its children come and end faster than they can be read")

// Caps say what a table's kernel has.
type Caps struct {
	// Unique: each process has a unique id; one without is not to be named.
	Unique bool `json:"unique,omitempty"`
	// ParentVersion: [Proc.ParentVersion] means something (macOS 15.4).
	ParentVersion bool `json:"parent_version,omitempty"`
	// Coalition: processes belong to resource coalitions, which fork inherits.
	Coalition bool `json:"coalition,omitempty"`
	// Wrap is in how many forks no pid is given out twice, counted from the fork that
	// gave it out first; 0 is not known.
	Wrap uint64 `json:"wrap,omitempty"`
	// Self is the calling process.
	Self int `json:"self"`
	// UID is its effective user.
	UID int `json:"uid"`
}

// State of a process, as far as it matters here.
type State byte

// The states of a process. Exiting is one that the kernel is still taking apart; Zombie
// one that has ended, also if only while the table was read.
const (
	Running State = 'R'
	Blocked State = 'D' // it sleeps where no signal is heard, until the kernel lets it go
	Stopped State = 'T'
	Exiting State = 'E'
	Zombie  State = 'Z'
)

// Proc is one process of a listing. Numbers that could not be read are 0, UID is -1.
type Proc struct {
	ID
	PPID int    `json:"ppid"`
	PGID int    `json:"pgid"`
	SID  int    `json:"sid"`
	UID  int    `json:"uid"`
	Comm string `json:"comm,omitempty"`
	TTY  uint64 `json:"tty,omitempty"` // device of the controlling terminal

	State State `json:"state"`
	// Wait is the system's own letter for the state, for people.
	Wait string `json:"wait,omitempty"`

	// ParentUnique is XNU's p_puniqueid: the parent at the fork or, since macOS 13,
	// at the last exec (bsd/kern/kern_proc.c, pinsertchild).
	ParentUnique uint64 `json:"parent_unique,omitempty"`
	// Version is p_idversion, new at each fork and exec; ParentVersion that of the
	// parent at the fork (p_orig_ppidversion).
	Version       int32 `json:"version,omitempty"`
	ParentVersion int32 `json:"parent_version,omitempty"`
	// Coalition is its resource coalition.
	Coalition uint64 `json:"coalition,omitempty"`

	// Pinned says that identity, parent, group and session were read twice, before
	// and after all others, and agree. Numbers of two pinned processes that name each
	// other name what was meant: each reading of the one lies between the two of the other,
	// or the other way round.
	Pinned bool `json:"pinned,omitempty"`
}

// alive says whether it still can do something.
func (p *Proc) alive() bool { return p.State != Zombie }

// Snapshot is one reading of the process table.
type Snapshot struct {
	Boot string `json:"boot"`
	// Namespace is the inode of the pid namespace whose numbers these are, 0 where
	// there are none.
	Namespace uint64 `json:"namespace,omitempty"`
	Caps      Caps   `json:"caps"`
	Procs     []Proc `json:"procs"`
	// Blurred is how many processes were listed and were gone when read.
	Blurred int `json:"blurred,omitempty"`
	// Forks is how many forks the system had seen after the reading, and Ended its time then
	// or later in the unit of [ID.Start]; 0 where it does not tell.
	Forks uint64 `json:"forks,omitempty"`
	Ended uint64 `json:"ended,omitempty"`
	// Coalitions is how many tasks each resource coalition has, counted by the kernel at
	// one moment after the reading; nil where it does not tell.
	Coalitions map[uint64]int `json:"coalitions,omitempty"`
}

// Marks is what a process may carry of a session. As a wish, fields that are not zero
// are looked for; as an answer, they were found.
type Marks struct {
	Cookie   string // value of [EnvCookie] in the environment of its last exec
	Sentinel uint64 // identity of the session's pipe, which it holds open
	Cwd      string // a directory in or below which it works
	Exe      string // the file it runs; any value asks for it
	Keep     bool   // [EnvKeep] is 1
}

// Variables that mark a session's processes.
const (
	EnvCookie = "SESSIONBOX_COOKIE"
	EnvKeep   = "SESSIONBOX_KEEP"
)
