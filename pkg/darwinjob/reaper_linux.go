package darwinjob

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/sessionbox/sessionbox/pkg/internal/kfile"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"golang.org/x/sys/unix"
)

// BecomeReaper makes the calling process the one to which all orphans below it are given
// (PR_SET_CHILD_SUBREAPER, kernel 3.4). It then belongs into [Ledger.Reapers], if all
// that it starts is the session's.
func BecomeReaper() (ID, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return ID{}, fmt.Errorf("become a subreaper: %w", err)
	}
	st, err := proc.ReadStat(os.Getpid())
	if err != nil {
		return ID{}, err
	}
	return ID{PID: os.Getpid(), Start: st.Start}, nil
}

// CollectOrphans reaps the ended children of the calling process except those that keep
// names, whom somebody else waits for, and says how many.
//
// The root of a session is to be kept until all of it has ended: as long as it is a
// zombie its number is nobody else's.
func CollectOrphans(keep func(pid int) bool) (int, error) {
	pids, err := childPIDs()
	if err != nil {
		return 0, err
	}
	n := 0
	for _, pid := range pids {
		if keep(pid) {
			continue
		}
		// It is our child, so the number is its own until this call.
		got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
		for errors.Is(err, unix.EINTR) {
			got, err = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
		if got == pid {
			n++
		}
	}
	return n, nil
}

// childPIDs are the children of the calling process, ended ones included.
func childPIDs() ([]int, error) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, t := range threads {
		b, err := kfile.ReadAt(unix.AT_FDCWD, "/proc/self/task/"+t.Name()+"/children")
		if err != nil {
			continue // the thread has ended; without CONFIG_PROC_CHILDREN all fail
		}
		for f := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(f); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}
