package darwinjob

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/kfile"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"golang.org/x/sys/unix"
)

// procfs is Linux's process table. It has no unique ids: a process is its pid and its
// start in clock ticks, and is signalled through a pidfd that was compared with both.
type procfs struct {
	boot string
	ns   uint64
	caps Caps
}

var _ Table = (*procfs)(nil)

// System is the process table of this machine, as it is seen from our pid namespace.
// An error is one of package proc, e.g. for a /proc of another namespace.
func System() (Table, error) {
	if err := proc.OwnNamespace(); err != nil {
		return nil, err
	}
	boot, err := proc.BootID()
	if err != nil {
		return nil, err
	}
	ns, err := proc.Namespace()
	if err != nil {
		return nil, err
	}
	t := &procfs{boot: boot, ns: ns, caps: Caps{Self: os.Getpid(), UID: os.Geteuid()}}
	if b, err := kfile.ReadAt(unix.AT_FDCWD, "/proc/sys/kernel/pid_max"); err == nil {
		// Pids are given out in a round (alloc_pid of kernel/pid.c). Half of it, as some
		// forks fail after they got theirs and are not counted.
		if n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64); err == nil {
			t.caps.Wrap = n / 2
		}
	}
	return t, nil
}

func (t *procfs) List(ctx context.Context) (*Snapshot, error) {
	if err := proc.OwnNamespace(); err != nil {
		return nil, err
	}
	pids, err := proc.PIDs()
	if err != nil {
		return nil, err
	}
	s := &Snapshot{Boot: t.boot, Namespace: t.ns, Caps: t.caps, Procs: make([]Proc, 0, len(pids))}
	for _, pid := range pids {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		switch p, kernel, err := t.read(pid); {
		case err != nil:
			s.Blurred++
		case !kernel:
			s.Procs = append(s.Procs, p)
		}
	}
	for i := range s.Procs {
		p := &s.Procs[i]
		st, err := proc.ReadStat(p.PID)
		if errors.Is(err, proc.ErrGone) || err == nil && (st.Start != p.Start || st.State == 'Z' && st.Threads <= 1) {
			p.State = Zombie
		}
		p.Pinned = err == nil && st.Start == p.Start && st.PPID == p.PPID && st.PGID == p.PGID && st.SID == p.SID
	}
	s.Forks = forkCount()
	s.Ended = ticks()
	return s, nil
}

func (t *procfs) here() *Snapshot {
	return &Snapshot{Boot: t.boot, Namespace: t.ns, Caps: t.caps, Forks: forkCount(), Ended: ticks()}
}

func (t *procfs) read(pid int) (p Proc, kernel bool, err error) {
	st, err := proc.ReadStat(pid)
	if err != nil {
		return Proc{}, false, err
	}
	if st.Kernel {
		return Proc{}, true, nil
	}
	p = Proc{ID: ID{PID: pid, Start: st.Start}, PPID: st.PPID, PGID: st.PGID, SID: st.SID, Comm: st.Comm, TTY: uint64(st.TTY),
		Wait: string(rune(st.State)), State: stateOf(st.State)}
	if p.State == Zombie && st.Threads > 1 {
		// Its main thread has ended, the others live (measured: cgroup.kill misses it).
		p.State = headless(pid)
	}
	if p.UID, err = proc.UID(pid); err != nil {
		p.UID = -1
	}
	return p, false, nil
}

// stateOf reads the letter of /proc/PID/stat (proc_pid_stat(5)).
func stateOf(letter byte) State {
	switch letter {
	case 'Z', 'X', 'x':
		return Zombie
	case 'T', 't':
		return Stopped
	case 'D':
		return Blocked
	}
	return Running
}

// headless is the state of a process that lives on without its main thread: that of a
// thread that is not stopped, if there is one.
func headless(pid int) State {
	is := Zombie
	d, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return is
	}
	for _, e := range d {
		b, err := kfile.ReadAt(unix.AT_FDCWD, fmt.Sprintf("/proc/%d/task/%s/stat", pid, e.Name()))
		if err != nil {
			continue
		}
		st, err := proc.ParseStat(b)
		if err != nil {
			continue
		}
		switch s := stateOf(st.State); s {
		case Zombie:
		case Stopped:
			if is == Zombie {
				is = Stopped
			}
		default:
			return s
		}
	}
	return is
}

func (t *procfs) Lookup(pid int) (Proc, error) {
	if err := proc.OwnNamespace(); err != nil {
		return Proc{}, err
	}
	p, _, err := t.read(pid)
	return p, err
}

// Children reads /proc/PID/task/TID/children (CONFIG_PROC_CHILDREN, kernel 3.5). A pid in
// it is a child's at that moment only, so each must name the parent, who must be the same
// afterwards.
//
// Who forks and ends in a loop may be alive in no reading: listed, it has ended when it is
// looked at. But what it left is its parent's, or the reaper's, before it is a zombie
// (exit_notify of kernel/exit.c). So a list without the living proves that there are none
// once another one names nobody new. The newest are last in a list, and looked at first.
func (t *procfs) Children(parent ID) ([]Proc, error) {
	var kids []Proc
	looked := map[int]bool{}
	settled := false
	for round := 0; round < childRounds && !settled && len(kids) == 0; round++ {
		settled = true
		err := listChildren(parent.PID, func(pid int) {
			if looked[pid] {
				return
			}
			looked[pid], settled = true, false
			if p, _, err := t.read(pid); err == nil && p.PPID == parent.PID && p.alive() {
				kids = append(kids, p)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	st, err := proc.ReadStat(parent.PID)
	if err != nil {
		return nil, err
	}
	switch {
	case !parent.Same(ID{PID: parent.PID, Start: st.Start}):
		return nil, fmt.Errorf("children of %s: %w", parent, proc.ErrReused)
	case stateOf(st.State) == Zombie && st.Threads <= 1:
		return nil, fmt.Errorf("children of %s: %w", parent, proc.ErrGone)
	case !settled && len(kids) == 0:
		return nil, fmt.Errorf("children of %s: %w", parent, ErrUnsettled)
	}
	return kids, nil
}

// childRounds bounds the readings of one list of children. All after the first look at those
// only that came since the one before, which takes some 50 µs for each; a fork takes longer.
const childRounds = 50

// listChildren tells of each process that one has as a child, zombies included, the newest of
// each thread first, and before the next thread's are read.
func listChildren(parent int, tell func(pid int)) error {
	dir := fmt.Sprintf("/proc/%d/task", parent)
	threads, err := os.ReadDir(dir)
	if err != nil {
		return errors.Join(proc.ErrGone, err)
	}
	for _, th := range threads {
		b, err := kfile.ReadAt(unix.AT_FDCWD, dir+"/"+th.Name()+"/children")
		if errors.Is(err, unix.ENOENT) {
			if _, gone := os.Stat(dir + "/" + th.Name()); gone == nil {
				return fmt.Errorf("list children: %w", errors.ErrUnsupported)
			}
		}
		for _, f := range slices.Backward(strings.Fields(string(b))) {
			if pid, err := strconv.Atoi(f); err == nil {
				tell(pid)
			}
		}
	}
	return nil
}

func (t *procfs) Marks(id ID, want Marks) (Marks, error) {
	var m Marks
	env, err := proc.Env(id.PID, EnvCookie, EnvKeep)
	if err == nil {
		m.Cookie, m.Keep = env[EnvCookie], env[EnvKeep] == "1"
	}
	if want.Sentinel != 0 && holdsPipe(id.PID, want.Sentinel) {
		m.Sentinel = want.Sentinel
	}
	if cwd := proc.Link(id.PID, "cwd"); want.Cwd != "" && (cwd == want.Cwd || strings.HasPrefix(cwd, want.Cwd+"/")) {
		m.Cwd = want.Cwd
	}
	m.Exe = proc.Link(id.PID, "exe")
	// Who has the pid now had it all the time if it started when it should.
	st, err := proc.ReadStat(id.PID)
	if err != nil {
		return Marks{}, err
	}
	if !id.Same(ID{PID: id.PID, Start: st.Start}) {
		return Marks{}, fmt.Errorf("marks of %s: %w", id, proc.ErrReused)
	}
	return m, nil
}

// holdsPipe says whether the process has the pipe with this inode open.
func holdsPipe(pid int, inode uint64) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	d, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	want := fmt.Sprintf("pipe:[%d]", inode)
	return err == nil && slices.ContainsFunc(names, func(n string) bool {
		to, err := os.Readlink(dir + "/" + n)
		return err == nil && to == want
	})
}

func (t *procfs) handle(id ID) (*proc.Handle, error) {
	return proc.Open(proc.ID{PID: id.PID, Start: id.Start, Boot: t.boot, NS: t.ns})
}

func (t *procfs) Signal(id ID, sig syscall.Signal) error {
	h, err := t.handle(id)
	if err != nil {
		return err
	}
	defer h.Close()
	return h.Signal(sig)
}

// most bounds the descriptors that one Wait holds.
const most = 256

// Wait wakes up when one of the processes ends, at once if one has ended already; of forks
// Linux does not tell.
func (t *procfs) Wait(ctx context.Context, ids []ID, d time.Duration) {
	var fds []unix.PollFd
	for _, id := range ids[:min(len(ids), most)] {
		h, err := t.handle(id)
		switch {
		case err == nil:
			defer h.Close()
			fds = append(fds, unix.PollFd{Fd: int32(h.FD()), Events: unix.POLLIN})
		case gone(err):
			return
		}
	}
	if len(fds) == 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		return
	}
	const slice = 100 * time.Millisecond // a cancelled context is noticed after this
	for end := time.Now().Add(d); ctx.Err() == nil; {
		left := time.Until(end)
		if left <= 0 {
			return
		}
		ms := int(min(left, slice)/time.Millisecond) + 1
		if n, err := unix.Poll(fds, ms); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func (t *procfs) Clock() time.Duration { return proc.Clock() }

func (t *procfs) Memory(id ID) (int64, error) {
	n := proc.Memory(id.PID)
	st, err := proc.ReadStat(id.PID)
	if err != nil {
		return 0, err
	}
	if !id.Same(ID{PID: id.PID, Start: st.Start}) {
		return 0, fmt.Errorf("memory of %s: %w", id, proc.ErrReused)
	}
	return n, nil
}

// forkCount is the machine's forks since boot, threads included; 0 where /proc/stat is not
// the kernel's (gVisor says 0).
func forkCount() uint64 {
	b, err := kfile.ReadAt(unix.AT_FDCWD, "/proc/stat")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if f, ok := strings.CutPrefix(line, "processes "); ok {
			n, _ := strconv.ParseUint(strings.TrimSpace(f), 10, 64)
			return n
		}
	}
	return 0
}

// ticks is the time since boot in the unit of a process's start: USER_HZ is 100 in every
// kernel that Go runs on.
func ticks() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return uint64(ts.Nano() / int64(10*time.Millisecond))
}
