package darwinjob

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"golang.org/x/sys/unix"
)

// xnu is macOS's process table.
type xnu struct {
	boot  string
	caps  Caps
	exact bool // the kernel signals by pid and version

	mu      sync.Mutex
	kq      int
	watched map[int]uint64 // pid → unique id that a filter was put on
}

var (
	_ Table = (*xnu)(nil)
	_ aim   = (*xnu)(nil)
)

// wrap is in how many forks no pid comes round: they go from 100 to 99,999 and skip those
// in use (bsd/kern/kern_fork.c), which leaves room for 19,000.
const wrap = 80_000

// System is the process table of this Mac. What its kernel answers is probed on ourselves
// first; releases are compared only where a wrong guess cannot be seen in the answer.
func System() (Table, error) {
	boot, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return nil, fmt.Errorf("read the id of this boot: %w", err)
	}
	rel, err := unix.Sysctl("kern.osrelease")
	if err != nil {
		return nil, fmt.Errorf("read the release of the kernel: %w", err)
	}
	kq, err := unix.Kqueue()
	if err != nil {
		return nil, os.NewSyscallError("kqueue", err)
	}
	unix.CloseOnExec(kq)
	t := &xnu{boot: boot, kq: kq, watched: map[int]uint64{}, exact: atLeast(rel, 23, 2)}
	t.caps = Caps{Self: os.Getpid(), UID: os.Geteuid()}
	if u, err := readUniq(os.Getpid()); err == nil {
		t.caps.Unique, t.caps.Wrap = true, wrap
		t.caps.ParentVersion = atLeast(rel, 24, 4) && u.orig != 0
	}
	if c, err := readCoalition(os.Getpid()); err == nil && c != 0 {
		t.caps.Coalition = true
	}
	return t, nil
}

// List reads kern.proc.all twice: whoever has the same pid and start in both had the pid
// all the time in between, when the other questions about it were asked by number. Who is
// not in the second is kept if its unique id came together with its start.
func (t *xnu) List(ctx context.Context) (*Snapshot, error) {
	ps, err := readKinfo("kern.proc.all")
	if err != nil {
		return nil, err
	}
	s := &Snapshot{Boot: t.boot, Caps: t.caps}
	bound := make([]bool, len(ps))
	for i := range ps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		bound[i] = t.enrich(&ps[i])
	}
	again, err := readKinfo("kern.proc.all")
	if err != nil {
		return nil, err
	}
	later := make(map[ID]*Proc, len(again))
	for i := range again {
		later[again[i].ID] = &again[i]
	}
	for i, p := range ps {
		q := later[ID{PID: p.PID, Start: p.Start}]
		if q == nil && bound[i] {
			// The rest was asked by number, and may be another's by now.
			p.State, p.SID, p.Coalition = Zombie, 0, 0
			s.Procs = append(s.Procs, p)
			continue
		}
		if q == nil {
			s.Blurred++
			continue
		}
		if q.State == Zombie {
			p.State = Zombie
		}
		sid, err := unix.Getsid(p.PID)
		p.Pinned = q.PPID == p.PPID && q.PGID == p.PGID && (sid == p.SID || err != nil && p.SID == 0)
		s.Procs = append(s.Procs, p)
	}
	if t.caps.Coalition {
		if s.Coalitions, err = readCoalitions(); err != nil {
			s.Coalitions = nil // then the listing alone has to say who is left
		}
	}
	return s, nil
}

// enrich asks what the listing does not tell. What cannot be read stays 0. It says whether
// the unique id is certainly of the process that was listed.
func (t *xnu) enrich(p *Proc) (bound bool) {
	start, u, err := readBSDUniq(p.PID)
	if bound = err == nil && start == p.Start; !bound {
		u, err = readUniq(p.PID)
	}
	if err == nil && t.caps.Unique {
		p.Unique, p.ParentUnique, p.Version = u.unique, u.parent, u.version
		if t.caps.ParentVersion {
			p.ParentVersion = u.orig
		}
	}
	if c, err := readCoalition(p.PID); err == nil && t.caps.Coalition {
		p.Coalition = c
	}
	if sid, err := unix.Getsid(p.PID); err == nil {
		p.SID = sid
	}
	return bound
}

func (t *xnu) Lookup(pid int) (Proc, error) {
	ps, err := readKinfo("kern.proc.pid", pid)
	if err != nil {
		return Proc{}, err
	}
	if len(ps) != 1 {
		return Proc{}, fmt.Errorf("pid %d: %w", pid, proc.ErrGone)
	}
	p := ps[0]
	listed := p.ID
	t.enrich(&p)
	again, err := readKinfo("kern.proc.pid", pid)
	if err != nil || len(again) != 1 || again[0].ID != listed {
		return Proc{}, fmt.Errorf("pid %d: %w", pid, proc.ErrGone)
	}
	return p, nil
}

func (t *xnu) Children(parent ID) ([]Proc, error) {
	pids, err := readChildren(parent.PID)
	if err != nil {
		return nil, err
	}
	var kids []Proc
	for _, pid := range pids {
		if p, err := t.Lookup(pid); err == nil && p.PPID == parent.PID && p.alive() {
			kids = append(kids, p)
		}
	}
	p, err := t.Lookup(parent.PID)
	switch {
	case err != nil:
		return nil, err
	case !parent.Same(p.ID):
		return nil, fmt.Errorf("children of %s: %w", parent, proc.ErrReused)
	case !p.alive():
		return nil, fmt.Errorf("children of %s: %w", parent, proc.ErrGone)
	}
	return kids, nil
}

// still says whether the process lives and has its pid still.
func (t *xnu) still(id ID) error {
	p, err := t.Lookup(id.PID)
	if err != nil {
		return err
	}
	if !id.Same(p.ID) {
		return fmt.Errorf("%s: %w", id, proc.ErrReused)
	}
	return nil
}

func (t *xnu) Marks(id ID, want Marks) (Marks, error) {
	var m Marks
	if b, err := unix.SysctlRaw("kern.procargs2", id.PID); err == nil {
		if _, env, err := parseArgs(b); err == nil {
			m.Cookie, m.Keep = value(env, EnvCookie), value(env, EnvKeep) == "1"
		}
	}
	if want.Sentinel != 0 && holdsPipe(id.PID, want.Sentinel) {
		m.Sentinel = want.Sentinel
	}
	if want.Cwd != "" {
		if b, err := pidInfo(id.PID, flavorVnodePath, 0, vnodePathSize); err == nil {
			if cwd, err := parseCwd(b); err == nil && (cwd == want.Cwd || strings.HasPrefix(cwd, want.Cwd+"/")) {
				m.Cwd = want.Cwd
			}
		}
	}
	path := make([]byte, 4096) // PROC_PIDPATHINFO_MAXSIZE
	if n, err := procInfo(callPIDInfo, id.PID, flavorPath, 0, path, len(path)); err == nil {
		m.Exe, _, _ = strings.Cut(string(path[:max(n, len(path))]), "\x00")
	}
	if err := t.still(id); err != nil {
		return Marks{}, err
	}
	return m, nil
}

// holdsPipe says whether the process has an end of the pipe open.
func holdsPipe(pid int, handle uint64) bool {
	buf := make([]byte, fdSize*4096)
	n, err := procInfo(callPIDInfo, pid, flavorFDs, 0, buf, len(buf))
	if err != nil {
		return false
	}
	for _, fd := range parsePipes(buf[:n]) {
		b := make([]byte, pipeSize+64)
		n, err := procInfo(callPIDFDInfo, pid, flavorPipe, fd, b, len(b))
		if err != nil {
			continue
		}
		if mine, peer, err := parsePipe(b[:n]); err == nil && (mine == handle || peer == handle) {
			return true
		}
	}
	return false
}

func (t *xnu) Signal(id ID, sig syscall.Signal) error {
	if !t.caps.Unique {
		// Nothing but the start names it: compare, and hope for the microsecond.
		if err := proc.CheckPID(id.PID); err != nil {
			return err
		}
		if err := t.still(id); err != nil {
			return err
		}
		return named(id, t.kill(id.PID, sig))
	}
	return exactly(t, id, sig)
}

func (t *xnu) Clock() time.Duration { return proc.Clock() }

func (t *xnu) Memory(id ID) (int64, error) {
	buf := make([]byte, rusageSize)
	if _, err := procInfo(callPIDRusage, id.PID, flavorRusageV4, 0, buf, 0); err != nil {
		return 0, err
	}
	if err := t.still(id); err != nil {
		return 0, err
	}
	return parseFootprint(buf)
}
