package shim

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// composeOptions are those before the verb, of both generations.
func composeOptions() options {
	return options{
		flags: []string{"all-resources", "compatibility", "dry-run", "verbose", "no-ansi", "tls", "tlsverify", "skip-hostname-check", "D"},
		values: []string{"ansi", "env-file", "file", "f", "parallel", "profile", "progress", "project-directory", "project-name", "p", "workdir",
			"context", "c", "host", "H", "log-level", "tlscacert", "tlscert", "tlskey"},
	}
}

// composeCall is a command line of compose, taken apart.
type composeCall struct {
	// at is where the verb is; makes says that it makes containers.
	at    int
	makes bool
	// files were named by -f, dir by --project-directory.
	files []string
	dir   string
	// engine are the options that say which engine is meant.
	engine []string
}

// parseCompose takes a command line apart. args are without the command's name.
func parseCompose(args []string) composeCall {
	var c composeCall
	engine := whose("docker")
	n, ok := composeOptions().skip(args, func(name, value string) {
		switch name {
		case "file", "f":
			c.files = append(c.files, value)
		case "project-directory", "workdir":
			c.dir = value
		case "host", "H", "context", "c":
			c.engine = append(c.engine, composeOptions().written(engine[name], name, value))
		}
	})
	if !ok || n >= len(args) {
		return composeCall{}
	}
	c.at = n
	switch args[n] {
	case "up", "run", "create", "scale", "watch":
		// From stdin it can be read once, by compose itself.
		c.makes = !slices.Contains(c.files, "-")
	}
	return c
}

// with puts the files behind the other options: a file of -f takes the place of those
// that compose finds by itself.
func (c *composeCall) with(args []string, files ...string) []string {
	var add []string
	for _, f := range files {
		add = append(add, "-f", f)
	}
	return slices.Concat(args[:c.at], add, args[c.at:])
}

// composeNames are those that compose looks for, in its order, and overrideNames those that it
// adds to one of them.
func composeNames() []string {
	return []string{"compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"}
}

func overrideNames() []string {
	return []string{"compose.override.yaml", "compose.override.yml", "docker-compose.override.yml", "docker-compose.override.yaml"}
}

// findCompose gives the files that compose would take by itself: those of the
// environment, or what lies in dir or above it.
func findCompose(dir, env, separator string) []string {
	if env != "" {
		if separator == "" {
			separator = ":"
		}
		return strings.Split(env, separator)
	}
	for {
		for _, name := range composeNames() {
			path := filepath.Join(dir, name)
			if _, err := os.Stat(path); err != nil {
				continue
			}
			for _, o := range overrideNames() {
				if _, err := os.Stat(filepath.Join(dir, o)); err == nil {
					return []string{path, filepath.Join(dir, o)}
				}
			}
			return []string{path}
		}
		up := filepath.Dir(dir)
		if up == dir {
			return nil
		}
		dir = up
	}
}

// version is the line of a compose file that the first generation of compose wants to
// be the same in all files.
func version(base []byte) string {
	for line := range strings.Lines(string(base)) {
		if rest, ok := strings.CutPrefix(line, "version"); ok && strings.HasPrefix(strings.TrimLeft(rest, " \t"), ":") {
			return strings.TrimRight(line, "\r\n") + "\n"
		}
	}
	return ""
}

// override is a compose file that labels services and places them.
func override(base []byte, services []string, labels map[string]string, parent string) ([]byte, error) {
	type service struct {
		Labels map[string]string `json:"labels"`
		Parent string            `json:"cgroup_parent,omitempty"`
	}
	all := map[string]service{}
	for _, s := range services {
		all[s] = service{labels, parent}
	}
	b, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	// What is JSON is YAML, too; two dollars are one that compose leaves alone.
	return []byte(version(base) + "services: " + strings.ReplaceAll(string(b), "$", "$$") + "\n"), nil
}
