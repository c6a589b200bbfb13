package engines

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// dockerSocket is where docker listens if nothing else is said.
const dockerSocket = "/var/run/docker.sock"

// Socket is the unix socket at which the engine listens, "" if it has none that we
// can ask: it is elsewhere, or no daemon.
func (e Engine) Socket() string {
	if e.Tool != "docker" {
		return ""
	}
	if h, ok := e.option("host"); ok {
		return unixPath(h)
	}
	if c, ok := e.option("context"); ok {
		return e.contextSocket(c)
	}
	if h := e.Env["DOCKER_HOST"]; h != "" {
		return unixPath(h)
	}
	if c := e.Env["DOCKER_CONTEXT"]; c != "" {
		return e.contextSocket(c)
	}
	return e.contextSocket(e.currentContext())
}

// option is the value of one of the options.
func (e Engine) option(name string) (value string, ok bool) {
	for _, o := range e.Options {
		if v, found := strings.CutPrefix(o, "--"+name+"="); found {
			value, ok = v, true // the last one counts
		}
	}
	return value, ok
}

// unixPath is the path in a host such as unix:///run/docker.sock, "" for others.
func unixPath(host string) string {
	if path, ok := strings.CutPrefix(host, "unix://"); ok && filepath.IsAbs(path) {
		return path
	}
	return ""
}

// configDir is where the docker command keeps its contexts.
func (e Engine) configDir() string {
	if d, ok := e.option("config"); ok {
		return d
	}
	if d := e.Env["DOCKER_CONFIG"]; d != "" {
		return d
	}
	if h := e.Env["HOME"]; h != "" {
		return filepath.Join(h, ".docker")
	}
	return ""
}

func (e Engine) currentContext() string {
	var c struct {
		CurrentContext string `json:"currentContext"`
	}
	b, err := os.ReadFile(filepath.Join(e.configDir(), "config.json"))
	if err != nil || json.Unmarshal(b, &c) != nil {
		return ""
	}
	return c.CurrentContext
}

// contextSocket is where the engine of a context listens.
func (e Engine) contextSocket(name string) string {
	if name == "" || name == "default" {
		return dockerSocket
	}
	sum := sha256.Sum256([]byte(name))
	b, err := os.ReadFile(filepath.Join(e.configDir(), "contexts", "meta", hex.EncodeToString(sum[:]), "meta.json"))
	var c struct {
		Endpoints map[string]struct{ Host string }
	}
	if err != nil || json.Unmarshal(b, &c) != nil {
		return ""
	}
	return unixPath(c.Endpoints["docker"].Host)
}
