package engines

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// api is an engine that listens at a unix socket as docker does: docker itself, rootless
// or not, and podman where its service runs.
type api struct{ socket string }

// oldest is how an engine says which version of its API it wants at least.
var oldest = regexp.MustCompile(`(?i)minimum supported API version is ([0-9]+\.[0-9]+)`)

// call asks without a version, which is the engine's own. One that wants another is
// given it.
func (a api) call(ctx context.Context, method, path string, patience time.Duration) ([]byte, error) {
	body, err := request(ctx, a.socket, method, path, patience)
	var s *statusError
	if errors.As(err, &s) && s.code == 400 {
		if m := oldest.FindStringSubmatch(s.message); m != nil {
			return request(ctx, a.socket, method, "/v"+m[1]+path, patience)
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
	filters, err := json.Marshal(map[string][]string{"label": {label}})
	if err != nil {
		return nil, err
	}
	var found []struct {
		ID      string `json:"Id"`
		Names   []string
		Image   string
		ImageID string
		State   string
		Labels  map[string]string
	}
	if err := a.get(ctx, "/containers/json"+query("all", "1", "filters", string(filters)), &found); err != nil {
		return nil, err
	}
	all := make([]Container, 0, len(found))
	for _, f := range found {
		c := Container{ID: f.ID, Image: f.Image, ImageID: f.ImageID, Labels: f.Labels, Running: runs(f.State)}
		// Those with more slashes are links of other containers.
		if i := slices.IndexFunc(f.Names, func(n string) bool { return strings.Count(n, "/") < 2 }); i >= 0 {
			c.Name = strings.TrimPrefix(f.Names[i], "/")
		}
		all = append(all, c)
	}
	return all, nil
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
