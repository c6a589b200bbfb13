package session

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// controllerFix says what would let a box have controllers: dir is where it lies, or
// would; systemd says that a manager made it.
func controllerFix(systemd bool, dir string, names ...string) string {
	switch {
	case hybrid():
		return "the controllers belong to cgroup v1: boot with systemd.unified_cgroup_hierarchy=1, or cgroup_no_v1=" + strings.Join(names, ",")
	case systemd && os.Geteuid() != 0:
		return "let user managers have them: `systemctl edit user@.service`, [Service] Delegate=cpu memory pids; then log in again"
	}
	above := lastWith(dir, names)
	if above == "" {
		return "nothing above has them, either: look at cgroup_disable= on the kernel's command line, and at what surrounds a container"
	}
	return fmt.Sprintf("enable them above: echo '+%s' > %s", strings.Join(names, " +"), filepath.Join(above, "cgroup.subtree_control"))
}

// logged is what the kernel's log says of the command of a task that was killed.
func logged(t *store.Task) *memlimit.Kill { return cgroup.LoggedKill(t.PID, t.StartClock) }

// lastWith is the nearest directory above dir that has the controllers itself, "" if
// none is seen.
func lastWith(dir string, names []string) string {
	for at := filepath.Dir(dir); at != filepath.Dir(at); at = filepath.Dir(at) {
		g, err := cgroup.Open(at)
		if err != nil {
			break
		}
		have, err := g.Controllers()
		g.Close()
		if err == nil && !slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(have, n) }) {
			return at
		}
	}
	return ""
}
