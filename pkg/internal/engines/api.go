package engines

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// api is an engine that listens at a unix socket as docker does: docker itself, rootless
// or not, and podman where its service runs.
type api struct{ socket string }

// oldest reads which version of its API an engine wants at least, "" if it does not say.
func oldest(message string) string {
	_, rest, ok := strings.Cut(strings.ToLower(message), "minimum supported api version is ")
	if !ok {
		return ""
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if end < 0 {
		end = len(rest)
	}
	return strings.Trim(rest[:end], ".")
}

// call asks without a version, which is the engine's own. One that wants another is
// given it.
func (a api) call(ctx context.Context, method, path string, patience time.Duration) ([]byte, error) {
	body, err := request(ctx, a.socket, method, path, patience)
	var s *statusError
	if errors.As(err, &s) && s.code == 400 {
		if v := oldest(s.message); v != "" {
			return request(ctx, a.socket, method, "/v"+v+path, patience)
		}
	}
	return body, err
}

func (a api) get(ctx context.Context, path string, into any) error {
	body, err := a.call(ctx, "GET", path, AskTime)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("its answer makes no sense: %w", err)
	}
	return nil
}

func (a api) list(ctx context.Context, label string) ([]Container, error) {
	ask := []string{"all", "1"}
	if label != "" {
		filters, err := json.Marshal(map[string][]string{"label": {label}})
		if err != nil {
			return nil, err
		}
		ask = append(ask, "filters", string(filters))
	}
	var found []struct {
		ID      string `json:"Id"`
		Names   []string
		Image   string
		ImageID string
		State   string
		Labels  map[string]string
		Created int64
	}
	if err := a.get(ctx, "/containers/json"+query(ask...), &found); err != nil {
		return nil, err
	}
	all := make([]Container, 0, len(found))
	for _, f := range found {
		c := Container{ID: f.ID, Image: f.Image, ImageID: f.ImageID, Labels: f.Labels, Running: runs(f.State), Created: time.Unix(f.Created, 0)}
		// Those with more slashes are links of other containers.
		if i := slices.IndexFunc(f.Names, func(n string) bool { return strings.Count(n, "/") < 2 }); i >= 0 {
			c.Name = strings.TrimPrefix(f.Names[i], "/")
		}
		all = append(all, c)
	}
	return all, nil
}

func (a api) inspect(ctx context.Context, id string) (Container, int, error) {
	var d details
	err := a.get(ctx, "/containers/"+url.PathEscape(id)+"/json", &d)
	return d.container(), d.State.ExitCode, err
}

func (a api) inspectAll(ctx context.Context, ids []string) ([]Container, error) {
	return oneByOne(ctx, a, ids)
}

// oneByOne leaves out those that have gone.
func oneByOne(ctx context.Context, c client, ids []string) ([]Container, error) {
	var all []Container
	for _, id := range ids {
		found, _, err := c.inspect(ctx, id)
		if errors.Is(err, ErrGone) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, found)
	}
	return all, nil
}

// details are what all engines say of one container.
type details struct {
	ID        string `json:"Id"`
	Name      string
	Image     string
	ImageName string // podman's
	Pod       string
	IsInfra   bool
	Created   time.Time
	State     struct {
		Status   string
		ExitCode int
	}
	Config struct {
		Image  string
		Labels map[string]string
	}
}

func (d *details) container() Container {
	image := d.ImageName
	if image == "" {
		image = d.Config.Image
	}
	return Container{ID: d.ID, Name: strings.TrimPrefix(d.Name, "/"), Image: image, ImageID: d.Image,
		Running: runs(d.State.Status), Labels: d.Config.Labels, Created: d.Created, Infra: d.IsInfra && d.Pod != "", PodID: d.Pod}
}

// runs says of a state whether there are processes.
func runs(state string) bool {
	switch strings.ToLower(state) {
	case "running", "paused", "restarting", "removing", "stopping":
		return true
	}
	return false
}

func (a api) imageLabels(ctx context.Context, image string) (map[string]string, error) {
	var i struct {
		Config struct{ Labels map[string]string }
	}
	err := a.get(ctx, "/images/"+url.PathEscape(image)+"/json", &i)
	return i.Config.Labels, err
}

func (a api) stop(ctx context.Context, c *Container, grace time.Duration) error {
	_, err := a.call(ctx, "POST", "/containers/"+url.PathEscape(c.ID)+"/stop"+query("t", seconds(grace)), grace+endTime)
	return err
}

func (a api) remove(ctx context.Context, c *Container) error {
	_, err := a.call(ctx, "DELETE", "/containers/"+url.PathEscape(c.ID)+query("force", "1", "v", "1"), endTime)
	return err
}

// endTime is how long an engine may take to end a container and say so.
const endTime = 10 * time.Second

// seconds is a grace as engines want it: whole ones, and no less than was granted.
func seconds(d time.Duration) string { return strconv.Itoa(int(math.Ceil(d.Seconds()))) }

func (a api) driver(ctx context.Context) (Driver, error) {
	var i struct {
		CgroupDriver    string
		CgroupVersion   string
		SecurityOptions []string
	}
	if err := a.get(ctx, "/info", &i); err != nil {
		return Driver{}, err
	}
	return Driver{Systemd: i.CgroupDriver == "systemd", Unified: i.CgroupVersion == "2",
		Rootless: slices.ContainsFunc(i.SecurityOptions, func(o string) bool { return strings.HasPrefix(o, "name=rootless") })}, nil
}
