package session

import (
	"os"
	"slices"
	"strings"
)

// plainEnv is our environment without what is meant for us alone: the marks of a
// session around us, and what a service manager says to its own services.
func plainEnv() []string {
	ours := []string{"SESSIONBOX_", "NOTIFY_SOCKET=", "WATCHDOG_", "LISTEN_", "INVOCATION_ID="}
	var env []string
	for _, kv := range os.Environ() {
		if !slices.ContainsFunc(ours, func(p string) bool { return strings.HasPrefix(kv, p) }) {
			env = append(env, kv)
		}
	}
	return env
}
