package oci

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// ConfigFile is the name of the configuration in a bundle.
const ConfigFile = "config.json"

// maxConfig bounds what is read of a configuration, in bytes.
const maxConfig = 8 << 20

// Invalid says what is wrong with a bundle.
type Invalid struct {
	Text string
	Hint string
	Err  error
}

func (e *Invalid) Error() string {
	if e.Err != nil {
		return e.Text + ": " + e.Err.Error()
	}
	return e.Text
}

func (e *Invalid) Unwrap() error { return e.Err }

// Bundle is a bundle that was read and found fit for a session.
type Bundle struct {
	Dir  string // absolute
	Spec specs.Spec
	raw  map[string]any
}

// Load reads the bundle in a directory. The error is an [*Invalid].
func Load(dir string) (*Bundle, error) {
	b, err := Read(dir)
	if err != nil {
		return nil, err
	}
	return b, b.check()
}

// Find gives the directory of a bundle without links: a runtime takes no root file system
// that is reached through one. Of one that is not there it gives the absolute path.
func Find(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return real(abs), nil
}

func real(path string) string {
	if p, err := filepath.EvalSymlinks(path); err == nil {
		return p
	}
	return path
}

// Read reads a bundle without judging whether a session can be made of it.
func Read(dir string) (*Bundle, error) {
	abs, err := Find(dir)
	if err != nil {
		return nil, &Invalid{Text: "the bundle " + dir + " cannot be found", Err: err}
	}
	b := &Bundle{Dir: abs}
	data, err := readConfig(filepath.Join(abs, ConfigFile))
	if err != nil {
		e := &Invalid{Text: "the bundle " + abs + " cannot be read", Err: err}
		if errors.Is(err, fs.ErrNotExist) {
			e.Text, e.Hint = abs+" is no bundle: there is no "+ConfigFile+" in it", "`runc spec` or `crun spec` writes one beside the directory rootfs"
		}
		return nil, e
	}
	bad := func(err error) (*Bundle, error) {
		return nil, &Invalid{Text: filepath.Join(abs, ConfigFile) + " is no configuration of a container", Err: err, Hint: "`runc spec` writes one to begin with"}
	}
	// The number of the version first: what a newer one changed may not decode.
	var head struct {
		Version string `json:"ociVersion"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return bad(err)
	}
	if err := checkVersion(head.Version); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &b.Spec); err != nil {
		return bad(err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber() // ids and limits are larger than a float holds
	if err := dec.Decode(&b.raw); err != nil {
		return bad(err)
	}
	return b, nil
}

func readConfig(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return nil, errors.Join(err, errors.New("not a file"))
	}
	data, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err == nil && len(data) > maxConfig {
		err = fmt.Errorf("larger than %d bytes", maxConfig)
	}
	return data, err
}

// checkVersion takes the versions up to the one that this package was built with.
func checkVersion(v string) error {
	core, _, _ := strings.Cut(v, "-")
	parts := strings.Split(core, ".")
	n := make([]int, 0, 3)
	for _, p := range parts {
		if i, err := strconv.Atoi(p); err == nil && i >= 0 {
			n = append(n, i)
		}
	}
	if len(parts) != 3 || len(n) != 3 {
		return &Invalid{Text: fmt.Sprintf("ociVersion %q is no version", v), Hint: "want e.g. \"1.0.2\""}
	}
	if n[0] != specs.VersionMajor || n[1] > specs.VersionMinor {
		return &Invalid{Text: fmt.Sprintf("ociVersion %s is not known here, only 1.0 to %d.%d", v, specs.VersionMajor, specs.VersionMinor),
			Hint: "a newer sessionbox may know it; what was made for an older version says so in ociVersion"}
	}
	return nil
}

// check says why no session can be made of it.
func (b *Bundle) check() error {
	s := &b.Spec
	switch {
	case s.Linux == nil:
		return &Invalid{Text: "the bundle is not for Linux", Hint: `its configuration has no "linux"`}
	case s.Linux.CgroupsPath != "":
		return &Invalid{Text: fmt.Sprintf("the bundle has a cgroupsPath of its own (%s)", s.Linux.CgroupsPath),
			Hint: "remove linux.cgroupsPath: the container is to be in the session's box, which ends it"}
	case s.Process == nil:
		return &Invalid{Text: "the bundle has no process", Hint: "its user, directory and environment are those of the session's commands"}
	case s.Root == nil || s.Root.Path == "":
		return &Invalid{Text: "the bundle has no root file system", Hint: "root.path names its directory"}
	}
	if at := b.opensCgroups(); at != "" {
		return &Invalid{Text: "the bundle mounts cgroups at " + at + " that are not the container's own, and may be written",
			Hint: `add the option "ro", or mount type "cgroup" with a cgroup namespace of its own: a command could leave the box that ends it`}
	}
	root := b.RootDir()
	if fi, err := os.Stat(root); err != nil || !fi.IsDir() {
		return &Invalid{Text: "the root file system " + root + " is not there", Err: err, Hint: "root.path in " + ConfigFile + " names it, relative to the bundle"}
	}
	if b.initDir() == "" {
		return &Invalid{Text: "the bundle mounts no tmpfs", Hint: "one on /dev, as in `runc spec`, will do: the session's own init is put there, so that the root file system need not be written to"}
	}
	return nil
}

// RootDir is the directory of the root file system, absolute and without links.
func (b *Bundle) RootDir() string { return real(b.resolve(b.Spec.Root.Path)) }

// hasCgroupNamespace says whether a cgroup namespace is among its namespaces, its own or one
// that it joins.
func (b *Bundle) hasCgroupNamespace() bool {
	return slices.ContainsFunc(b.Spec.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.CgroupNamespace })
}

// opensCgroups is a mount by which the container could be left: one of cgroups that may be
// written and shows more than the container's own, "" if there is none. In a namespace of
// its own, which [Bundle.Config] sees to, a cgroup file system shows no more.
func (b *Bundle) opensCgroups() string {
	joins := slices.ContainsFunc(b.Spec.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.CgroupNamespace && n.Path != "" })
	for _, m := range b.Spec.Mounts {
		bind := m.Type == "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
		shows := !bind && joins && (m.Type == "cgroup" || m.Type == "cgroup2") || bind && isCgroups(b.resolve(m.Source), slices.Contains(m.Options, "rbind"))
		if shows && !slices.Contains(m.Options, "ro") && !slices.Contains(m.Options, "rro") {
			return m.Destination
		}
	}
	return ""
}

// cgroupsAt is where every system has the cgroup file systems.
const cgroupsAt = "/sys/fs/cgroup"

// isCgroups says whether a path is among them or, with what is mounted below it, above.
func isCgroups(path string, below bool) bool {
	path = filepath.Clean(real(path))
	return path == cgroupsAt || strings.HasPrefix(path, cgroupsAt+"/") ||
		below && strings.HasPrefix(cgroupsAt, strings.TrimSuffix(path, "/")+"/")
}

func (b *Bundle) resolve(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(b.Dir, path)
}

// initDir is where in the container the session's init can be put, "" if nowhere: a
// file system in memory, with nothing mounted over it later.
func (b *Bundle) initDir() string {
	dir := ""
	for _, m := range b.Spec.Mounts {
		to := filepath.Clean(m.Destination)
		switch {
		case m.Type == "tmpfs" && filepath.IsAbs(to) && (dir == "" || to == "/dev"):
			dir = to
		case strings.HasPrefix(dir+"/", strings.TrimSuffix(to, "/")+"/"):
			dir = ""
		}
	}
	return dir
}
