package session

import (
	"os"

	"github.com/sessionbox/sessionbox/pkg/internal/engines"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// conmon is podman's process beside each container. It has the environment of the
// command that made the container, and with it the session's cookie: proof of whose the
// container is, whatever labels it has.
type conmon struct {
	engine engines.Engine
	id     string
	pid    int
}

// conmons finds those that carry a session's cookie. The container itself carries
// nothing, and would live on when its conmon is ended as a stray.
func conmons(rec *store.Session) []conmon {
	if rec.Cookie == "" || !(engines.Engine{Tool: "podman"}).There() {
		return nil
	}
	pids, err := proc.PIDs()
	if err != nil {
		return nil
	}
	is := make([]bool, len(pids))
	each(len(pids), func(i int) {
		st, err := proc.ReadStat(pids[i])
		is[i] = err == nil && st.Comm == "conmon"
	})
	var all []conmon
	for i, pid := range pids {
		if !is[i] {
			continue
		}
		if uid, err := proc.UID(pid); err != nil || uid != os.Geteuid() {
			continue
		}
		env, err := proc.Env(pid, append(engines.EnvNames(), EnvCookie)...)
		if err != nil || env[EnvCookie] != rec.Cookie {
			continue
		}
		argv := proc.Args(pid)
		for i := 0; i+1 < len(argv); i++ {
			if argv[i] == "-c" || argv[i] == "--cid" {
				delete(env, EnvCookie)
				all = append(all, conmon{engines.Engine{Tool: "podman", Env: env}, argv[i+1], pid})
				break
			}
		}
	}
	return all
}
