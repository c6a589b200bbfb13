package engines

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// AskTime bounds each question to an engine. What takes longer hangs.
const AskTime = 2 * time.Second

// cliTime bounds a command that asks: rootless podman takes half a second where it has
// just been booted, and up to twenty times that in an emulated guest. cliEndTime bounds one
// that ends something.
const (
	cliTime    = 20 * time.Second
	cliEndTime = 30 * time.Second
)

// ErrGone says that the engine does not know the container, or not any more.
var ErrGone = errors.New("no such container")

// Engine is how a command of a session reached its engine.
type Engine struct {
	// Tool is docker, podman or nerdctl.
	Tool string `json:"tool"`
	// Options are those before the verb that say which engine it is, and nothing else. Each
	// is one word, by its long name: --host=unix:///x.sock.
	Options []string `json:"options,omitempty"`
	// Env is the part of the environment that says so, see [EnvNames].
	Env map[string]string `json:"env,omitempty"`

	// cookie marks the commands that ask: what they leave behind, as podman does, is of
	// the session and ends with it.
	cookie string
}

// EnvNames are the variables that decide which engine a tool talks to.
func EnvNames() []string {
	return []string{
		"HOME", "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME",
		"DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH",
		"CONTAINER_HOST", "CONTAINER_CONNECTION", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF",
		"CONTAINERD_ADDRESS", "CONTAINERD_NAMESPACE",
	}
}

// Here is the engine that a tool talks to when it is called from here, without options.
func Here(tool string) Engine {
	e := Engine{Tool: tool, Env: map[string]string{}}
	for _, k := range EnvNames() {
		if v, ok := os.LookupEnv(k); ok {
			e.Env[k] = v
		}
	}
	return e
}

// EnvAsked is in the environment of the commands by which an engine is asked on behalf of a
// session, and of what they leave behind: it is the session's cookie. The variable that marks a
// session's own processes is another: who asks while a lineage box is being emptied is not to
// be ended over the question.
const EnvAsked = "SESSIONBOX_ASKED"

// Marked gives the engine as it is asked on behalf of the session with a cookie.
func (e Engine) Marked(cookie string) Engine {
	e.cookie = cookie
	return e
}

// String names it for people.
func (e Engine) String() string {
	if path := e.Socket(); path != "" {
		return e.Tool + " at " + path
	}
	return strings.TrimSpace(e.Tool + " " + strings.Join(e.Options, " "))
}

// Key tells engines apart, and may be the name of a file. Two ways to one engine have two.
func (e Engine) Key() string {
	b, err := json.Marshal(&e)
	if err != nil { // strings alone
		return e.Tool
	}
	sum := sha256.Sum256(b)
	return e.Tool + "-" + hex.EncodeToString(sum[:8])
}

// Container is one that carries the label of a session.
type Container struct {
	ID      string
	Name    string
	Image   string
	ImageID string
	Running bool
	Pod     bool // a pod of podman's
	// Infra is the container that holds together the pod PodID, and cannot be removed
	// without it.
	Infra   bool
	PodID   string
	Labels  map[string]string
	Created time.Time // zero if it was not said
}

// client is how an engine is spoken to.
type client interface {
	list(ctx context.Context, label string) ([]Container, error) // "": all
	inspect(ctx context.Context, id string) (Container, int, error)
	inspectAll(ctx context.Context, ids []string) ([]Container, error) // those that there are
	imageLabels(ctx context.Context, image string) (map[string]string, error)
	stop(ctx context.Context, c *Container, grace time.Duration) error
	remove(ctx context.Context, c *Container) error
	driver(ctx context.Context) (Driver, error)
}

func (e Engine) client() client {
	if path := e.Socket(); path != "" && socketThere(path) {
		return api{path}
	}
	return cli{e}
}

// List gives the containers, running or not, with the label of a session.
func (e Engine) List(ctx context.Context, session string) ([]Container, error) {
	all, err := e.client().list(ctx, LabelID+"="+session)
	if err != nil {
		return nil, fmt.Errorf("ask %s for containers: %w", e, err)
	}
	// The filter is the engine's; what is ended is decided here.
	return slices.DeleteFunc(all, func(c Container) bool { return c.ID == "" || c.Labels[LabelID] != session }), nil
}

// Labelled gives the containers, running or not, with the label of any session.
func (e Engine) Labelled(ctx context.Context) ([]Container, error) {
	all, err := e.client().list(ctx, LabelID)
	if err != nil {
		return nil, fmt.Errorf("ask %s for containers: %w", e, err)
	}
	return slices.DeleteFunc(all, func(c Container) bool { return c.ID == "" || c.Labels[LabelID] == "" }), nil
}

// Inherited says whether a container has its token from the image that it was made of:
// a commit gives an image the labels of the container, and whoever runs that has them.
func (e Engine) Inherited(ctx context.Context, c *Container) (bool, error) {
	labels, err := e.client().imageLabels(ctx, c.ImageID)
	if errors.Is(err, ErrGone) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask %s for an image: %w", e, err)
	}
	return labels[LabelToken] == c.Labels[LabelToken], nil
}

// Since gives the containers without a label of ours that were made since then.
func (e Engine) Since(ctx context.Context, then time.Time) ([]Container, error) {
	all, err := e.client().list(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("ask %s for containers: %w", e, err)
	}
	var since []Container
	for _, c := range all {
		if c.ID == "" || c.Labels[LabelID] != "" || c.Created.Before(then.Truncate(time.Second)) {
			continue
		}
		if c.Created.Unix() == then.Unix() { // a list tells whole seconds
			if exact, _, err := e.client().inspect(ctx, c.ID); err == nil && exact.Created.Before(then) {
				continue
			}
		}
		since = append(since, c)
	}
	return since, nil
}

// GetAll gives those of some containers, by their whole ids, that are there.
func (e Engine) GetAll(ctx context.Context, ids []string) ([]Container, error) {
	all, err := e.client().inspectAll(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("ask %s for a container: %w", e, err)
	}
	return slices.DeleteFunc(all, func(c Container) bool { return !slices.Contains(ids, c.ID) }), nil
}

// Stop asks a container to end, and kills it after the grace: killed says that this was
// necessary. It is not started again by its restart policy then.
func (e Engine) Stop(ctx context.Context, c *Container, grace time.Duration) (killed bool, err error) {
	if err := e.client().stop(ctx, c, grace); err != nil || c.Pod {
		return false, err
	}
	_, status, err := e.client().inspect(ctx, c.ID)
	if errors.Is(err, ErrGone) { // it was to be removed when it ends
		return false, nil
	}
	return status == 128+9, err
}

// Remove ends a container at once, if it runs, and removes it with its volumes that
// have no name. One that is not there is removed.
func (e Engine) Remove(ctx context.Context, c *Container) error {
	err := e.client().remove(ctx, c)
	if err != nil && strings.Contains(err.Error(), "already in progress") { // docker, of one with --rm
		err = e.waitGone(ctx, c.ID, err)
	}
	if errors.Is(err, ErrGone) {
		return nil
	}
	return err
}

// waitGone waits until a container is gone that somebody else removes: ErrGone, or why it is not.
func (e Engine) waitGone(ctx context.Context, id string, why error) error {
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	for {
		if _, _, err := e.client().inspect(ctx, id); errors.Is(err, ErrGone) {
			return err
		}
		select {
		case <-ctx.Done():
			return why
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Driver is who makes the cgroups of containers.
type Driver struct {
	Systemd  bool `json:"systemd"`  // a systemd manager, else the engine itself
	Unified  bool `json:"unified"`  // in the cgroup v2 tree
	Rootless bool `json:"rootless"` // as the user, in the user's manager
}

// Refused says whether an error of a question says that the engine could not be reached at all,
// rather than that it was slow, or did not understand.
func (e Engine) Refused(err error) bool {
	if path := e.Socket(); path != "" {
		return !socketThere(path) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
	}
	// podman does not do anything at all where it cannot do this.
	return errors.Is(err, exec.ErrNotFound) || e.Tool == "podman" && errors.As(err, new(*exec.ExitError))
}

// Driver asks for it.
func (e Engine) Driver(ctx context.Context) (Driver, error) { return e.client().driver(ctx) }
