package cgroup

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sessionbox/sessionbox/pkg/internal/kfile"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// Memory1 is the memory hierarchy of cgroup v1, on hosts that still have the controller
// there. Our boxes are no part of it; whose processes lie in what of it is nobody's
// promise, and has to be looked at.
type Memory1 struct{ mount Mount }

// FindMemory1 finds where it is mounted; [ErrNoMemory] when it is not.
func FindMemory1() (Memory1, error) {
	b, err := kfile.ReadAt(unix.AT_FDCWD, "/proc/self/mountinfo")
	if err != nil {
		return Memory1{}, &os.PathError{Op: "read", Path: "/proc/self/mountinfo", Err: err}
	}
	return parseMemory1(b)
}

func parseMemory1(mountinfo []byte) (Memory1, error) {
	for line := range bytes.Lines(mountinfo) {
		left, right, ok := strings.Cut(string(line), " - ")
		f, opts := strings.Fields(left), strings.Fields(right)
		if !ok || len(f) < 6 || len(opts) < 3 || opts[0] != "cgroup" || !slices.Contains(strings.Split(opts[2], ","), "memory") {
			continue
		}
		return Memory1{Mount{Root: unescape(f[3]), Point: unescape(f[4])}}, nil
	}
	return Memory1{}, fmt.Errorf("cgroup v1: %w", ErrNoMemory)
}

// Dir is the directory of the group that a process is charged to.
func (m Memory1) Dir(pid int) (string, error) {
	b, err := readProc(pid, "cgroup")
	if err != nil {
		return "", err
	}
	for line := range bytes.Lines(b) { // 4:memory:/user.slice
		f := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3)
		if len(f) == 3 && slices.Contains(strings.Split(f[1], ","), "memory") {
			return m.mount.Dir(f[2])
		}
	}
	return "", fmt.Errorf("process %d: %w", pid, ErrNoMemory)
}

// Alone says whether a directory has no process but those, nor groups inside, and all
// of those that hold something: then what it is charged is what they hold.
func (m Memory1) Alone(dir string, all []memlimit.Process) bool {
	if dir == m.mount.Point || groupsIn(dir) {
		return false
	}
	b, err := kfile.ReadAt(unix.AT_FDCWD, filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return false
	}
	in := map[int]bool{}
	for text := range strings.FieldsSeq(string(b)) {
		pid, err := strconv.Atoi(text)
		if err != nil || !slices.ContainsFunc(all, func(p memlimit.Process) bool { return p.PID == pid }) {
			return false
		}
		in[pid] = true
	}
	var inside, outside uint64
	for i := range all {
		if p := &all[i]; in[p.PID] {
			inside += p.Hard()
		} else {
			outside += p.Hard()
		}
	}
	return len(in) > 0 && outside <= inside/16
}

func groupsIn(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err != nil || slices.ContainsFunc(entries, os.DirEntry.IsDir)
}
