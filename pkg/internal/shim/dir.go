package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sessionbox/sessionbox/pkg/internal/engines"
)

// Names are the commands that there are shims for.
func Names() []string {
	return []string{"docker", "podman", "nerdctl", "docker-compose", "systemd-run", "at", "batch", "crontab"}
}

// EnvDir tells the processes of a session where its shims are.
const EnvDir = "SESSIONBOX_SHIM_DIR"

// Config is what the shims of a session know of it.
type Config struct {
	ID     string `json:"id"`
	Cookie string `json:"cookie"`
	// Slice is the unit that holds the session, "" if none does, and User says that it is
	// the user's manager that has it.
	Slice string `json:"slice,omitempty"`
	User  bool   `json:"user,omitempty"`
	// Cgroup is the path of the box below the mount, where an engine may make cgroups of
	// its own in it; "" elsewhere.
	Cgroup string `json:"cgroup,omitempty"`
	Strict bool   `json:"strict,omitempty"`
	// TableLock is the file whose lock is held by who changes the user's crontab, for all
	// sessions of the user.
	TableLock string `json:"table_lock,omitempty"`
	// Lost says that the session had shims before whose notes are gone.
	Lost bool `json:"lost,omitempty"`
}

// Dir is the directory of a session's shims:
//
//	bin/           the links, for the PATH       session.json  a Config
//	engines/       E.json for each that was called, E is its key; E.blind if that was for what has no id file
//	ids/TOKEN.E    the id of the container of one call
//	compose-*.yaml what was added to compose files
//	setenv         how systemd-run is told of variables
//	jobs/          a file for each call of at    crontab/      what was done to the table, one file for each call
type Dir string

// jobsName is where the calls of at are noted.
const jobsName = "jobs"

// dirName is what such a directory is called, by which others know it in a PATH.
const dirName = "shims"

// At is the directory of the shims of the session that has a directory.
func At(sessionDir string) Dir { return Dir(filepath.Join(sessionDir, dirName)) }

func (d Dir) path(parts ...string) string {
	return filepath.Join(append([]string{string(d)}, parts...)...)
}

// Bin is what belongs into the PATH.
func (d Dir) Bin() string { return d.path("bin") }

const configName = "session.json"

// Make makes the directory, with links for the commands that there are in the PATH. To
// make it again does no harm.
func Make(dir string, c Config, program string) (Dir, error) {
	d := Dir(dir)
	for _, sub := range []string{"bin", "engines", "ids", "crontab", jobsName} {
		if err := os.MkdirAll(d.path(sub), 0o700); err != nil {
			return "", err
		}
	}
	if err := writeJSON(d.path(configName), c); err != nil {
		return "", err
	}
	for _, name := range Names() {
		if _, err := real(name); err != nil {
			continue // what is not there must not look as if it was
		}
		if err := os.Symlink(program, d.path("bin", name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	return d, nil
}

// Config reads what the shims know.
func (d Dir) Config() (Config, error) {
	var c Config
	return c, readJSON(d.path(configName), &c)
}

// called is the record of an engine.
type called struct {
	engines.Engine
	// Driver is nil while it did not say.
	Driver *engines.Driver `json:"driver,omitempty"`
	// Alive: it may have done something, as it was not plain that it could not be reached.
	Alive bool `json:"alive,omitempty"`
}

// Answered says whether an engine may ever have done anything in the session: it answered, or
// it was not plain that nobody listens.
func (d Dir) Answered(e *engines.Engine) bool {
	var c called
	return readJSON(d.engineFile(e), &c) == nil && (c.Driver != nil || c.Alive) ||
		slices.ContainsFunc(d.Made(), func(m Made) bool { return m.Engine.Key() == e.Key() })
}

func (d Dir) engineFile(e *engines.Engine) string { return d.path("engines", e.Key()+".json") }

// blindFile is there if a call to an engine was to make what no file in ids tells of.
func (d Dir) blindFile(e *engines.Engine) string { return d.path("engines", e.Key()+".blind") }

// Blind says whether the session may have made something at an engine whose id only the engine
// can tell.
func (d Dir) Blind(e *engines.Engine) bool {
	_, err := os.Stat(d.blindFile(e))
	return !errors.Is(err, fs.ErrNotExist)
}

// Engines gives the engines that the session's commands have called.
func (d Dir) Engines() []engines.Engine {
	var all []engines.Engine
	for _, path := range d.glob("engines", "*.json") {
		var c called
		if readJSON(path, &c) == nil && slices.Contains(Names(), c.Tool) {
			all = append(all, c.Engine)
		}
	}
	return all
}

// Used is when the newest call to an engine began, in Unix nanoseconds; 0: there was
// none.
func (d Dir) Used() int64 {
	var newest int64
	for _, path := range d.glob("engines", "*.json") {
		if fi, err := os.Stat(path); err == nil {
			newest = max(newest, fi.ModTime().UnixNano())
		}
	}
	return newest
}

// idFile is where the engine's command is to write the id of the container of one call. Its
// name says which engine that is, so that the id is of use when the engine is silent.
func (d Dir) idFile(token string, e *engines.Engine) string {
	return d.path("ids", engines.Nonce(token)+"."+e.Key())
}

// Made is a container that a call has made.
type Made struct {
	ID     string
	Engine engines.Engine
}

// Made gives the containers whose id is known, also of those that have gone since.
func (d Dir) Made() []Made {
	all := map[string]engines.Engine{}
	for _, e := range d.Engines() {
		all[e.Key()] = e
	}
	var made []Made
	for _, path := range d.glob("ids", "*.*") {
		_, key, _ := strings.Cut(filepath.Base(path), ".")
		b, err := os.ReadFile(path)
		e, known := all[key]
		if id := strings.TrimSpace(string(b)); err == nil && id != "" && known {
			made = append(made, Made{id, e})
		}
	}
	return made
}

// ContainerID is the id of the container that a call has made, "" if it is not known.
func (d Dir) ContainerID(nonce string) string {
	if nonce == "" || strings.Trim(nonce, "0123456789abcdef") != "" {
		return ""
	}
	for _, path := range d.glob("ids", nonce+".*") {
		if b, err := os.ReadFile(path); err == nil {
			return strings.TrimSpace(string(b))
		}
	}
	return ""
}

// Jobs says whether the session may have queued jobs of at.
func (d Dir) Jobs() bool {
	return len(d.glob(jobsName, "call-*")) > 0
}

func (d Dir) glob(sub, pattern string) []string {
	entries, err := os.ReadDir(d.path(sub)) // sorted
	if err != nil {
		return nil
	}
	var all []string
	for _, e := range entries {
		if ok, _ := filepath.Match(pattern, e.Name()); ok {
			all = append(all, d.path(sub, e.Name()))
		}
	}
	return all
}

func readJSON(path string, into any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// writeJSON writes a file that is whole or not there.
func writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return writeFile(path, b)
}

func writeFile(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
