package session

import (
	"errors"
	"maps"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sessionbox/sessionbox/pkg/internal/oci"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// ContainerOptions make a session an OCI container.
type ContainerOptions struct {
	// Bundle is the directory of its bundle, which is only read. The bundle's process
	// says as whom, where and with which environment the commands of the session run;
	// what it would run itself is the command of a [Session.Start] without arguments.
	Bundle string
	// Runtime is crun, runc, or the path of a program with their command line; "" is
	// the first of the two that is in PATH.
	Runtime string
}

// ContainerInfo says which container a session is.
type ContainerInfo struct {
	ID      string `json:"id"` // for its runtime
	Runtime string `json:"runtime"`
	Bundle  string `json:"bundle"`
	// Root is the runtime's state directory (--root).
	Root string `json:"root"`
	// Running says that its first process lives, without which no command can be started.
	Running bool `json:"running"`
}

// containerDir is the directory of a session's container, beside its record: it goes
// with the session, and with it all that the runtime has noted.
func (m *Manager) containerDir(rec *store.Session) string {
	return filepath.Join(m.store.SessionDir(rec.ID), "container")
}

// IsContainer says whether the session's commands run in a container: their directories
// and programs are the container's.
func (s *Session) IsContainer() bool { return s.rec.Container != nil }

// placeContainer reads the bundle and writes into a new record which container will be
// made of it.
func (m *Manager) placeContainer(rec *store.Session, o *OpenOptions) (*oci.Bundle, error) {
	if o.Container == nil {
		return nil, nil
	}
	if rec.Kind == store.KindLineage {
		return nil, needsKernel("")
	}
	if o.PrivateTmp {
		return nil, &Error{Kind: ErrUsage, Text: "a container's commands do not see the session's directory for temporary files",
			Hint: "leave out --private-tmp; a tmpfs in the bundle's mounts goes with the container"}
	}
	if o.Shims {
		return nil, &Error{Kind: ErrUsage, Text: "a container's commands have the programs of its root file system, and no shims", Hint: "leave out --shims"}
	}
	bundle, err := oci.Load(o.Container.Bundle)
	if err != nil {
		return nil, bundleError(err, ErrUsage)
	}
	runtime, err := oci.FindRuntime(o.Container.Runtime)
	if err != nil {
		return nil, bundleError(err, ErrUnsupported)
	}
	rec.Container = &store.Container{ID: "sessionbox-" + rec.ID, Bundle: bundle.Dir, Runtime: runtime}
	rec.Cwd = bundle.Dir
	return bundle, nil
}

func needsKernel(session string) error {
	return &Error{Kind: ErrUnsupported, Session: session, Text: "a container needs a box that the kernel enforces, and here is the lineage box",
		Hint: "`sessionbox doctor` says what is missing; without --oci the session is a lineage box"}
}

func bundleError(err, kind error) error {
	if bad, ok := errors.AsType[*oci.Invalid](err); ok {
		return &Error{Kind: kind, Text: bad.Text, Hint: bad.Hint, Err: bad.Err}
	}
	return err
}

// annotations are what a container's runtime is told of the session.
func annotations(rec *store.Session) map[string]string {
	notes := map[string]string{"org.sessionbox.id": rec.ID}
	if rec.Name != "" {
		notes["org.sessionbox.name"] = rec.Name
	}
	labels := map[string]string{}
	for k, v := range rec.Labels {
		labels["org.sessionbox.label."+k] = v
	}
	maps.Copy(notes, labels)
	return notes
}

// SpecOptions say for whom a patch is made.
type SpecOptions struct {
	// Bundle, if given, is the bundle to be patched: its environment is in the patch,
	// as a list in a merge patch replaces the one that is there.
	Bundle string
	// Systemd asks for the form slice:prefix:name, for a runtime that has systemd make
	// the container's cgroup (--systemd-cgroup).
	Systemd bool
}

// Spec is what makes a container one of the session, for any runtime or orchestrator: a
// merge patch (RFC 7396) of its config.json. The container is ended by the session's
// close; what its runtime has noted of it is not ours to remove.
func (s *Session) Spec(o SpecOptions) (any, error) {
	if s.rec.Kind == store.KindLineage {
		return nil, &Error{Kind: ErrUnsupported, Session: s.Name(), Text: "is a lineage box, which has no cgroup for a container",
			Hint: "`sessionbox doctor` says what would give a box that the kernel enforces"}
	}
	if s.box == nil {
		return nil, &Error{Kind: ErrBoxGone, Session: s.Name(), Text: "its box is gone", Hint: "`sessionbox close " + s.Name() + "`, then open a new one"}
	}
	p := oci.Patch{Resources: s.rec.Limits, Env: sessionEnv(&s.rec), Annotations: annotations(&s.rec)}
	if p.Resources == nil {
		p.Resources = &specs.LinuxResources{}
	}
	if o.Bundle != "" {
		b, err := oci.Read(o.Bundle)
		if err != nil {
			return nil, bundleError(err, ErrUsage)
		}
		if b.Spec.Process != nil {
			p.Env = oci.Environ(b.Spec.Process.Env, p.Env)
		}
	}
	var err error
	p.CgroupsPath, err = s.cgroupsPath(o.Systemd)
	return p.MergePatch(), err
}
