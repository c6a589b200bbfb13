package keeper

import (
	"encoding/json"
	"io"
	"strings"
	"syscall"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// Arg is the first argument of front and keeper. The role, the session and the leaf
// follow, so that a process can tell from its ancestors which session it runs in.
const Arg = "__keeper"

// EnvMeta is the variable in which front, keeper and watcher carry a copy of the session's
// record. The command does not get it.
const EnvMeta = "SESSIONBOX_META"

const (
	roleFront  = "front"
	roleKeeper = "keeper"
)

// Order is what a keeper is asked to do.
type Order struct {
	Sessions []string // the sessions around the command, outermost first; the last is its own
	Leaf     string
	Task     int
	Dirs     store.Dirs
	UID      int
	Cookie   string
	Path     string
	Args     []string
	Env      []string
	// Setsid gives the command a session of its own. Else it is in the caller's, and in
	// the caller's group, before a terminal.
	Setsid bool
	// Tied: the caller's death without a goodbye ends all.
	Tied bool
	// Job is the session's directory if that has a job, whose stub starts the keeper; else "".
	Job string
	// Supervisor is who records the end of the command, as long as it lives.
	Supervisor proc.ID
}

// ID is the session's.
func (o *Order) ID() string { return o.Sessions[len(o.Sessions)-1] }

// word is what a keeper says, to its caller and to its front.
type word struct {
	Errno  syscall.Errno       `json:"errno,omitempty"` // why the command could not be started
	Text   string              `json:"text,omitempty"`  // why it was not, for another reason
	PID    int                 `json:"pid,omitempty"`   // it runs
	Start  uint64              `json:"start,omitempty"`
	Order  *Order              `json:"order,omitempty"`  // for a front that has to go on
	Freed  bool                `json:"freed,omitempty"`  // the caller has said goodbye
	Status *syscall.WaitStatus `json:"status,omitempty"` // it has ended
	Left   bool                `json:"left,omitempty"`   // something of it has not
}

func say(w io.Writer, what word) {
	// A caller that is gone hears nothing, and nothing depends on it.
	_ = json.NewEncoder(w).Encode(what)
}

// Session says of the command line of a process whether it is a front, keeper or stub, and which
// sessions it stands for, outermost first.
func Session(argv []string) (ids []string, ok bool) {
	if len(argv) < 5 || argv[1] != Arg || argv[2] != roleFront && argv[2] != roleKeeper && argv[2] != roleWatcher && argv[2] != roleStub {
		return nil, false
	}
	ids = strings.Split(argv[3], "-")
	for _, id := range ids {
		if !store.ValidID(id) {
			return nil, false
		}
	}
	return ids, true
}
