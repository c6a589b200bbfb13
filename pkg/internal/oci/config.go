package oci

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Patch is what makes a container one of a session.
type Patch struct {
	CgroupsPath string
	Resources   *specs.LinuxResources // nil: none
	Env         []string              // added to the process's own
	Annotations map[string]string
}

// InitName is the session's init in the container.
const InitName = ".sessionbox-init"

// Config is the configuration of the session's container: the bundle's with the patch,
// and with the program init, called with args, as its first process. What the bundle
// would have run is run by [Bundle.Process].
func (b *Bundle) Config(p Patch, init string, args ...string) ([]byte, error) {
	c := clone(b.raw)
	linux := object(c, "linux")
	linux["cgroupsPath"] = p.CgroupsPath
	if namespaces, _ := linux["namespaces"].([]any); !b.hasCgroupNamespace() {
		// Without one a cgroup file system that it mounts shows what is above the box.
		linux["namespaces"] = append(slices.Clone(namespaces), map[string]any{"type": specs.CgroupNamespace})
	}
	notes := object(c, "annotations")
	for k, v := range p.Annotations {
		notes[k] = v
	}
	object(c, "root")["path"] = b.RootDir()
	inside := filepath.Join(b.initDir(), InitName)
	process := object(c, "process")
	// Limits are for the commands: our init has to live with any.
	for _, k := range []string{"consoleSize", "rlimits", "oomScoreAdj", "scheduler", "ioPriority", "execCPUAffinity"} {
		delete(process, k)
	}
	process["terminal"] = false
	process["args"] = append([]string{inside}, args...)
	process["cwd"] = "/"
	process["env"] = Environ(b.Spec.Process.Env, p.Env)
	mounts, _ := c["mounts"].([]any)
	mounts = slices.Clone(mounts)
	for i, m := range mounts {
		if m, ok := m.(map[string]any); ok {
			mounts[i] = b.absolute(m)
		}
	}
	c["mounts"] = append(mounts, map[string]any{
		"destination": inside, "type": "bind", "source": init, "options": []string{"bind", "ro", "nosuid", "nodev"},
	})
	return json.Marshal(c)
}

// absolute gives a bind mount a source that does not depend on where the bundle is.
func (b *Bundle) absolute(m map[string]any) map[string]any {
	source, _ := m["source"].(string)
	kind, _ := m["type"].(string)
	options, _ := m["options"].([]any)
	bind := kind == "bind" || slices.ContainsFunc(options, func(o any) bool { return o == "bind" || o == "rbind" })
	if !bind || source == "" || filepath.IsAbs(source) {
		return m
	}
	m = clone(m)
	m["source"] = filepath.Join(b.Dir, source)
	return m
}

// Process is what each command of the session is made of: the bundle's process, marked.
func (b *Bundle) Process(env []string) ([]byte, error) {
	p := object(clone(b.raw), "process")
	delete(p, "consoleSize")
	delete(p, "commandLine")
	p["terminal"] = false
	p["env"] = Environ(b.Spec.Process.Env, env)
	return json.Marshal(p)
}

// Command is the process of one command, made of what [Bundle.Process] gave: env is added
// to its environment; no args are the bundle's own, cwd "" is its directory.
func Command(process []byte, args, env []string, cwd string) (specs.Process, []byte, error) {
	var p specs.Process
	var raw map[string]any
	dec := json.NewDecoder(bytes.NewReader(process))
	dec.UseNumber()
	if err := errors.Join(json.Unmarshal(process, &p), dec.Decode(&raw)); err != nil {
		return p, nil, err
	}
	if len(args) > 0 {
		p.Args = args
	}
	if cwd != "" {
		p.Cwd = cwd
	}
	p.Env = Environ(p.Env, env)
	raw["args"], raw["cwd"], raw["env"] = p.Args, p.Cwd, p.Env
	data, err := json.Marshal(raw)
	return p, data, err
}

// Environ is env with more added: of two values of one variable the later one counts.
func Environ(env, more []string) []string {
	all := make([]string, 0, len(env)+len(more))
	at := map[string]int{}
	for _, kv := range slices.Concat(env, more) {
		k, _, _ := strings.Cut(kv, "=")
		if i, ok := at[k]; ok {
			all[i] = kv
			continue
		}
		at[k] = len(all)
		all = append(all, kv)
	}
	return all
}

// MergePatch is the patch as RFC 7396 has it, with more written of it than changes: a
// list in a merge patch replaces the one that is there.
func (p Patch) MergePatch() any {
	linux := map[string]any{"cgroupsPath": p.CgroupsPath}
	if p.Resources != nil {
		linux["resources"] = p.Resources
	}
	return map[string]any{
		"linux":       linux,
		"process":     map[string]any{"env": p.Env},
		"annotations": p.Annotations,
	}
}

func clone(m map[string]any) map[string]any {
	c := maps.Clone(m)
	if c == nil {
		c = map[string]any{}
	}
	return c
}

// object gives a copy of an object in m, which then holds the copy.
func object(m map[string]any, key string) map[string]any {
	o, _ := m[key].(map[string]any)
	o = clone(o)
	m[key] = o
	return o
}
