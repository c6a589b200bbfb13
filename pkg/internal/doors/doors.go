package doors

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Door is one way out, and whether it is closed.
type Door struct {
	Name   string `json:"door"`
	Closed bool   `json:"closed"`
	Text   string `json:"text"` // how it is closed, or why not
}

// Names of the doors that are closed.
const (
	UserBus       = "user bus"
	UserManager   = "user manager"
	SystemBus     = "system bus"
	SystemManager = "system manager"
	Containers    = "container daemons"
	Cgroups       = "other cgroups"
	Privileges    = "set-user-id programs"
	Spools        = "at and cron"
	Terminals     = "tmux and screen servers"
	Typing        = "the caller's terminal"
	Processes     = "other processes"
	Settings      = "kernel settings"
	Records       = "sessionbox's records"
)

// Open are the doors that stay open, whatever is asked for.
func Open() []Door {
	return []Door{
		{Name: "daemons that start again", Text: "a socket that is made anew in a directory that others use, too, is seen by the commands that run already; those that start later find it hidden"},
		{Name: "ssh to this machine", Text: "its keys and agent are also those for other machines"},
		{Name: "abstract sockets", Text: "they have no place in the file system (a bus that dbus-launch started, X11)"},
		{Name: "servers over TCP", Text: "the network is the machine's (a docker daemon behind a tcp:// address)"},
		{Name: "other servers", Text: "build daemons, editors and the like that ran before: nobody knows all of their sockets"},
		{Name: "files that are run later", Text: "it may write what this user may: .bashrc, user units, hooks of git (root: /etc, devices)"},
	}
}

// Order says what is to be closed.
type Order struct {
	// Records is where sessionbox keeps its records.
	Records string `json:"records"`
	// Environ are environments that name doors, beside the command's own: what was hidden
	// when the session was opened is hidden from a command with another environment, too.
	Environ [][]string `json:"environ,omitempty"`
}

// variables are those that name a door.
var variables = [...]string{
	"HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS", "DOCKER_HOST", "CONTAINER_HOST",
	"CONTAINERD_ADDRESS", "BUILDKIT_HOST", "TMUX_TMPDIR", "SESSIONBOX_TMPDIR", "TMUX", "SCREENDIR",
}

// Variables are those of an environment that name doors.
func Variables(env []string) []string {
	var named []string
	for _, kv := range env {
		if k, _, _ := strings.Cut(kv, "="); slices.Contains(variables[:], k) {
			named = append(named, kv)
		}
	}
	return named
}

// lookups look into our own environment, and then into those of the order.
func (o *Order) lookups() []func(string) string {
	all := []func(string) string{os.Getenv}
	for _, env := range o.Environ {
		all = append(all, func(name string) string {
			for _, kv := range slices.Backward(env) { // of two the later one counts
				if k, v, _ := strings.Cut(kv, "="); k == name {
					return v
				}
			}
			return ""
		})
	}
	return all
}

// places are where doors can be by any of the environments.
func (o *Order) places() []place {
	var all []place
	for _, get := range o.lookups() {
		all = append(all, places(os.Geteuid(), get)...)
	}
	return all
}

// recordDirs are where records can be by any of the environments.
func (o *Order) recordDirs() []string {
	var all []string
	for _, get := range o.lookups() {
		for _, dir := range recordDirs(o.Records, os.Geteuid(), get) {
			if !slices.Contains(all, dir) {
				all = append(all, dir)
			}
		}
	}
	return all
}

// place is a path that is hidden, and the door that it is.
type place struct{ door, path string }

// places are where doors can be, for a user with this environment. Of those that are
// listed few are there.
func places(uid int, get func(string) string) []place {
	home := get("HOME")
	run := []string{"/run", "/var/run"}
	user := []string{filepath.Join("/run/user", strconv.Itoa(uid))}
	if xdg := get("XDG_RUNTIME_DIR"); filepath.IsAbs(xdg) {
		user = append(user, xdg)
	}
	var all []place
	add := func(door string, dirs []string, names ...string) {
		for _, d := range dirs {
			for _, n := range names {
				if filepath.IsAbs(d) {
					all = append(all, place{door, filepath.Join(d, n)})
				}
			}
		}
	}
	named := func(door string, variables ...string) {
		for _, v := range variables {
			for _, path := range socketPaths(get(v)) {
				all = append(all, place{door, path})
			}
		}
	}
	add(UserBus, user, "bus")
	named(UserBus, "DBUS_SESSION_BUS_ADDRESS")
	add(UserManager, user, "systemd")
	add(SystemBus, run, "dbus") // all of it: one that starts again makes its socket there
	named(SystemBus, "DBUS_SYSTEM_BUS_ADDRESS")
	add(SystemManager, run, "systemd/private", "systemd/io.systemd.Manager", "systemd/machine")
	daemons := []string{"docker.sock", "docker", "podman", "containerd", "containerd-rootless", "dockerd-rootless", "crio", "k3s", "buildkit", "libvirt", "lxd.socket"}
	add(Containers, run, daemons...)
	add(Containers, user, daemons...)
	add(Containers, []string{home}, ".docker/run", ".docker/desktop", ".rd")
	add(Containers, []string{"/var"}, "lib/lxd/unix.socket", "lib/incus/unix.socket", "snap/lxd/common/lxd/unix.socket")
	named(Containers, "DOCKER_HOST", "CONTAINER_HOST", "CONTAINERD_ADDRESS", "BUILDKIT_HOST")
	add(Spools, []string{"/var/spool"}, "cron", "at", "atjobs", "atspool")
	tmux := "tmux-" + strconv.Itoa(uid)
	add(Terminals, []string{"/tmp", "/var/tmp"}, tmux)
	if dir := get("TMUX_TMPDIR"); dir != get("SESSIONBOX_TMPDIR") { // else it is the session's own
		add(Terminals, []string{dir}, tmux)
	}
	if socket, _, _ := strings.Cut(get("TMUX"), ","); filepath.IsAbs(socket) {
		all = append(all, place{Terminals, filepath.Clean(socket)})
	}
	add(Terminals, run, "screen")
	add(Terminals, []string{home}, ".screen")
	add(Terminals, []string{get("SCREENDIR")}, "")
	return all
}

// recordDirs are where the records of this user's sessions are: a guard does what they say.
// What is beside them is not theirs alone.
func recordDirs(state string, uid int, get func(string) string) []string {
	var dirs []string
	for _, in := range []string{state, filepath.Join("/run/user", strconv.Itoa(uid), "sessionbox"), filepath.Join(get("XDG_RUNTIME_DIR"), "sessionbox"), "/run/sessionbox"} {
		for _, sub := range []string{"sessions", "names"} {
			if dir := filepath.Join(in, sub); filepath.IsAbs(dir) && !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// socketPaths are the paths in an address: of D-Bus (unix:path=P,guid=…;…), of a daemon
// (unix://P), or a path alone.
func socketPaths(address string) []string {
	var paths []string
	for one := range strings.SplitSeq(address, ";") {
		if rest, ok := strings.CutPrefix(one, "unix://"); ok {
			one = rest
		} else if rest, ok := strings.CutPrefix(one, "unix:"); ok {
			one = ""
			for kv := range strings.SplitSeq(rest, ",") {
				if p, ok := strings.CutPrefix(kv, "path="); ok {
					one = p
				}
			}
		}
		if filepath.IsAbs(one) && one != "/" {
			paths = append(paths, filepath.Clean(one))
		}
	}
	return paths
}

// here leaves those places that are there, each once, by its real path.
func here(all []place) []place {
	var there []place
	seen := map[string]bool{}
	for _, p := range all {
		real, err := filepath.EvalSymlinks(p.path)
		if err != nil || real == "/" || seen[real] {
			continue // what cannot be reached needs no hiding
		}
		seen[real] = true
		there = append(there, place{p.door, real})
	}
	return there
}

// closed are the doors that were closed, with what was found behind them.
func closed(there []place) []Door {
	doors := make([]Door, 0, 16)
	for _, d := range []struct{ name, by string }{
		{UserBus, ""}, {UserManager, ""}, {SystemBus, ""}, {SystemManager, ""}, {Containers, ""},
		{Cgroups, "the cgroup file systems are read-only"},
		{Privileges, "no_new_privs: sudo, su and pkexec give no privileges"},
		{Spools, "at and crontab get no privileges"},
		{Terminals, ""},
		{Typing, "nothing can be typed into it (TIOCSTI, TIOCLINUX)"},
		{Processes, "a user namespace of its own: no ptrace, no /proc/PID/root of those outside"},
		{Settings, "each proc/sys and all of /sys are read-only: what core_pattern names is run outside"},
		{Records, "read-only and held where they are, with what is to be run when memory is short"},
	} {
		var paths []string
		for _, p := range there {
			if p.door == d.name {
				paths = append(paths, p.path)
			}
		}
		text := d.by
		switch hidden := "hidden: " + strings.Join(paths, ", "); {
		case len(paths) > 0 && text != "":
			text += "; " + hidden
		case len(paths) > 0:
			text = hidden
		case text == "":
			text = "none is there; what there is when a command starts is hidden"
		}
		doors = append(doors, Door{Name: d.name, Closed: true, Text: text})
	}
	return doors
}
