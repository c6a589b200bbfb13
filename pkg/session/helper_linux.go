package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/anchor"
	"github.com/sessionbox/sessionbox/pkg/internal/park"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/scope"
	"github.com/sessionbox/sessionbox/pkg/store"
	"golang.org/x/sys/unix"
)

// Helper runs this process as one of the package's helpers if it was started as
// one; the program must then exit with the code. Call it first in main, with
// os.Args, in a program that names itself as [Config].Helper.
func Helper(args []string) (code int, done bool) {
	if len(args) < 2 {
		return 0, false
	}
	switch args[1] {
	case park.Arg:
		return park.Main(args[2:]), true
	case SuperviseArg:
		return report("supervisor", superviseMain()), true
	case LogArg:
		return report("log", logMain(args[2:])), true
	case anchor.Arg:
		return report("anchor", anchorMain(args[2:])), true
	case GuardArg: // the main of a program must not go on as if nothing was asked
		return report("guard", errNoGuard), true
	}
	return 0, false
}

// errNoGuard: pkg/guard stands on this package, which cannot call it.
var errNoGuard = errors.New("this program is no guard: it has to call guard.Helper before session.Helper")

func report(who string, err error) int {
	if err != nil {
		fmt.Fprintf(os.Stderr, "sessionbox: %s: %v\n", who, err)
		return 1
	}
	return 0
}

// anchorArgv is the command line of the anchor of a session.
func (m *Manager) anchorArgv(helper, id string) []string {
	return []string{helper, anchor.Arg, id, m.store.SessionDir(id), m.store.Dirs().History}
}

// anchorMain is the process in the box's anchor leaf: args are the session's id
// and the directories of its records and of the history.
func anchorMain(args []string) error {
	byPipe := len(args) == 4 && args[3] == readyByPipe
	if len(args) != 3 && !byPipe {
		return fmt.Errorf("want ID DIR HISTORY, got %q", args)
	}
	id, dir := args[0], args[1]
	if byPipe {
		closeInherited(readyFD)
	} else {
		closeInherited()
	}
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()

	mount, err := cgroup.FindMount()
	if err != nil {
		return err
	}
	own, err := cgroup.Own(mount)
	if err != nil {
		return err
	}
	if filepath.Base(own) != cgroup.AnchorLeaf { // the main process of a unit
		if err := scope.Settle(own); err != nil {
			return err
		}
		own = filepath.Join(own, cgroup.AnchorLeaf)
	}
	work, err := cgroup.Open(filepath.Dir(own))
	if err != nil {
		return err
	}
	defer work.Close()

	// dir is STATE/sessions/ID.
	st, err := store.Open(store.Dirs{State: filepath.Dir(filepath.Dir(dir)), History: args[2], UID: os.Geteuid(), Given: true})
	if err != nil {
		return err
	}
	srv := anchor.Server{Dir: dir, Work: work, Abandoned: func(task int) { recordAbandoned(st, id, task) }}
	return srv.Run(ctx, func() { anchorReady(byPipe) })
}

// readyByPipe is the last argument of an anchor that is to say on readyFD that it
// is ready, rather than to systemd. The environment would not do: ours may have
// the socket of a manager that waits for somebody else.
const readyByPipe = "pipe"

// readyFD is where who started an anchor waits for it, if that is not systemd.
const readyFD = 3

// closeInherited closes what our starter had open and did not mean us to have: a
// pipe that we hold as long as the session lives would never end for its reader.
// What Go opens by itself closes on exec, so the rest was inherited.
func closeInherited(keep ...int) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < 3 || slices.Contains(keep, fd) {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
}

// anchorReady tells whoever started us: systemd, or the holder of a pipe.
func anchorReady(byPipe bool) {
	if !byPipe {
		scope.NotifyReady() // if it fails the start times out and says so
		return
	}
	if f := os.NewFile(readyFD, "ready"); f != nil {
		f.Write([]byte{1})
		f.Close()
	}
}

// recordAbandoned notes why the task ended, before it is ended.
func recordAbandoned(st *store.Store, id string, task int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	now := time.Now()
	const reason = "its supervisor died"
	_, err := st.UpdateTask(ctx, id, task, func(t *store.Task) error {
		if t.State.Ended() {
			return errAlreadyEnded
		}
		t.State, t.Ended, t.EndClock, t.Reason = store.TaskKilled, &now, proc.Clock(), reason
		return nil
	})
	if err != nil { // the kill does not depend on it
		return
	}
	detail, err := json.Marshal(map[string]any{"state": store.TaskKilled, "reason": reason})
	if err == nil {
		st.Append(ctx, store.Event{Event: "task_ended", ID: id, Task: task, Detail: detail}) // a log
	}
}
