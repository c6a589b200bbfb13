package doors

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestSocketPaths(t *testing.T) {
	for address, want := range map[string][]string{
		"":                                   nil,
		"unix:path=/run/user/7/bus":          {"/run/user/7/bus"},
		"unix:path=/a,guid=12;unix:path=/b":  {"/a", "/b"},
		"unix:guid=1,path=/a":                {"/a"},
		"unix:abstract=/tmp/dbus-x,guid=1":   nil,
		"unix:///run/docker.sock":            {"/run/docker.sock"},
		"/run/containerd/containerd.sock":    {"/run/containerd/containerd.sock"},
		"tcp://127.0.0.1:2375":               nil,
		"unix:path=/":                        nil,
		"unix:path=/x/../run/bus;tcp:host=a": {"/run/bus"},
		"unix:path=relative":                 nil,
	} {
		if got := socketPaths(address); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", address, got, want)
		}
	}
}

// A place is hidden once, by its real path, wherever the environment says it is.
func TestPlaces(t *testing.T) {
	dir := t.TempDir()
	run := filepath.Join(dir, "run")
	if err := os.MkdirAll(filepath.Join(run, "systemd"), 0o755); err != nil {
		t.Fatal(err)
	}
	bus, err := net.Listen("unix", filepath.Join(run, "bus"))
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	if err := os.Symlink("bus", filepath.Join(run, "docker.sock")); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{
		"XDG_RUNTIME_DIR": run, "HOME": dir, "TMUX": filepath.Join(run, "bus") + ",1,0",
		"DBUS_SESSION_BUS_ADDRESS": "unix:path=" + run + "/bus", "TMUX_TMPDIR": dir, "SESSIONBOX_TMPDIR": dir,
	}
	if err := os.Mkdir(filepath.Join(dir, "tmux-4000000"), 0o700); err != nil {
		t.Fatal(err)
	}
	var mine []place
	for _, p := range here(places(4000000, func(k string) string { return env[k] })) {
		if rel, err := filepath.Rel(dir, p.path); err == nil && filepath.IsLocal(rel) {
			mine = append(mine, place{p.door, rel})
		}
	}
	want := []place{{UserBus, "run/bus"}, {UserManager, "run/systemd"}}
	if !slices.Equal(mine, want) {
		t.Errorf("found %v, want %v", mine, want)
	}
	for _, p := range places(7, func(string) string { return "" }) {
		if !filepath.IsAbs(p.path) || filepath.Dir(p.path) == "/" {
			t.Errorf("without an environment %q is %s", p.path, p.door)
		}
	}
	for _, d := range append(closed(nil), Open()...) {
		if d.Name == "" || d.Text == "" {
			t.Errorf("nothing is said of %+v", d)
		}
	}
}
