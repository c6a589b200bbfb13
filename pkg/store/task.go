package store

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// TaskState is what became of a task.
type TaskState string

// The states of a task.
const (
	TaskStarting  TaskState = "starting"   // recorded, not yet started
	TaskRunning   TaskState = "running"    // its supervisor watches it
	TaskExited    TaskState = "exited"     // exit status 0
	TaskFailed    TaskState = "failed"     // another exit status, or never started (Reason)
	TaskSignaled  TaskState = "signaled"   // by a signal that we did not send
	TaskTimedOut  TaskState = "timed_out"  // ended by its timeout
	TaskKilled    TaskState = "killed"     // ended by us
	TaskOOMKilled TaskState = "oom_killed" // by the kernel; Reason says whose limit
	TaskOrphaned  TaskState = "orphaned"   // its supervisor is gone, the process is verified alive
	TaskLost      TaskState = "lost"       // cannot be checked
)

// Ended tells whether the state is final: the command is known to have ended.
// TaskOrphaned (alive) and TaskLost (unknown) are not.
func (s TaskState) Ended() bool {
	switch s {
	case TaskExited, TaskFailed, TaskSignaled, TaskTimedOut, TaskKilled, TaskOOMKilled:
		return true
	default:
		return false
	}
}

// Task is the record of one command started in a session.
type Task struct {
	Schema int `json:"schema"` // set by AddTask and PutTask
	// N is the task's number in its session, from 1. The file's name decides.
	N     int      `json:"n,omitempty"`
	Argv  []string `json:"argv"`
	Cwd   string   `json:"cwd,omitempty"`
	PID   int      `json:"pid,omitempty"`           // 0 until started
	Start uint64   `json:"start,omitempty"`         // see ProcID.Start
	NS    uint64   `json:"pid_namespace,omitempty"` // see ProcID.NS
	// Started and Ended are stored in UTC.
	Started time.Time  `json:"started"`
	Ended   *time.Time `json:"ended,omitempty"`
	State   TaskState  `json:"state"`
	Exit    *int       `json:"exit,omitempty"`   // exit status, nil if it did not exit
	Signal  string     `json:"signal,omitempty"` // "SIGKILL"
	Reason  string     `json:"reason,omitempty"` // for people: why it is in this state
	// Ending is set by whoever is about to end a running task: what its end is
	// to be called.
	Ending TaskState `json:"ending,omitempty"`

	// StartClock and EndClock are Started and Ended on the monotonic clock, which
	// nobody can set; it means something under the session's boot id.
	StartClock time.Duration `json:"started_clock_seconds,omitempty"`
	EndClock   time.Duration `json:"ended_clock_seconds,omitempty"`

	Timeout time.Duration `json:"timeout_seconds,omitempty"` // 0 = none
	// KillAfter is the time between SIGTERM and SIGKILL when Timeout is over; 0: the
	// session's grace.
	KillAfter time.Duration `json:"kill_after_seconds,omitempty"`
	Detached  bool          `json:"detached,omitempty"`
	// Adopted says that its processes ran before and were brought in: nobody of ours
	// started the command or waits for it.
	Adopted bool `json:"adopted,omitempty"`
	// Log is the directory that holds the command's output, "" when it is not kept.
	Log string `json:"log,omitempty"`
	// Moved names where the task is now, "ID/N": it was kept when it ran here.
	Moved string `json:"moved,omitempty"`
	// Supervisor is the process that waits for the task and will record its end.
	Supervisor ProcID  `json:"supervisor"`
	Leaf       string  `json:"leaf,omitempty"`       // name of its leaf, below the box
	PeakBytes  *uint64 `json:"peak_bytes,omitempty"` // most memory it held
	// OOM is what the kernel killed of it for want of memory; Mark what had been
	// counted when it began.
	OOM  *memlimit.Kill `json:"oom,omitempty"`
	Mark *memlimit.Mark `json:"oom_before,omitempty"`

	// Extra holds unknown fields, as in Session.
	Extra map[string]json.RawMessage `json:"-"`
}

// MarshalJSON writes the record as it is stored, Extra included.
func (t Task) MarshalJSON() ([]byte, error) { return encodeRecord(taskLayout(), &t, t.Extra) }

// UnmarshalJSON reads a stored record without judging it, see Check.
func (t *Task) UnmarshalJSON(b []byte) error {
	var out Task
	extra, err := decodeRecord(taskLayout(), b, &out)
	if err != nil {
		return err
	}
	out.Extra = extra
	*t = out
	return nil
}

// ID is the identity of the task's process under the given boot id.
func (t *Task) ID(boot string) ProcID {
	return ProcID{PID: t.PID, Start: t.Start, Boot: boot, NS: t.NS}
}

// Check tells what makes the record unusable, as Session.Check does. A task's
// pid is never 1 or below: nothing we start is, and nobody may ever signal that.
func (t *Task) Check() error {
	if err := checkSchema(t.Schema); err != nil {
		return err
	}
	if t.N < 0 || t.N > maxTask {
		return fmt.Errorf("task number %d is out of range", t.N)
	}
	switch t.State {
	case TaskStarting, TaskRunning, TaskExited, TaskFailed, TaskSignaled, TaskTimedOut,
		TaskKilled, TaskOOMKilled, TaskOrphaned, TaskLost:
	default:
		return fmt.Errorf("state %q is not one of a task", t.State)
	}
	if t.PID < 0 || t.PID == 1 || t.PID > maxPID {
		return fmt.Errorf("pid %d is not one that a task can have", t.PID)
	}
	if t.Timeout < 0 || t.KillAfter < 0 {
		return fmt.Errorf("timeout %v, kill after %v: negative", t.Timeout, t.KillAfter)
	}
	return t.Supervisor.check("supervisor")
}
