package integration_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ident names a process for the time of one boot.
type ident struct {
	pid   int
	start uint64 // clock ticks since boot
}

func (id ident) String() string { return fmt.Sprintf("%d (start %d)", id.pid, id.start) }

// identify reads the identity of the process that has a pid now.
func identify(pid int) (ident, error) {
	f, err := statFields(pid)
	if err != nil {
		return ident{}, err
	}
	start, err := strconv.ParseUint(f[19], 10, 64)
	return ident{pid, start}, err
}

// statFields are the fields of /proc/PID/stat from the third on; the second, the
// name, may hold blanks and parentheses.
func statFields(pid int) ([]string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 {
		return nil, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(f))
	}
	return f, nil
}

// alive tells whether the process can still do something. A zombie cannot, unless it
// is only its leader that is dead.
func (id ident) alive() bool {
	f, err := statFields(id.pid)
	if err != nil || f[19] != strconv.FormatUint(id.start, 10) {
		return false
	}
	if f[0] != "Z" && f[0] != "X" {
		return true
	}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", id.pid))
	return err == nil && len(tasks) > 1
}

// kill ends this process and no other: the start time is compared while a pidfd
// holds it.
func (id ident) kill() error { return id.signal(unix.SIGKILL) }

// signal sends a signal to this process and to no other.
func (id ident) signal(sig unix.Signal) error {
	if id.pid <= 1 || id.pid == os.Getpid() {
		return fmt.Errorf("refused to end %v", id)
	}
	fd, err := unix.PidfdOpen(id.pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	now, err := identify(id.pid)
	if err != nil || now != id {
		return nil // it has ended, the number is another's
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// recordedIn reads the pids file of a payload directory.
func recordedIn(dir string) map[ident]string {
	ids := map[ident]string{}
	b, _ := os.ReadFile(filepath.Join(dir, "pids"))
	for line := range strings.Lines(string(b)) {
		var id ident
		var label string
		if _, err := fmt.Sscanf(line, "%d %d %s", &id.pid, &id.start, &label); err == nil {
			ids[id] = label
		}
	}
	return ids
}

// livingIn are those of a payload directory that are alive.
func livingIn(dir string) []ident {
	var living []ident
	for id := range recordedIn(dir) {
		if id.alive() {
			living = append(living, id)
		}
	}
	return living
}

// ticksIn is how far the counter of a payload directory has come.
func ticksIn(dir string) int64 {
	fi, err := os.Stat(filepath.Join(dir, "counter"))
	if err != nil {
		return 0
	}
	return fi.Size()
}
