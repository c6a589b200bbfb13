package darwinjob

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
)

// dice decide what happens next.
type dice interface {
	IntN(n int) int
}

// era is a generation of kernels.
type era struct {
	name       string
	unique     bool // p_uniqueid, p_puniqueid
	execResets bool // exec sets p_puniqueid to the parent at that moment (macOS 13)
	versions   bool // p_orig_ppidversion (macOS 15.4)
	coalition  bool
	reaper     bool // the supervisor is a subreaper (Linux)
}

var eras = []era{
	{name: "macOS 12", unique: true, coalition: true},
	{name: "macOS 13", unique: true, execResets: true, coalition: true},
	{name: "macOS 15.4", unique: true, execResets: true, versions: true, coalition: true},
	{name: "macOS without flavors 17 and 20"},
	{name: "Linux"},
	{name: "Linux with a subreaper", reaper: true},
}

const (
	simFirst  = 10  // lowest pid that is given out again
	simMax    = 160 // highest
	simProcs  = 26  // processes at most
	simTick   = 20  // forks
	simWrap   = simMax - simFirst - 3*simProcs - simTick
	simRoot   = 0
	simUser   = 501
	simMemory = 4096 // of each
)

// simProc is a process of the simulator. Below its public face is the truth, which only
// the world and the tests know.
type simProc struct {
	Proc
	parent  *simProc // who forked it
	ppid    *simProc // whom the kernel shows
	tracer  *simProc
	member  bool // forked below the session's root
	stub    bool
	reaper  bool
	still   bool // does nothing
	ruid    int
	cookie  string
	hidden  bool // its environment cannot be read
	pipe    bool
	held    int  // a zombie's session
	deaf    bool // ignores SIGHUP
	lag     int  // actions it still finishes after SIGSTOP
	dying   int  // steps until SIGKILL shows
	reaped  bool
	noted   bool  // listed while its forker was its parent and both lived on
	listed  int   // the listing that it was in last
	version int32 // with which it was listed last
	asked   bool  // its marks were asked for
	showed  bool  // and it had some
	born    int   // listings before its birth
	verSeen bool  // its forker was listed with the version it had at the fork
}

// world is a machine.
type world struct {
	d       dice
	e       era
	procs   []*simProc // living and zombies, by creation
	next    int        // pid
	forks   uint64
	version int32
	coal    uint64
	now     time.Duration
	calm    int // forks that are left to the processes
	busy    bool
	crashed bool
	closing bool
	rootAt  uint64 // forks when the root started
	setuid  bool   // some programs are root's

	launchd, shell, self, root, stub *simProc
	wrong                            []string // signals to strangers
	signals                          int
	lists                            int // listings so far
}

func newWorld(d dice, e era, job bool) *world {
	w := &world{d: d, e: e, next: simFirst, forks: 1000, version: 5000, coal: 70, calm: 90}
	w.launchd = w.spawn(nil, 1)
	w.launchd.PID, w.launchd.PGID, w.launchd.SID = 1, 1, 1
	w.launchd.UID, w.launchd.ruid = simRoot, simRoot
	w.next = simFirst + d.IntN(simMax-simFirst)
	w.shell = w.fork(w.launchd)
	w.shell.UID, w.shell.ruid = simUser, simUser
	w.lead(w.shell)
	w.shell.Coalition = w.newCoalition()
	w.self = w.fork(w.shell)
	w.self.PGID = w.self.PID
	w.self.reaper = e.reaper
	for range d.IntN(4) {
		w.fork(w.shell)
	}
	up := w.self
	if job {
		w.stub = w.fork(w.launchd)
		w.stub.UID, w.stub.ruid = simUser, simUser
		w.stub.PGID, w.stub.SID, w.stub.Coalition = w.stub.PID, 1, w.newCoalition()
		w.stub.stub, w.stub.member = true, true
		up = w.stub
	}
	w.root = w.fork(up)
	w.root.member, w.rootAt = true, w.forks
	w.lead(w.root)
	w.root.cookie, w.root.pipe = "c00kie", true
	return w
}

func (w *world) newCoalition() uint64 {
	w.coal++
	if !w.e.coalition {
		return 0
	}
	return w.coal
}

func (w *world) lead(p *simProc) { p.PGID, p.SID = p.PID, p.PID }

// chance is true once in n times.
func (w *world) chance(n int) bool { return w.d.IntN(n) == 0 }

func (w *world) used(pid int) bool {
	return slices.ContainsFunc(w.procs, func(p *simProc) bool { return p.PID == pid || p.PGID == pid || p.SID == pid || p.held == pid })
}

// spawn makes a process of the parent with the next free pid: one that is nobody's pid,
// group or session (bsd/kern/kern_fork.c, kernel/pid.c).
func (w *world) spawn(parent *simProc, pid int) *simProc {
	w.forks++
	w.version++
	if pid == 0 {
		for pid = w.next; w.used(pid); {
			if pid++; pid > simMax {
				pid = simFirst
			}
		}
		if w.next = pid + 1; w.next > simMax {
			w.next = simFirst
		}
	}
	p := &simProc{parent: parent, ppid: parent, born: w.lists}
	if parent != nil {
		p.Proc = parent.Proc
		p.PPID, p.ParentUnique, p.ParentVersion = parent.PID, parent.Unique, parent.Version
		p.member, p.ruid, p.cookie, p.hidden, p.pipe, p.deaf = parent.member, parent.ruid, parent.cookie, parent.hidden, parent.pipe, parent.deaf
		p.verSeen = parent.version == parent.Version
	}
	p.PID, p.Version, p.State = pid, w.version, Running
	p.Start = w.forks / simTick // ticks are coarse, though no pid comes round in one
	if w.e.unique {
		p.Unique = w.forks
	}
	w.procs = append(w.procs, p)
	return p
}

func (w *world) fork(p *simProc) *simProc {
	c := w.spawn(p, 0)
	if p.cookie != "" && p.stub {
		c.cookie = ""
	}
	return c
}

// exec runs another program: a new version, its own environment, and since macOS 13
// a p_puniqueid that is read from the parent of the moment.
func (w *world) exec(p *simProc) {
	w.version++
	p.Version = w.version
	p.hidden = w.chance(4) // a platform binary
	if w.chance(8) {
		p.cookie = ""
	}
	if w.chance(4) {
		p.pipe = false
	}
	if w.setuid && w.chance(12) {
		p.UID = simRoot
	}
	if w.e.execResets {
		up := p.ppid
		if p.tracer != nil {
			up = p.tracer
		}
		p.ParentUnique = up.Unique
	}
}

// exit makes a zombie, and its children somebody else's.
func (w *world) exit(p *simProc) {
	p.State, p.Coalition, p.held = Zombie, 0, p.SID
	if w.e.unique {
		p.SID = 0 // getsid says ESRCH, though the number stays taken
	}
	for _, c := range slices.Clone(w.procs) {
		if c.tracer == p {
			c.tracer = nil
			if c.State != Zombie {
				w.exit(c) // those who are traced are killed (kern_exit.c)
			}
		}
	}
	for _, c := range slices.Clone(w.procs) {
		if c.ppid != p || c.reaped {
			continue
		}
		c.ppid = w.launchd
		for up := p.ppid; up != nil; up = up.ppid {
			if up.reaper && up.State != Zombie {
				c.ppid = up
				break
			}
		}
		c.PPID = c.ppid.PID
		if c.State == Zombie && (c.ppid == w.launchd || c.ppid == w.self) {
			w.reap(c)
			continue
		}
		w.orphanGroup(p, c)
	}
	if p.ppid == w.launchd || p.ppid == w.self && p != w.root {
		w.reap(p)
	}
}

// orphanGroup sends SIGHUP and SIGCONT to c's group if p was the last to keep it from
// being an orphaned one, and somebody of it is stopped.
func (w *world) orphanGroup(p, c *simProc) {
	if c.SID != p.held || c.PGID == p.PGID || c.State == Zombie {
		return
	}
	stopped := false
	for _, q := range w.procs {
		if q.PGID != c.PGID || q.State == Zombie {
			continue
		}
		if q.ppid != nil && q.ppid != p && q.ppid.State != Zombie && q.ppid.SID == q.SID && q.ppid.PGID != q.PGID {
			return
		}
		stopped = stopped || q.State == Stopped
	}
	if !stopped {
		return
	}
	for _, q := range slices.Clone(w.procs) {
		if q.PGID == c.PGID && q.State != Zombie && q != w.shell && q != w.self {
			if q.deaf {
				q.State = Running
			} else {
				w.exit(q)
			}
		}
	}
}

func (w *world) reap(p *simProc) {
	p.reaped = true
	w.procs = slices.DeleteFunc(w.procs, func(q *simProc) bool { return q == p })
}

// step lets something happen.
func (w *world) step() {
	for _, p := range slices.Clone(w.procs) {
		if p.dying > 0 {
			if p.dying--; p.dying == 0 {
				w.exit(p)
			}
		}
	}
	if !w.busy || len(w.procs) == 0 {
		return
	}
	switch w.d.IntN(12) {
	case 0:
		w.churn(simFirst + w.d.IntN(simMax-simFirst))
		return
	case 1:
		w.replace()
		return
	case 2:
		if w.e.reaper && !w.closing && w.chance(20) && len(w.procs) < simProcs && w.self.State != Zombie {
			h := w.fork(w.self) // a helper of the supervisor's: by contract all its children are the session's
			h.member, h.PGID, h.still = w.self.reaper, h.PID, true
			return
		}
	}
	p := w.procs[w.d.IntN(len(w.procs))]
	if w.chance(2) { // the session is where it happens
		if ms := w.living(); len(ms) > 0 {
			p = ms[w.d.IntN(len(ms))]
		}
	}
	if p.State == Stopped && p.lag > 0 {
		p.lag--
		if w.calm > 0 && len(w.procs) < simProcs && !p.still {
			w.calm--
			w.fork(p) // a thread that was in fork; its child is not stopped
		}
		return
	}
	if p.State != Running || p.stub || p.still || p == w.self || p == w.shell {
		return
	}
	if p == w.launchd {
		w.hire()
		return
	}
	w.act(p)
}

// churn lets somebody else's short commands use up pids until to is next.
func (w *world) churn(to int) {
	for range simMax {
		if w.next == to {
			return
		}
		w.next++
		if w.next > simMax {
			w.next = simFirst
		}
		if !w.used(w.next) {
			w.forks++
		}
	}
}

// replace ends a process of the session, and gives its pid to a stranger that does as
// it did: leads a session, has children.
func (w *world) replace() {
	ms := w.living()
	if len(ms) == 0 || len(w.procs) > simProcs-3 || w.calm < 3 {
		return
	}
	m := ms[w.d.IntN(len(ms))]
	if m == w.root && w.chance(2) || m.State != Running || m.ppid == w.self && w.self.State != Zombie && m == w.root {
		return
	}
	if w.chance(2) { // with all of its session
		for _, q := range ms {
			if q != m && q.SID == m.PID && q.State == Running && q.ppid != w.self {
				w.exit(q)
				if !q.reaped {
					w.reap(q)
				}
			}
		}
	}
	w.exit(m)
	if !m.reaped {
		w.reap(m)
	}
	if w.used(m.PID) {
		return
	}
	w.churn(m.PID)
	w.calm -= 3
	up := w.shell
	if w.chance(3) {
		up = w.launchd
	}
	s := w.fork(up)
	if up == w.launchd {
		s.Coalition = w.newCoalition()
	}
	s.UID, s.ruid = simUser, simUser
	if w.chance(3) {
		s.PGID = s.PID
	} else {
		w.lead(s)
	}
	w.fork(s)
	w.fork(s)
	if w.chance(2) {
		w.exit(s)
		if !s.reaped {
			w.reap(s)
		}
	}
}

// hire starts a service: not forked by who asked for it, though it may be given the
// session's environment.
func (w *world) hire() {
	if len(w.procs) >= simProcs || w.calm == 0 {
		return
	}
	w.calm--
	p := w.fork(w.launchd)
	p.UID, p.ruid = simUser, simUser
	p.Coalition = w.newCoalition()
	if w.chance(2) {
		w.lead(p)
	} else {
		p.PGID, p.SID = p.PID, 1
	}
	if w.e.coalition && w.chance(2) {
		p.cookie = "c00kie"
	}
}

func (w *world) act(p *simProc) {
	switch w.d.IntN(12) {
	case 0, 1, 2, 3:
		if len(w.procs) < simProcs && w.calm > 0 {
			w.calm--
			c := w.fork(p)
			if w.chance(5) { // double fork, at once
				if len(w.procs) < simProcs {
					g := w.fork(c)
					if w.chance(2) {
						w.lead(g)
					}
				}
				w.exit(c)
			}
		}
	case 4:
		w.exec(p)
	case 5:
		if p.PGID != p.PID {
			w.lead(p)
		}
	case 6:
		p.deaf = true
		if p.SID == p.PID {
			return
		}
		p.PGID = p.PID
		if w.chance(3) { // join somebody's group, which must be in the same session
			for _, q := range w.procs {
				if q.SID == p.SID && q.State != Zombie && w.chance(2) {
					p.PGID = q.PGID
					break
				}
			}
		}
	case 7, 8:
		if w.chance(2) {
			w.exit(p)
		}
	case 9:
		for _, c := range slices.Clone(w.procs) {
			if c.ppid == p && c.State == Zombie {
				w.reap(c)
			}
		}
	case 10:
		if !w.e.reaper && w.e.unique && w.chance(2) {
			w.attach(p)
		}
	case 11:
		p.TTY = 0
		if w.chance(4) {
			p.State = Stopped // by its shell
		}
	}
}

// attach makes p a debugger of a process of its user's, lets that run another program,
// and lets go. The parent that the kernel shows for as long is put right by a Table.
//
// Who does all that before the tracker ever saw the debugged process leaves nothing to
// tell it from a child: package comment, limits.
func (w *world) attach(p *simProc) {
	q := w.procs[w.d.IntN(len(w.procs))]
	if q == p || q.UID != p.UID || q.State != Running || q == w.self || q == w.shell || q.stub || q == w.root || q.listed == 0 {
		return
	}
	q.tracer = p
	w.exec(q)
	q.tracer = nil
}

// living are the session's processes that are alive, without the stub.
func (w *world) living() []*simProc {
	var ms []*simProc
	for _, p := range w.procs {
		if p.member && !p.stub && p.State != Zombie {
			ms = append(ms, p)
		}
	}
	return ms
}

// simTable shows a world. Between any two readings the world may move.
type simTable struct {
	w     *world
	quiet int // readings per move
}

var _ Table = (*simTable)(nil)

func (t *simTable) move() {
	t.w.now += 20 * time.Microsecond
	if t.w.chance(t.quiet) {
		t.w.step()
	}
}

func (t *simTable) List(context.Context) (*Snapshot, error) {
	w := t.w
	w.lists++
	s := &Snapshot{Boot: "b", Caps: t.caps()}
	first := slices.Clone(w.procs)
	slices.SortFunc(first, func(a, b *simProc) int { return a.PID - b.PID })
	at := map[ID]int{}
	var true0 []*simProc
	var vers []int32
	for pid := 0; pid <= simMax; pid++ {
		i := slices.IndexFunc(w.procs, func(p *simProc) bool { return p.PID == pid })
		if i < 0 {
			if slices.ContainsFunc(first, func(p *simProc) bool { return p.PID == pid }) {
				s.Blurred++
			}
			continue
		}
		at[w.procs[i].ID] = len(s.Procs)
		s.Procs = append(s.Procs, t.show(w.procs[i]))
		true0 = append(true0, w.procs[i])
		vers = append(vers, w.procs[i].Version)
		t.move()
	}
	still := make([]bool, len(s.Procs))
	for i := range s.Procs {
		p := &s.Procs[i]
		now := w.at(p.ID)
		if now == nil || now.State == Zombie {
			p.State = Zombie
		}
		if now != nil {
			p.Pinned = now.PPID == p.PPID && now.PGID == p.PGID && now.SID == p.SID
			still[i] = p.Pinned
		}
		t.move()
	}
	for i, p := range true0 {
		if !still[i] || w.at(p.ID) == nil {
			continue
		}
		p.listed, p.version = w.lists, vers[i]
		if j, ok := at[p.parent.id()]; ok && still[j] && s.Procs[i].PPID == p.parent.PID && p.ppid == p.parent {
			p.noted = true
		}
	}
	if !w.e.unique {
		s.Forks, s.Ended = w.forks, w.forks/simTick
	}
	if w.e.coalition {
		s.Coalitions = map[uint64]int{}
		for _, p := range w.procs {
			if p.State != Zombie {
				s.Coalitions[p.Coalition]++
			}
		}
	}
	return s, nil
}

// show is what the kernel shows of a process.
func (t *simTable) show(p *simProc) Proc {
	q := p.Proc
	if !t.w.e.unique {
		q.Version, q.ParentVersion, q.ParentUnique = 0, 0, 0
	} else if !t.w.e.versions {
		q.ParentVersion = t.w.root.Version // garbage
	}
	return q
}

func (p *simProc) id() ID {
	if p == nil {
		return ID{}
	}
	return p.ID
}

func (t *simTable) caps() Caps {
	return Caps{Unique: t.w.e.unique, ParentVersion: t.w.e.versions, Coalition: t.w.e.coalition, Wrap: simWrap, Self: t.w.self.PID, UID: simUser}
}

func (w *world) at(id ID) *simProc {
	for _, p := range w.procs {
		if p.ID.Same(id) {
			return p
		}
	}
	return nil
}

func (t *simTable) Lookup(pid int) (Proc, error) {
	for _, p := range t.w.procs {
		if p.PID == pid {
			return t.show(p), nil
		}
	}
	return Proc{}, proc.ErrGone
}

func (t *simTable) Children(parent ID) ([]Proc, error) {
	t.move()
	var cs []Proc
	p := t.w.at(parent)
	if p == nil || p.State == Zombie {
		return nil, proc.ErrGone
	}
	for _, c := range t.w.procs {
		if c.ppid == p && c.State != Zombie {
			cs = append(cs, t.show(c))
		}
	}
	return cs, nil
}

func (t *simTable) Marks(id ID, want Marks) (Marks, error) {
	t.move()
	p := t.w.at(id)
	if p == nil {
		return Marks{}, proc.ErrGone
	}
	var m Marks
	p.asked = true
	if p.UID != simUser {
		return m, syscall.EPERM
	}
	if !p.hidden {
		m.Cookie = p.cookie
	}
	if p.pipe {
		m.Sentinel = 77
	}
	p.showed = p.showed || m.Cookie != "" || m.Sentinel != 0
	return m, nil
}

func (t *simTable) Signal(id ID, sig syscall.Signal) error {
	t.move()
	w := t.w
	p := w.at(id)
	if p == nil {
		return proc.ErrGone
	}
	w.signals++
	if !p.member || p.PID <= 1 {
		w.wrong = append(w.wrong, fmt.Sprintf("%v to %+v", sig, p.Proc))
	}
	if p.ruid != simUser || p.UID != simUser {
		return syscall.EPERM
	}
	if p.State == Zombie {
		return nil
	}
	switch sig {
	case syscall.SIGSTOP:
		p.State, p.lag = Stopped, w.d.IntN(3)
	case syscall.SIGCONT:
		p.State = Running
	case syscall.SIGKILL:
		if w.chance(4) {
			p.State, p.dying = Exiting, 1+w.d.IntN(4)
		} else {
			w.exit(p)
		}
	}
	return nil
}

func (t *simTable) Wait(_ context.Context, _ []ID, d time.Duration) {
	for range 1 + t.w.d.IntN(5) {
		t.w.step()
	}
	t.w.now += d
	for _, p := range t.w.procs {
		p.lag = 0
	}
}

func (t *simTable) Clock() time.Duration     { return t.w.now }
func (t *simTable) Memory(ID) (int64, error) { return simMemory, nil }
