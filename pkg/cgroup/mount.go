package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// ErrNoCgroup2 says that no cgroup v2 hierarchy is mounted here.
var ErrNoCgroup2 = errors.New("no cgroup v2 hierarchy is mounted")

// Mount is where the cgroup v2 hierarchy is seen.
type Mount struct {
	Point string // e.g. /sys/fs/cgroup, or /sys/fs/cgroup/unified on a hybrid host
	// Root is the directory of the hierarchy that Point shows, "/" unless the
	// mount is a bind or belongs to another cgroup namespace.
	Root     string
	ReadOnly bool
}

// ParseMountinfo finds the cgroup v2 mount in the text of /proc/self/mountinfo.
// Of several the one that shows most of the hierarchy wins, a writable one
// before a read-only one; mounted over ones cannot be told and lose by order.
func ParseMountinfo(r io.Reader) (Mount, error) {
	var best Mount
	found := false
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		// 36 35 98:0 /root /point rw,noatime shared:1 - cgroup2 cgroup2 rw
		left, right, ok := strings.Cut(sc.Text(), " - ")
		f, opts := strings.Fields(left), strings.Fields(right)
		if !ok || len(f) < 6 || len(opts) < 3 || opts[0] != "cgroup2" {
			continue
		}
		m := Mount{Root: unescape(f[3]), Point: unescape(f[4])}
		for _, o := range []string{f[5], opts[2]} {
			m.ReadOnly = m.ReadOnly || strings.HasPrefix(o+",", "ro,")
		}
		if !found || m.better(best) {
			best, found = m, true
		}
	}
	if err := sc.Err(); err != nil {
		return Mount{}, fmt.Errorf("read mountinfo: %w", err)
	}
	if !found {
		return Mount{}, ErrNoCgroup2
	}
	return best, nil
}

func (m Mount) better(o Mount) bool {
	if m.ReadOnly != o.ReadOnly {
		return o.ReadOnly
	}
	return len(m.Root) <= len(o.Root)
}

// Dir is the directory in which a cgroup path of /proc/PID/cgroup is found.
func (m Mount) Dir(cg string) (string, error) {
	if m.Root == "/" {
		return path.Join(m.Point, cg), nil
	}
	rel, ok := strings.CutPrefix(cg+"/", strings.TrimSuffix(m.Root, "/")+"/")
	if !ok {
		return "", fmt.Errorf("cgroup %s is outside of what %s shows (%s)", cg, m.Point, m.Root)
	}
	return path.Join(m.Point, rel), nil
}

// unescape undoes the octal escapes of mountinfo: \040 \011 \012 \134.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
