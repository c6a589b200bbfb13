package session

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/anchor"
	"github.com/sessionbox/sessionbox/pkg/internal/doors"
	"github.com/sessionbox/sessionbox/pkg/scope"
	"github.com/sessionbox/sessionbox/pkg/store"
)

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

// helpOut runs this process as a helper of a box that Linux alone has.
func helpOut(args []string) (code int, done bool) {
	switch args[1] {
	case doors.Arg:
		return doors.Main(args[2:]), true
	case ContainerArg:
		return containerMain(args[2:]), true
	case ContainerInitArg:
		return containerInit(), true
	case LogArg:
		return report("log", logMain(args[2:])), true
	case anchor.Arg:
		return report("anchor", anchorMain(args[2:])), true
	}
	return 0, false
}
