package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/keeper"
	"github.com/sessionbox/sessionbox/pkg/internal/park"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/internal/shim"
	"github.com/sessionbox/sessionbox/pkg/store"
	"golang.org/x/sys/unix"
)

// Helper runs this process as one of the package's helpers if it was started as
// one; the program must then exit with the code. Call it first in main, with
// os.Args, in a program that names itself as [Config].Helper.
func Helper(args []string) (code int, done bool) {
	if len(args) > 0 && shim.Is(args[0]) {
		return shim.Main(args[0], args[1:]), true
	}
	if len(args) < 2 {
		return 0, false
	}
	switch args[1] {
	case park.Arg:
		return park.Main(args[2:]), true
	case SuperviseArg:
		return report("supervisor", superviseMain()), true
	case keeper.Arg:
		return keeper.Main(args[2:], keeperHooks()), true
	case GuardArg: // the main of a program must not go on as if nothing was asked
		return report("guard", errNoGuard), true
	}
	return helpOut(args)
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

// closeInherited closes what our starter had open and did not mean us to have: a
// pipe that we hold as long as the session lives would never end for its reader.
// What Go opens by itself closes on exec, so the rest was inherited.
func closeInherited(keep ...int) {
	dir := "/dev/fd"
	if runtime.GOOS == "linux" { // where a container may lack the link
		dir = "/proc/self/fd"
	}
	entries, err := os.ReadDir(dir)
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
