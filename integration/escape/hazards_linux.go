package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// runGroupSurvivor makes a process group whose number belongs to a leader that is
// gone and whose only member is a stranger: it has no cookie and is in the cgroup
// that the test gave. A cleaner that kills the group of a reaped pid takes it.
//
// It is to be started as a session's command: the group is that of the command.
func runGroupSurvivor(p params) error {
	if syscall.Getpgrp() != os.Getpid() {
		if err := syscall.Setpgid(0, 0); err != nil {
			return fmt.Errorf("lead a group: %w", err)
		}
	}
	if _, err := spawn("outward", p, how{env: []string{}, null: true}); err != nil {
		return err
	}
	return waitUntil(10*time.Second, "stranger in the group", func() bool { return recorded(p, p.label) > 0 })
}

// runHog comes to hold --arg MiB of memory that it has written to, 64 MiB every
// quarter of a second, and ticks.
func runHog(p params) error {
	mib, err := strconv.Atoi(p.arg)
	if err != nil || mib < 1 || mib > 4096 {
		return fmt.Errorf("hog: --arg %q is not a number of MiB from 1 to 4096", p.arg)
	}
	held := make([]byte, mib<<20)
	for i := 0; i < len(held); i += os.Getpagesize() {
		held[i] = 1
		if i%(64<<20) == 0 {
			time.Sleep(250 * time.Millisecond)
		}
	}
	err = runPayload(p)
	held[0] = 2
	return err
}

// runLeak takes memory at a steady rate, as a leak does, and is a payload then: --arg
// is TOTAL/RATE, in MiB and MiB a second.
func runLeak(p params) error {
	total, rate, ok := strings.Cut(p.arg, "/")
	mib, err1 := strconv.Atoi(total)
	each, err2 := strconv.Atoi(rate)
	if !ok || err1 != nil || err2 != nil || mib < 1 || mib > 4096 || each < 1 {
		return fmt.Errorf("leak: --arg %q is not MIB/MIB_A_SECOND", p.arg)
	}
	held := make([]byte, mib<<20)
	began := time.Now()
	for i := 0; i < len(held); i += os.Getpagesize() {
		held[i] = 1
		if i%(1<<20) == 0 { // never ahead of its time
			time.Sleep(time.Until(began.Add(time.Duration(i>>20) * time.Second / time.Duration(each))))
		}
	}
	err := runPayload(p)
	held[0] = 2
	return err
}
