package session

import (
	"os"
	"slices"

	"github.com/sessionbox/sessionbox/pkg/internal/engines"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
)

// allConmons finds those of this user that carry the cookie of a session. The container
// itself carries nothing, and would live on when its conmon is ended as a stray.
func allConmons() []conmon {
	if !(engines.Engine{Tool: "podman"}).There() {
		return nil
	}
	pids, err := proc.PIDs()
	if err != nil {
		return nil
	}
	found := make([]*conmon, len(pids))
	each(len(pids), func(i int) { found[i] = conmonAt(pids[i]) })
	var all []conmon
	for _, c := range found {
		if c != nil {
			all = append(all, *c)
		}
	}
	return all
}

// conmonAt says of a process what it proves, nil if nothing.
func conmonAt(pid int) *conmon {
	c, kept := conmonIn(pid)
	if kept {
		return nil // who wants to outlive the session wants it of its container
	}
	return c
}

// conmonIn says the same of one that is in a box, whatever it wants: kept says that it is to
// outlive the session that started it.
func conmonIn(pid int) (c *conmon, kept bool) {
	if uid, err := proc.UID(pid); err != nil || uid != os.Geteuid() {
		return nil, false
	}
	if st, err := proc.ReadStat(pid); err != nil || st.Comm != "conmon" {
		return nil, false
	}
	env, err := proc.Env(pid, append(engines.EnvNames(), EnvCookie, EnvKeep)...)
	if err != nil || env[EnvCookie] == "" {
		return nil, false
	}
	id := madeBy(proc.Args(pid))
	if id == "" {
		return nil, false
	}
	cookie, kept := env[EnvCookie], env[EnvKeep] == "1"
	delete(env, EnvCookie)
	delete(env, EnvKeep)
	return &conmon{engine: engines.Engine{Tool: "podman", Env: env}, id: id, pid: pid, cookie: cookie}, kept
}

// madeBy is the container that a conmon with these arguments runs, "" if it only runs a
// command in one that others run: that of `podman exec` is told its container as well.
func madeBy(argv []string) (id string) {
	// What stands behind these may look like an option, and is none.
	others := []string{"--exit-command-arg", "--runtime-arg", "--runtime-opt", "--log-tag", "-n", "--name"}
	for i := 1; i < len(argv); i++ {
		switch a := argv[i]; {
		case slices.Contains(others, a):
			i++
		case a == "-e" || a == "--exec" || a == "--exec-attach" || a == "--exec-process-spec":
			return ""
		case (a == "-c" || a == "--cid") && id == "" && i+1 < len(argv):
			i++
			id = argv[i]
		}
	}
	return id
}
