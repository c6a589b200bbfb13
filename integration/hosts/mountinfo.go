package hosts

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// errNoCgroup2 is the answer on machines without a cgroup v2 tree.
var errNoCgroup2 = errors.New("no cgroup v2 file system is mounted")

// cgroup2Mount finds where cgroup v2 is mounted. It reads mountinfo and does not
// assume /sys/fs/cgroup: hybrid machines have it at /sys/fs/cgroup/unified.
func cgroup2Mount(mountinfo io.Reader) (string, error) {
	lines := bufio.NewScanner(mountinfo)
	for lines.Scan() {
		// "36 35 98:0 /root /mount/point opts shared:1 - fstype source superopts"
		left, right, ok := strings.Cut(lines.Text(), " - ")
		if !ok {
			continue
		}
		fields, kind := strings.Fields(left), strings.Fields(right)
		if len(fields) >= 5 && len(kind) >= 1 && kind[0] == "cgroup2" {
			return unescapeMount.Replace(fields[4]), nil
		}
	}
	if err := lines.Err(); err != nil {
		return "", fmt.Errorf("read mountinfo: %w", err)
	}
	return "", errNoCgroup2
}

// unescapeMount undoes what the kernel does to separators in mountinfo.
var unescapeMount = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
