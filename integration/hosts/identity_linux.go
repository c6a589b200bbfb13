package hosts

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// ownName names a leaving of this process.
func ownName() (string, error) {
	id, err := self()
	if err != nil {
		return "", err
	}
	var tag [4]byte
	if _, err := rand.Read(tag[:]); err != nil {
		return "", fmt.Errorf("name a leaving: %w", err)
	}
	return id.name(hex.EncodeToString(tag[:])), nil
}

func self() (identity, error) {
	ns, err := pidNamespace()
	if err != nil {
		return identity{}, err
	}
	start, err := startTime(os.Getpid())
	if err != nil {
		return identity{}, err
	}
	return identity{pidNS: ns, pid: os.Getpid(), start: start}, nil
}

// pidNamespace returns the number in "pid:[4026531836]".
func pidNamespace() (string, error) {
	link, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "", fmt.Errorf("identify the pid namespace: %w", err)
	}
	return strings.Trim(strings.TrimPrefix(link, "pid:"), "[]"), nil
}

func startTime(pid int) (uint64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("start time of process %d: %w", pid, err)
	}
	return parseStartTime(string(stat))
}

// IsStale reports whether name is that of a cgroup or directory of this package
// whose maker is certainly gone. A maker in another pid namespace cannot be
// looked up, so what it left is never called stale.
func IsStale(name string) bool {
	id, ok := parseLeaving(name)
	if !ok {
		return false
	}
	ns, err := pidNamespace()
	if err != nil || ns != id.pidNS {
		return false
	}
	start, err := startTime(id.pid)
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	return err == nil && start != id.start
}
