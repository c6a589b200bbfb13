package cgroup

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sessionbox/sessionbox/pkg/internal/kfile"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// Processes tells what each process of g, with all below it, holds, the biggest
// first: who a warning is about, and where there is no memory controller, what
// memlimit.FillProcesses sums up. Those that end meanwhile are left out. It costs
// 0.05 ms for each.
func (g *Group) Processes() ([]memlimit.Process, error) {
	members, err := g.Members()
	if err != nil {
		return nil, err
	}
	return Holdings(members), nil
}

// Holdings is Processes of those that are known otherwise.
func Holdings(members []proc.Member) []memlimit.Process {
	all := make([]memlimit.Process, 0, len(members))
	for _, m := range members {
		st, err := proc.ReadStat(m.PID)
		if err != nil {
			continue
		}
		p := memlimit.Process{PID: m.PID, Start: st.Start, Comm: st.Comm, Leaf: m.Leaf}
		b, err := readProc(m.PID, "status")
		if err != nil || p.ParseStatus(b) != nil {
			continue
		}
		all = append(all, p)
	}
	sortProcesses(all)
	return all
}

// exactBudget is how long all of Exact may take.
const exactBudget = 20 * time.Millisecond

// Exact divides shared memory among those who share it, for as many as there is time for
// (see memlimit.Costly), and sorts them anew. Asking stops a process for a while.
func Exact(all []memlimit.Process) {
	end := proc.Clock() + exactBudget
	for _, i := range memlimit.Costly(all) {
		if proc.Clock() >= end {
			break
		}
		if b, err := readProc(all[i].PID, "smaps_rollup"); err == nil {
			_ = all[i].ParseRollup(b) // what cannot be read stays as it is
		}
	}
	sortProcesses(all)
}

func sortProcesses(all []memlimit.Process) {
	slices.SortStableFunc(all, func(a, b memlimit.Process) int { return cmp.Compare(b.Hard(), a.Hard()) })
}

func readProc(pid int, file string) ([]byte, error) {
	b, err := kfile.ReadAt(unix.AT_FDCWD, "/proc/"+strconv.Itoa(pid)+"/"+file)
	if errors.Is(err, unix.ESRCH) {
		err = unix.ENOENT
	}
	return b, err
}
