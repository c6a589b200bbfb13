package session

import "github.com/sessionbox/sessionbox/pkg/internal/proc"

// detail is how much to read of each process.
type detail int

const (
	brief detail = iota // one read
	named               // and its command line
	full                // and its memory
)

// describe reads what a process is; ok is false when it is gone.
func describe(pid int, d detail, now uint64) (p Process, ok bool) {
	st, err := proc.ReadStat(pid)
	if err != nil {
		return Process{}, false
	}
	p = Process{PID: pid, Start: st.Start, PPID: st.PPID, Comm: st.Comm, State: string(st.State), UID: -1,
		CPUSeconds: float64(st.UserTicks+st.SystemTicks) / ticksPerSecond, sid: st.SID}
	if now > st.Start {
		p.AgeSeconds = float64(now-st.Start) / ticksPerSecond
	}
	if d >= named {
		p.Argv = proc.Args(pid)
		p.UID, _ = proc.UID(pid)
	}
	if len(p.Argv) == 0 {
		p.Argv = []string{st.Comm}
	}
	if d >= full {
		p.MemoryBytes = proc.Memory(pid)
	}
	return p, true
}
