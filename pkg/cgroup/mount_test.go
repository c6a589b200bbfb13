package cgroup

import (
	"errors"
	"strings"
	"testing"
)

func TestParseMountinfo(t *testing.T) {
	const unified = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
	const hybrid = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw"
	for _, c := range []struct {
		name, text string
		want       Mount
	}{
		{"unified", unified, Mount{Point: "/sys/fs/cgroup", Root: "/"}},
		{"hybrid", hybrid, Mount{Point: "/sys/fs/cgroup/unified", Root: "/"}},
		{"optional fields", "31 23 0:28 / /sys/fs/cgroup rw shared:9 master:1 - cgroup2 none rw", Mount{Point: "/sys/fs/cgroup", Root: "/"}},
		{"read-only mount", "31 23 0:28 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw", Mount{Point: "/sys/fs/cgroup", Root: "/", ReadOnly: true}},
		{"read-only file system", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup ro,nsdelegate", Mount{Point: "/sys/fs/cgroup", Root: "/", ReadOnly: true}},
		{"writable wins", "31 23 0:28 / /sys/fs/cgroup ro - cgroup2 cgroup ro\n32 23 0:28 / /mnt/cg rw - cgroup2 cgroup rw", Mount{Point: "/mnt/cg", Root: "/"}},
		{"whole tree wins over a bind", "32 23 0:28 /a/b /mnt/cg rw - cgroup2 cgroup rw\n" + unified, Mount{Point: "/sys/fs/cgroup", Root: "/"}},
		{"escapes", `31 23 0:28 / /mnt/with\040space rw - cgroup2 cgroup2 rw`, Mount{Point: "/mnt/with space", Root: "/"}},
		{"garbage lines", "\n - \nx - cgroup2\n" + unified, Mount{Point: "/sys/fs/cgroup", Root: "/"}},
	} {
		got, err := ParseMountinfo(strings.NewReader(c.text))
		if err != nil || got != c.want {
			t.Errorf("%s: ParseMountinfo = %+v, %v; want %+v", c.name, got, err, c.want)
		}
	}
	if _, err := ParseMountinfo(strings.NewReader("32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu")); !errors.Is(err, ErrNoCgroup2) {
		t.Errorf("v1 only: %v, want ErrNoCgroup2", err)
	}
}

func TestMountDir(t *testing.T) {
	whole, bind := Mount{Point: "/sys/fs/cgroup", Root: "/"}, Mount{Point: "/mnt", Root: "/a/b"}
	for _, c := range []struct {
		m        Mount
		cg, want string
	}{
		{whole, "/", "/sys/fs/cgroup"},
		{whole, "/x/y", "/sys/fs/cgroup/x/y"},
		{bind, "/a/b", "/mnt"},
		{bind, "/a/b/c", "/mnt/c"},
		{bind, "/a/bc", ""},
		{bind, "/", ""},
	} {
		got, err := c.m.Dir(c.cg)
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%+v.Dir(%q) = %q, %v; want %q", c.m, c.cg, got, err, c.want)
		}
	}
}

func FuzzParseMountinfo(f *testing.F) {
	f.Add("31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate")
	f.Fuzz(func(t *testing.T, s string) {
		m, err := ParseMountinfo(strings.NewReader(s))
		if err == nil && m.Point == "" && m.Root == "" {
			t.Errorf("no error and no mount for %q", s)
		}
	})
}
