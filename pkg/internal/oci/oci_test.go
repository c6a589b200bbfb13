package oci

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// write makes a bundle with this configuration and an empty root file system.
func write(t *testing.T, config string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "rootfs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ConfigFile), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

const good = `{
 "ociVersion": "1.0.2-dev",
 "unheardOf": {"n": 18446744073709551615},
 "root": {"path": "rootfs", "readonly": true},
 "annotations": {"theirs": "1"},
 "process": {"terminal": true, "consoleSize": {"height": 1, "width": 2}, "user": {"uid": 7, "gid": 8}, "cwd": "/src",
  "args": ["sh"], "env": ["PATH=/bin", "A=1"], "noNewPrivileges": true, "newer": [1], "rlimits": [{"type": "RLIMIT_AS", "soft": 1, "hard": 1}], "oomScoreAdj": 900},
 "mounts": [{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
  {"destination": "/data", "source": "data", "options": ["rbind"]},
  {"destination": "/abs", "type": "bind", "source": "/srv"}],
 "linux": {"resources": {"pids": {"limit": 5}}, "namespaces": [{"type": "mount"}]}
}`

// The configuration of a session's container is the bundle's with the patch, whatever
// else is in it, and depends no more on where the bundle lies.
func TestConfig(t *testing.T) {
	dir := write(t, good)
	b, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	data, err := b.Config(Patch{CgroupsPath: "/c", Env: []string{"A=2", "B=3"}, Annotations: map[string]string{"ours": "2"}}, "/bin/init", "__init")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{}
	if err := json.Unmarshal([]byte(strings.NewReplacer(
		`"path": "rootfs"`, `"path": "`+dir+`/rootfs"`,
		`"theirs": "1"`, `"theirs": "1", "ours": "2"`,
		`"terminal": true, "consoleSize": {"height": 1, "width": 2}`, `"terminal": false`,
		`"args": ["sh"]`, `"args": ["/dev/.sessionbox-init", "__init"]`,
		`"cwd": "/src"`, `"cwd": "/"`,
		`, "rlimits": [{"type": "RLIMIT_AS", "soft": 1, "hard": 1}], "oomScoreAdj": 900`, ``,
		`[{"type": "mount"}]`, `[{"type": "mount"}, {"type": "cgroup"}]`,
		`"A=1"`, `"A=2", "B=3"`,
		`"source": "data"`, `"source": "`+dir+`/data"`,
		`"source": "/srv"}`, `"source": "/srv"}, {"destination": "/dev/.sessionbox-init", "type": "bind", "source": "/bin/init", "options": ["bind", "ro", "nosuid", "nodev"]}`,
		`"linux": {`, `"linux": {"cgroupsPath": "/c", `,
	).Replace(good)), &want); err != nil {
		t.Fatal(err)
	}
	got := map[string]any{}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !strings.Contains(string(data), "18446744073709551615") {
		t.Error("a number has lost its digits")
	}
	again, err := b.Config(Patch{}, "/bin/init")
	if err != nil || strings.Contains(string(again), "ours") {
		t.Errorf("the bundle in memory was changed: %s, %v", again, err)
	}
}

// A command has everything of the bundle's process that it does not say itself.
func TestCommand(t *testing.T) {
	b, err := Load(write(t, good))
	if err != nil {
		t.Fatal(err)
	}
	process, err := b.Process([]string{"MARK=1"})
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := Command(process, nil, nil, "")
	if err != nil || !slices.Equal(p.Args, []string{"sh"}) || p.Cwd != "/src" || !slices.Equal(p.Env, []string{"PATH=/bin", "A=1", "MARK=1"}) {
		t.Errorf("without arguments: %+v, %v", p, err)
	}
	p, data, err := Command(process, []string{"ls", "-l"}, []string{"A=9"}, "/tmp")
	if err != nil || !slices.Equal(p.Args, []string{"ls", "-l"}) || p.Cwd != "/tmp" || !slices.Equal(p.Env, []string{"PATH=/bin", "A=9", "MARK=1"}) {
		t.Errorf("with arguments: %+v, %v", p, err)
	}
	if p.User.UID != 7 || !p.NoNewPrivileges || p.Terminal || !strings.Contains(string(data), `"newer":[1]`) {
		t.Errorf("what was not said is lost: %s", data)
	}
}

// A bundle is known by its directory, whatever links lead to it or to its root file system.
func TestLinks(t *testing.T) {
	dir := write(t, good)
	if err := os.Rename(filepath.Join(dir, "rootfs"), filepath.Join(dir, "real")); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.Symlink("real", filepath.Join(dir, "rootfs")), os.Symlink(dir, link)); err != nil {
		t.Fatal(err)
	}
	b, err := Load(link)
	if err != nil {
		t.Fatal(err)
	}
	if b.Dir != dir || b.RootDir() != filepath.Join(dir, "real") {
		t.Errorf("the bundle is %s with the root file system %s", b.Dir, b.RootDir())
	}
}

// Cgroups that are not the container's own are not to be written in it.
func TestCgroupMounts(t *testing.T) {
	const own, none, joined = `[{"type": "cgroup"}]`, `[]`, `[{"type": "cgroup", "path": "/proc/1/ns/cgroup"}]`
	for _, c := range []struct {
		mount, namespaces string
		opens             bool
	}{
		{`{"type": "cgroup", "source": "cgroup"}`, own, false},
		{`{"type": "cgroup", "source": "cgroup"}`, none, false}, // it gets one
		{`{"type": "cgroup2", "source": "cgroup"}`, joined, true},
		{`{"type": "cgroup", "source": "cgroup", "options": ["ro"]}`, joined, false},
		{`{"type": "bind", "source": "/sys/fs/cgroup/x"}`, own, true},
		{`{"source": "/sys", "options": ["rbind"]}`, none, true},
		{`{"source": "/sys", "options": ["bind"]}`, none, false},
		{`{"source": "/sys", "options": ["rbind", "ro"]}`, none, false},
		{`{"source": "/sysx", "options": ["rbind"]}`, none, false},
	} {
		config := strings.NewReplacer(`[{"type": "mount"}]`, c.namespaces, `{"destination": "/abs", `, strings.Replace(c.mount, "{", `{"destination": "/m", `, 1)+`, {"destination": "/abs", `).Replace(good)
		_, err := Load(write(t, config))
		if opens := err != nil && strings.Contains(err.Error(), "mounts cgroups at /m"); opens != c.opens || !opens && err != nil {
			t.Errorf("%s with the namespaces %s: %v", c.mount, c.namespaces, err)
		}
	}
}

// Where the session's init can be put: in memory, and where nothing hides it.
func TestInitDir(t *testing.T) {
	for mounts, want := range map[string]string{
		`[{"destination": "/tmp", "type": "tmpfs"}]`:                                                                                  "/tmp",
		`[{"destination": "/tmp", "type": "tmpfs"}, {"destination": "/dev", "type": "tmpfs"}]`:                                        "/dev",
		`[{"destination": "/dev", "type": "tmpfs"}, {"destination": "/dev/shm", "type": "tmpfs"}]`:                                    "/dev",
		`[{"destination": "/dev", "type": "tmpfs"}, {"destination": "/dev", "type": "bind", "source": "/dev", "options": ["rbind"]}]`: "",
		`[{"destination": "/run/x", "type": "tmpfs"}, {"destination": "/run", "type": "bind", "source": "/r"}]`:                       "",
		`[{"destination": "/run/x", "type": "tmpfs"}, {"destination": "/", "type": "bind", "source": "/r"}]`:                          "",
		`[{"destination": "/dev", "type": "bind", "source": "/dev"}, {"destination": "/proc", "type": "proc"}]`:                       "",
	} {
		b, err := Read(write(t, `{"ociVersion": "1.0.0", "mounts": `+mounts+`}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := b.initDir(); got != want {
			t.Errorf("%s: %q, want %q", mounts, got, want)
		}
	}
}

func TestVersions(t *testing.T) {
	for v, fine := range map[string]bool{"1.0.0": true, "1.0.2-dev": true, "1.3.0": true, "1.3.9": true, "1.4.0": false, "2.0.0": false,
		"0.9.0": false, "": false, "1.0": false, "1.0.x": false, "1.-1.0": false, "1.0.0.0": false} {
		if err := checkVersion(v); (err == nil) != fine {
			t.Errorf("%q: %v", v, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(good)
	f.Add(`{"ociVersion":"1.0.0","process":null,"linux":{},"mounts":[null,{}],"root":{}}`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, config string) {
		b, err := Read(write(t, config))
		if err != nil {
			if !errors.As(err, new(*Invalid)) {
				t.Errorf("not what is wrong with it: %v", err)
			}
			return
		}
		if b.check() != nil {
			return
		}
		if _, err := b.Config(Patch{CgroupsPath: "/c"}, "/init"); err != nil {
			t.Errorf("found good: %v", err)
		}
		if _, err := b.Process(nil); err != nil {
			t.Errorf("found good: %v", err)
		}
	})
}
