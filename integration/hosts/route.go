package hosts

import (
	"fmt"
	"strings"
)

// A Route says how a command gets into a host, and so whose cgroup it ends up in.
// What a program may do with cgroups depends on nothing as much as on this.
type Route string

const (
	// Enter is nsenter as root, into init.scope: for housekeeping, not for tests.
	Enter Route = "enter"
	// AsRoot is a transient service of the system manager.
	AsRoot Route = "root"
	// SSH is a login of AgentUser: a logind session scope, which is under a cgroup
	// that AgentUser does not own.
	SSH Route = "ssh"
	// Manager is a transient service of AgentUser's own manager.
	Manager Route = "manager"
)

// ParseRoute returns the route of that name.
func ParseRoute(name string) (Route, error) {
	switch r := Route(name); r {
	case Enter, AsRoot, SSH, Manager:
		return r, nil
	}
	return "", fmt.Errorf("no route %q: want enter, root, ssh or manager", name)
}

// argv is what root runs inside the host to have script run by the route. The
// command itself is always in a script: ssh would split words anew, and systemd
// would expand $ and % in them.
func (r Route) argv(script string) []string {
	var (
		sh   = []string{"/bin/sh", script}
		ssh  = []string{"ssh", "-q", AgentLogin}
		unit = []string{"--quiet", "--pipe", "--wait", "--collect", "--service-type=exec"}
	)
	switch r {
	case AsRoot:
		return concat([]string{"systemd-run"}, unit, sh)
	case SSH:
		return concat(ssh, sh)
	case Manager:
		return concat(ssh, []string{"systemd-run", "--user"}, unit, sh)
	default:
		return sh
	}
}

func concat(lists ...[]string) []string {
	var all []string
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// commandScript is the script that argv runs: the directory, the environment, then
// the command in place of the shell, so that its exit code is the script's.
func commandScript(route Route, args, env []string, dir string) string {
	var b strings.Builder
	if route == AsRoot || route == Enter {
		// A system service has neither, and nsenter has the machine's.
		b.WriteString("export HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n")
	}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		fmt.Fprintf(&b, "export %s=%s\n", name, quote(value))
	}
	if dir != "" {
		fmt.Fprintf(&b, "cd %s || exit 125\n", quote(dir))
	}
	b.WriteString("exec")
	for _, a := range args {
		b.WriteString(" " + quote(a))
	}
	b.WriteString("\n")
	return b.String()
}

// quote makes one word of s for a POSIX shell.
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
