package hosts

import (
	"fmt"
	"strconv"
	"strings"
)

// leavingPrefix begins the name of everything that outlives its maker when the
// maker is killed: cgroups and directories.
const leavingPrefix = "sbxtest-"

// An identity tells whose a leaving is. A pid alone would not: pids are used
// again, and mean something else in another pid namespace.
type identity struct {
	pidNS string // inode of the pid namespace
	pid   int
	start uint64 // start time in clock ticks since boot
}

// name makes the name of a leaving, unique by tag.
func (id identity) name(tag string) string {
	return fmt.Sprintf("%s%s-%d-%d-%s", leavingPrefix, id.pidNS, id.pid, id.start, tag)
}

// parseLeaving reads the maker's identity from the name of a leaving.
func parseLeaving(name string) (identity, bool) {
	rest, ok := strings.CutPrefix(name, leavingPrefix)
	parts := strings.SplitN(rest, "-", 4)
	if !ok || len(parts) != 4 {
		return identity{}, false
	}
	pid, err1 := strconv.Atoi(parts[1])
	start, err2 := strconv.ParseUint(parts[2], 10, 64)
	if err1 != nil || err2 != nil || pid <= 0 {
		return identity{}, false
	}
	return identity{pidNS: parts[0], pid: pid, start: start}, true
}

// NamesMaker reports whether name is one that this package gives to cgroups and
// directories, so that IsStale can tell something about it.
func NamesMaker(name string) bool {
	_, ok := parseLeaving(name)
	return ok
}

// parseStartTime returns the start time from the text of /proc/PID/stat. The
// command in it may hold spaces and parentheses, so fields count from the last one.
func parseStartTime(stat string) (uint64, error) {
	_, rest, ok := lastCut(stat, ")")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 {
		return 0, fmt.Errorf("unexpected stat line %q", stat)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

func lastCut(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
