package engines

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// cli is an engine that is asked by its own command.
type cli struct{ Engine }

// Places is where the commands of engines are looked for: never where the session's
// record says, which its processes can write.
func Places() []string {
	return append(filepath.SplitList(os.Getenv("PATH")), "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")
}

// find gives the path of a command.
func find(tool string) (string, error) {
	self, _ := os.Executable()
	own, _ := os.Stat(self)
	for _, dir := range Places() {
		if !filepath.IsAbs(dir) {
			continue
		}
		path := filepath.Join(dir, tool)
		fi, err := os.Stat(path)
		if err == nil && !fi.IsDir() && fi.Mode()&0o111 != 0 && (own == nil || !os.SameFile(fi, own)) {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed here: %w", tool, exec.ErrNotFound)
}

// There says whether there is such an engine here.
func (e Engine) There() bool {
	if path := e.Socket(); path != "" {
		return socketThere(path)
	}
	_, err := find(e.Tool)
	return err == nil
}

// run runs a verb of the tool. Its group ends with it when time is up.
func (c cli) run(ctx context.Context, patience time.Duration, args ...string) ([]byte, error) {
	path, err := find(c.Tool)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, path, append(append([]string{}, c.Options...), args...)...)
	cmd.Env, cmd.Dir = c.environ(), "/"
	cmd.Stdout, cmd.Stderr = &limited{w: &out, left: answerMax}, &limited{w: &errs, left: 64 << 10}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second // podman leaves somebody behind that has its output
	err = cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("no answer: %w", ctx.Err())
	case err != nil:
		if gone(errs.String()) {
			return nil, ErrGone
		}
		return out.Bytes(), fmt.Errorf("%w: %s", err, lastLine(errs.String()))
	}
	return out.Bytes(), nil
}

// limited drops what is too much.
type limited struct {
	w    io.Writer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	n := len(p)
	if len(p) > l.left {
		p = p[:l.left]
	}
	l.left -= len(p)
	if _, err := l.w.Write(p); err != nil {
		return 0, err
	}
	return n, nil
}

// gone says of what a tool complains of whether it is that there is no such thing.
func gone(text string) bool {
	text = strings.ToLower(text)
	for _, s := range []string{"no such container", "no container with", "no such object", "no such image", "no such pod", "no such id", "not found: not found", "unable to find"} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}

// environ is what the tool needs, and nothing of what we were given for ourselves.
func (c cli) environ() []string {
	env := []string{"PATH=" + strings.Join(Places(), ":"), "LC_ALL=C"}
	for _, k := range EnvNames() {
		v, ok := c.Env[k]
		if !ok && len(c.Env) == 0 {
			v, ok = os.LookupEnv(k)
		}
		if ok {
			env = append(env, k+"="+v)
		}
	}
	if c.cookie != "" {
		env = append(env, EnvAsked+"="+c.cookie)
	}
	return env
}

func (c cli) list(ctx context.Context, label string) ([]Container, error) {
	if label == "" {
		return c.listAll(ctx)
	}
	out, err := c.run(ctx, cliTime, "ps", "--all", "--quiet", "--no-trunc", "--filter", "label="+label)
	if err != nil {
		return nil, err
	}
	all, err := c.inspectAll(ctx, strings.Fields(string(out)))
	if err != nil {
		return nil, err
	}
	if c.Tool != "podman" {
		return all, nil
	}
	pods, err := c.pods(ctx, label)
	return append(all, pods...), err
}

// listAll gives all containers with what a list says of each; of others than podman's none,
// as that would take a call for each.
func (c cli) listAll(ctx context.Context) ([]Container, error) {
	if c.Tool != "podman" {
		return nil, nil
	}
	out, err := c.run(ctx, cliTime, "ps", "--all", "--no-trunc", "--format", "json")
	if err != nil {
		return nil, err
	}
	var found []struct {
		ID      string `json:"Id"`
		Names   []string
		Image   string
		State   string
		Labels  map[string]string
		Created int64
	}
	if len(bytes.TrimSpace(out)) > 0 {
		if err := json.Unmarshal(out, &found); err != nil {
			return nil, fmt.Errorf("its answer makes no sense: %w", err)
		}
	}
	all := make([]Container, 0, len(found))
	for _, f := range found {
		all = append(all, Container{ID: f.ID, Name: strings.Join(f.Names, " "), Image: f.Image, Running: runs(f.State), Labels: f.Labels, Created: time.Unix(f.Created, 0)})
	}
	return all, nil
}

func (c cli) inspect(ctx context.Context, id string) (Container, int, error) {
	out, err := c.run(ctx, cliTime, "container", "inspect", id)
	if err != nil {
		return Container{}, 0, err
	}
	var found []details
	if err := json.Unmarshal(out, &found); err != nil || len(found) != 1 {
		return Container{}, 0, fmt.Errorf("its answer makes no sense: %w", err)
	}
	return found[0].container(), found[0].State.ExitCode, nil
}

// inspectAll asks for all at once: each call may take half a second. One that is not there
// fails it, and the others are asked for one by one.
func (c cli) inspectAll(ctx context.Context, ids []string) ([]Container, error) {
	if len(ids) < 2 {
		return oneByOne(ctx, c, ids)
	}
	out, err := c.run(ctx, cliTime, append([]string{"container", "inspect"}, ids...)...)
	if errors.Is(err, ErrGone) {
		return oneByOne(ctx, c, ids)
	}
	if err != nil {
		return nil, err
	}
	var found []details
	if err := json.Unmarshal(out, &found); err != nil {
		return nil, fmt.Errorf("its answer makes no sense: %w", err)
	}
	all := make([]Container, len(found))
	for i := range found {
		all[i] = found[i].container()
	}
	return all, nil
}

// pods are groups of containers, with a label of their own.
func (c cli) pods(ctx context.Context, label string) ([]Container, error) {
	out, err := c.run(ctx, cliTime, "pod", "ps", "--quiet", "--no-trunc", "--filter", "label="+label)
	if err != nil {
		return nil, err
	}
	var all []Container
	for id := range strings.FieldsSeq(string(out)) {
		p, err := c.pod(ctx, id)
		if errors.Is(err, ErrGone) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, Container{ID: p.ID, Name: p.Name, Image: "pod", Pod: true, Running: runs(p.State) || p.State == "Degraded", Labels: p.Labels})
	}
	return all, nil
}

type podInfo struct {
	ID, Name, State string
	Labels          map[string]string
	Containers      []struct {
		ID string `json:"Id"`
	}
}

func (c cli) pod(ctx context.Context, id string) (podInfo, error) {
	out, err := c.run(ctx, cliTime, "pod", "inspect", id)
	if err != nil {
		return podInfo{}, err
	}
	var p podInfo
	// A list of one since podman 5.
	if err := json.Unmarshal(out, &p); err != nil {
		var list []podInfo
		if err := json.Unmarshal(out, &list); err != nil || len(list) != 1 {
			return podInfo{}, fmt.Errorf("its answer makes no sense: %w", err)
		}
		p = list[0]
	}
	return p, nil
}

func (c cli) imageLabels(ctx context.Context, image string) (map[string]string, error) {
	if image == "" {
		return nil, ErrGone
	}
	out, err := c.run(ctx, cliTime, "image", "inspect", image)
	if err != nil {
		return nil, err
	}
	var found []struct {
		Labels map[string]string // podman
		Config struct{ Labels map[string]string }
	}
	if err := json.Unmarshal(out, &found); err != nil {
		return nil, fmt.Errorf("its answer makes no sense: %w", err)
	}
	if len(found) == 0 {
		return nil, ErrGone
	}
	if labels := found[0].Config.Labels; len(labels) > 0 {
		return labels, nil
	}
	return found[0].Labels, nil
}

func (c cli) stop(ctx context.Context, t *Container, grace time.Duration) error {
	if t.Pod {
		_, err := c.run(ctx, grace+cliEndTime, "pod", "stop", "--time", seconds(grace), t.ID)
		return err
	}
	_, err := c.run(ctx, grace+cliEndTime, "stop", "--time", seconds(grace), t.ID)
	return err
}

func (c cli) remove(ctx context.Context, t *Container) error {
	if t.Infra {
		return c.removePod(ctx, t)
	}
	if t.Pod {
		_, err := c.run(ctx, cliEndTime, "pod", "rm", "--force", t.ID)
		return err
	}
	_, err := c.run(ctx, cliEndTime, "rm", "--force", "--volumes", t.ID)
	return err
}

// removePod removes the pod of an infra container, when nothing else is in it any more.
func (c cli) removePod(ctx context.Context, infra *Container) error {
	p, err := c.pod(ctx, infra.PodID)
	if err != nil {
		return err
	}
	for _, other := range p.Containers {
		if other.ID != infra.ID {
			return fmt.Errorf("its pod %s has container %.12s in it", p.Name, other.ID)
		}
	}
	_, err = c.run(ctx, cliEndTime, "pod", "rm", "--force", infra.PodID)
	return err
}

func (c cli) driver(ctx context.Context) (Driver, error) {
	if c.Tool != "podman" {
		out, err := c.run(ctx, cliEndTime, "info", "--format", "{{.CgroupDriver}} {{.CgroupVersion}}")
		f := strings.Fields(string(out))
		if err != nil || len(f) != 2 {
			return Driver{}, errors.Join(err, errors.New("it does not say who makes its cgroups"))
		}
		return Driver{Systemd: f[0] == "systemd", Unified: f[1] == "2", Rootless: false}, nil
	}
	// Not by a template: the names of its fields change with the version.
	out, err := c.run(ctx, cliEndTime, "info", "--format", "json")
	if err != nil {
		return Driver{}, err
	}
	var i struct {
		Host struct {
			CgroupManager string `json:"cgroupManager"`
			CgroupVersion string `json:"cgroupVersion"`
		} `json:"host"`
	}
	if err := json.Unmarshal(out, &i); err != nil {
		return Driver{}, fmt.Errorf("its answer makes no sense: %w", err)
	}
	return Driver{Systemd: i.Host.CgroupManager == "systemd", Unified: i.Host.CgroupVersion == "v2", Rootless: os.Geteuid() != 0}, nil
}
