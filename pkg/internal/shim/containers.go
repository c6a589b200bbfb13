package shim

import (
	"slices"
	"strings"
)

// What a command line asks an engine for.
type what int

const (
	nothing what = iota // that starts something, or nothing that we understand
	container
	pod
	compose
)

// engineOptions are the options before the verb, as of docker 29, podman 5.6 and nerdctl 2.
func engineOptions(tool string) (o options, ok bool) {
	switch tool {
	case "docker":
		return options{
			flags:  []string{"debug", "D", "tls", "tlsverify"},
			values: []string{"config", "context", "c", "host", "H", "log-level", "l", "tlscacert", "tlscert", "tlskey"},
		}, true
	case "podman":
		return options{
			flags: []string{"noout", "remote", "r", "syslog", "transient-store", "trace"},
			values: []string{"cdi-spec-dir", "cgroup-manager", "config", "conmon", "connection", "c", "context", "cpu-profile", "default-mounts-file",
				"events-backend", "hooks-dir", "host", "H", "identity", "imagestore", "log-level", "max-workers", "memory-profile", "module", "namespace",
				"network-cmd-path", "network-config-dir", "out", "root", "runroot", "runtime", "runtime-flag", "ssh", "storage-driver",
				"storage-opt", "tls-ca", "tls-cert", "tls-key", "tmpdir", "url", "volumepath"},
		}, true
	case "nerdctl":
		return options{
			flags: []string{"debug", "debug-full", "experimental", "insecure-registry", "kube-hide-dupe"},
			values: []string{"address", "a", "host", "H", "namespace", "n", "snapshotter", "storage-driver", "cni-path", "cni-netconfpath", "data-root",
				"cgroup-manager", "hosts-dir", "host-gateway-ip", "bridge-ip", "cdi-spec-dirs", "userns-remap", "global-dns", "global-dns-opts", "global-dns-search"},
		}, true
	}
	return options{}, false
}

// whose are the options that say which engine is meant, each with the long name that it is
// written down by. No option that names a program is among them: who closes the session
// repeats these.
func whose(tool string) map[string]string {
	long := map[string]string{}
	var names []string
	switch tool {
	case "docker":
		long["c"], long["H"] = "context", "host"
		names = []string{"config", "context", "host", "tls", "tlsverify", "tlscacert", "tlscert", "tlskey"}
	case "podman":
		long["c"], long["H"], long["r"] = "connection", "url", "remote"
		long["host"] = "url" // as docker has it; podman's --context does nothing
		names = []string{"connection", "identity", "imagestore", "remote", "root", "runroot", "storage-driver", "tmpdir", "transient-store", "url"}
	case "nerdctl":
		long["a"], long["H"], long["n"] = "address", "host", "namespace"
		names = []string{"address", "host", "namespace", "data-root"}
	}
	for _, n := range names {
		long[n] = n
	}
	return long
}

// written is an option as it is written down: in one word.
func (o options) written(long, name, value string) string {
	if value == "" && slices.Contains(o.flags, name) {
		return "--" + long
	}
	return "--" + long + "=" + value
}

// call is a command line of an engine's command, taken apart.
type call struct {
	what what
	// at is where options of the verb can be put in: behind the verb.
	at int
	// engine are the options that say which engine is meant.
	engine []string
	// ownCgroup says that the user decides about the cgroup himself, by a pod say.
	ownCgroup bool
	// ownIDFile says that he wants the id of the container in a file.
	ownIDFile bool
	// rest are the arguments of compose.
	rest []string
}

// parse takes a command line apart. args are without the command's name.
func parse(tool string, args []string) call {
	var c call
	opts, ok := engineOptions(tool)
	if !ok {
		return c
	}
	engine := whose(tool)
	n, ok := opts.skip(args, func(name, value string) {
		if long := engine[name]; long != "" {
			c.engine = append(c.engine, opts.written(long, name, value))
		}
		if name == "cgroup-manager" {
			c.ownCgroup = true
		}
	})
	if !ok || n >= len(args) {
		return call{}
	}
	verb := args[n]
	n++
	switch {
	case verb == "run" || verb == "create":
		c.what = container
	case verb == "compose":
		c.what, c.rest = compose, args[n:]
	case (verb == "container" || verb == "pod") && n < len(args):
		sub := args[n]
		n++
		switch {
		case verb == "container" && (sub == "run" || sub == "create"):
			c.what = container
		case verb == "pod" && sub == "create" && tool == "podman":
			c.what = pod
		}
	}
	c.at = n
	if c.what == nothing || c.what == compose && tool == "podman" { // which runs a docker-compose or podman-compose from the PATH
		return call{}
	}
	c.look(args[n:])
	return c
}

// look finds what the user decides himself. It may take an argument of the container's
// command for an option: what we add is left out then, which does no harm.
func (c *call) look(args []string) {
	for _, a := range args {
		name, _, _ := strings.Cut(a, "=")
		switch name {
		case "--pod", "--pod-id-file", "--cgroups", "--cgroup-parent":
			c.ownCgroup = true
		case "--cidfile":
			c.ownIDFile = true
		}
	}
}

// with puts options behind the verb.
func (c *call) with(args []string, add ...string) []string {
	return slices.Concat(args[:c.at], add, args[c.at:])
}
