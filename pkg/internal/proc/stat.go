package proc

import (
	"bytes"
	"fmt"
	"strconv"
)

// Stat is what /proc/PID/stat says, as far as it is used here.
type Stat struct {
	PID   int
	Comm  string
	State byte // R S D Z T t I X, see proc_pid_stat(5)
	PPID  int
	PGID  int
	SID   int
	TTY   int
	// Foreground is the process group in front of that terminal, -1 without one.
	Foreground int
	// Kernel says that it is a thread of the kernel and no program.
	Kernel bool
	// Exiting says that the kernel is taking it apart.
	Exiting bool
	// UserTicks and SystemTicks are CPU time used, in clock ticks.
	UserTicks, SystemTicks uint64
	Threads                int
	Start                  uint64 // clock ticks since boot
	RSSPages               int64
	// ExitCode is the wait status of a zombie; also 0 for who may not see it.
	ExitCode int
}

// ParseStat parses the text of /proc/PID/stat. The command name is in
// parentheses and may itself hold spaces and parentheses, so the fields are
// counted from the last one.
func ParseStat(b []byte) (Stat, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return Stat{}, fmt.Errorf("parse stat %q: no command name", clip(b))
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(b[:open])))
	if err != nil {
		return Stat{}, fmt.Errorf("parse stat %q: %w", clip(b), err)
	}
	f := bytes.Fields(b[end+1:])
	if len(f) < 22 || len(f[0]) != 1 {
		return Stat{}, fmt.Errorf("parse stat %q: %d fields after the name", clip(b), len(f))
	}
	s := Stat{PID: pid, Comm: string(b[open+1 : end]), State: f[0][0]}
	var bad error
	num := func(field int) int64 { // numbered as in proc_pid_stat(5)
		n, err := strconv.ParseInt(string(f[field-3]), 10, 64)
		if err != nil {
			bad = fmt.Errorf("parse stat field %d %q: %w", field, f[field-3], err)
		}
		return n
	}
	s.PPID, s.PGID, s.SID, s.TTY, s.Foreground = int(num(4)), int(num(5)), int(num(6)), int(num(7)), int(num(8))
	s.Kernel, s.Exiting = num(9)&kernelThread != 0, num(9)&exiting != 0
	s.UserTicks, s.SystemTicks = uint64(num(14)), uint64(num(15))
	s.Threads, s.Start, s.RSSPages = int(num(20)), uint64(num(22)), num(24)
	if len(f) > 52-3 { // kernel 3.5
		s.ExitCode = int(num(52))
	}
	return s, bad
}

// kernelThread and exiting are PF_KTHREAD and PF_EXITING of linux/sched.h.
const (
	kernelThread = 0x00200000
	exiting      = 0x00000004
)

func clip(b []byte) []byte { return b[:min(len(b), 64)] }
