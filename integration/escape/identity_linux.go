package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// record appends "PID START LABEL" for the calling process to pids, in one write, so
// that lines of many processes do not mix.
func record(p params) error {
	// Not os.Getpid: in a pid namespace of its own a process does not know the number
	// by which the test knows it, but the /proc of the outer namespace does.
	link, err := os.Readlink("/proc/self")
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(link)
	if err != nil {
		return fmt.Errorf("/proc/self is %q: %w", link, err)
	}
	return recordPID(p, pid, p.label)
}

// recordPID appends the line of another process.
func recordPID(p params, pid int, label string) error {
	start, err := startTime(pid)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(p.path("pids"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "%d %d %s\n", pid, start, label)
	return err
}

// startTime is field 22 of /proc/PID/stat, in ticks since boot: with the pid it
// names a process for the time of one boot.
func startTime(pid int) (uint64, error) {
	f, err := statFields(pid)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(f[19], 10, 64)
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
		return nil, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(f))
	}
	return f, nil
}

// recorded counts the lines of pids that carry a label.
func recorded(p params, label string) int {
	b, err := os.ReadFile(p.path("pids"))
	if err != nil {
		return 0
	}
	n := 0
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[2] == label {
			n++
		}
	}
	return n
}
