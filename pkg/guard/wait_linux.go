package guard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
)

var _ waiter = (*poller)(nil)

// poller waits in one epoll for the ends of processes, a timer, changes of records
// and being woken.
type poller struct {
	epoll, timer, event int
	set                 time.Duration // what the timer is set to
	records             *records

	held map[proc.ID]*proc.Handle
	byFD map[int32]proc.ID
	// looked are processes that could not be held: the descriptors are used up.
	looked map[proc.ID]bool
	room   int // descriptors that may be used for processes
}

// newWaiter makes the waiter for the sessions in a directory.
func newWaiter(dir string) (waiter, error) {
	p := &poller{epoll: -1, timer: -1, event: -1, held: map[proc.ID]*proc.Handle{}, byFD: map[int32]proc.ID{}, looked: map[proc.ID]bool{}, room: handleRoom()}
	if err := p.open(dir); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *poller) open(dir string) (err error) {
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll_create: %w", err)
	}
	if p.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return fmt.Errorf("timerfd_create: %w", err)
	}
	if p.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	p.records = newRecords(dir)
	for _, fd := range []int{p.timer, p.event} {
		if err := p.add(fd, unix.EPOLLIN); err != nil {
			return err
		}
	}
	if p.records.fd >= 0 {
		return p.add(p.records.fd, unix.EPOLLIN|unix.EPOLLONESHOT)
	}
	return nil
}

func (p *poller) add(fd int, events uint32) error {
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// handleRoom is how many descriptors may be used for processes: half of what we may
// have, as a close needs some, too.
func handleRoom() int {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return 256
	}
	return int(min(lim.Cur/2, 1<<20))
}

func (p *poller) Hold(id proc.ID) error {
	if p.held[id] != nil {
		return nil
	}
	if len(p.held) >= p.room {
		return p.look(id)
	}
	h, err := proc.Open(id)
	switch {
	case errors.Is(err, proc.ErrGone), errors.Is(err, proc.ErrReused), errors.Is(err, proc.ErrElsewhere):
		return err
	case err != nil:
		return p.look(id)
	}
	if err := p.add(h.FD(), unix.EPOLLIN); err != nil {
		h.Close()
		return p.look(id)
	}
	p.held[id], p.byFD[int32(h.FD())] = h, id
	return nil
}

// look has a process looked at now and then.
func (p *poller) look(id proc.ID) error {
	if proc.FateOf(id) == proc.Gone {
		return proc.ErrGone
	}
	p.looked[id] = true
	return nil
}

func (p *poller) Release(id proc.ID) (status syscall.WaitStatus, known bool) {
	delete(p.looked, id)
	if h := p.held[id]; h != nil {
		if h.Ended() {
			status, known = statusOf(h)
		}
		delete(p.held, id)
		delete(p.byFD, int32(h.FD()))
		// By hand: a child between fork and exec has a copy that would keep it in.
		unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, h.FD(), nil)
		h.Close()
	}
	return status, known
}

func (p *poller) Follow(session string) { p.records.follow(session) }
func (p *poller) Forget(session string) { p.records.forget(session) }
func (p *poller) Sure() bool            { return p.records.sure() }

func (p *poller) Wait(until time.Duration) (wake, error) {
	if len(p.looked) > 0 {
		until = sooner(until, proc.Clock()+lookInterval)
	}
	if err := p.setTimer(until); err != nil {
		return wake{}, err
	}
	var events [64]unix.EpollEvent
	n, err := unix.EpollWait(p.epoll, events[:], -1)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.EpollWait(p.epoll, events[:], -1)
	}
	if err != nil {
		return wake{}, fmt.Errorf("epoll_wait: %w", err)
	}
	var w wake
	for _, e := range events[:n] {
		switch fd := int(e.Fd); fd {
		case p.timer:
			drain(fd)
			p.set = 0
		case p.event:
			drain(fd)
		case p.records.fd:
			w.changed = true
		default:
			if id, ok := p.byFD[e.Fd]; ok {
				w.ended = append(w.ended, id)
				if ws, ok := p.Release(id); ok {
					if w.status == nil {
						w.status = map[proc.ID]syscall.WaitStatus{}
					}
					w.status[id] = ws
				}
			}
		}
	}
	for id := range p.looked {
		if proc.FateOf(id) == proc.Gone {
			w.ended = append(w.ended, id)
			p.Release(id)
		}
	}
	return w, nil
}

// statusOf asks a process that has ended how. While it is being reaped neither procfs
// nor the pidfd tells, for an instant (seen on 6.18), so it is asked again.
func statusOf(h *proc.Handle) (ws syscall.WaitStatus, ok bool) {
	for range 10 {
		if ws, ok = h.ExitStatus(); ok {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return ws, ok
}

// setTimer sets the timer to a reading of the clock; 0 stops it, as for the kernel.
func (p *poller) setTimer(until time.Duration) error {
	if until == p.set {
		return nil
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(until))}
	if err := unix.TimerfdSettime(p.timer, unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
		return fmt.Errorf("timerfd_settime: %w", err)
	}
	p.set = until
	return nil
}

func drain(fd int) {
	var buf [8]byte
	unix.Read(fd, buf[:])
}

func (p *poller) Changes() (sessions []string, all bool) {
	sessions, all = p.records.read()
	if p.records.fd >= 0 {
		e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(p.records.fd)}
		if unix.EpollCtl(p.epoll, unix.EPOLL_CTL_MOD, p.records.fd, &e) != nil {
			p.records.missed = true
		}
	}
	return sessions, all
}

func (p *poller) Wake() {
	one := binary.NativeEndian.AppendUint64(nil, 1)
	unix.Write(p.event, one) // full: it is awake
}

func (p *poller) Close() error {
	for id := range p.held {
		p.Release(id)
	}
	if p.records != nil {
		p.records.close()
	}
	for _, fd := range []int{p.epoll, p.timer, p.event} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	return nil
}

// records tells of changes in the directory of the sessions, by inotify.
type records struct {
	dir  string
	fd   int   // -1: no inotify
	root int32 // the watch of the directory itself, -1: none
	// places are the watches, and marks those of a session: of its directory and of
	// that of its tasks.
	places map[int32]place
	marks  map[string][]int32
	// missed says that a session could not be followed.
	missed bool
}

type place struct {
	session string
	tasks   bool
}

func newRecords(dir string) *records {
	r := &records{dir: dir, root: -1, places: map[int32]place{}, marks: map[string][]int32{}}
	var err error
	if r.fd, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
		r.fd = -1
	}
	r.arm()
	return r
}

// Records are replaced by a rename; the first one of a task appears by a link.
const (
	rootMask = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	ownMask  = unix.IN_MOVED_TO | unix.IN_ONLYDIR
	taskMask = unix.IN_MOVED_TO | unix.IN_CREATE | unix.IN_ONLYDIR
)

// arm follows the directory of the sessions, if it does not.
func (r *records) arm() {
	if r.fd < 0 || r.root >= 0 {
		return
	}
	if wd, err := unix.InotifyAddWatch(r.fd, r.dir, rootMask); err == nil {
		r.root = int32(wd)
	}
}

func (r *records) sure() bool { return r.fd >= 0 && r.root >= 0 && !r.missed }

func (r *records) follow(session string) {
	if r.fd < 0 || len(r.marks[session]) > 0 {
		return
	}
	dir := filepath.Join(r.dir, session)
	for _, at := range []struct {
		path string
		mask uint32
		place
	}{
		{dir, ownMask, place{session, false}},
		{filepath.Join(dir, "tasks"), taskMask, place{session, true}},
	} {
		wd, err := unix.InotifyAddWatch(r.fd, at.path, at.mask)
		if err == nil {
			r.places[int32(wd)] = at.place
			r.marks[session] = append(r.marks[session], int32(wd))
		} else if !errors.Is(err, unix.ENOENT) {
			r.missed = true // ENOSPC: the user has no watch left
		}
	}
}

func (r *records) forget(session string) {
	for _, wd := range r.marks[session] {
		delete(r.places, wd)
		unix.InotifyRmWatch(r.fd, uint32(wd)) // gone with its directory, most often
	}
	delete(r.marks, session)
}

// read takes what has happened.
func (r *records) read() (sessions []string, all bool) {
	if r.fd < 0 {
		return nil, true
	}
	seen := map[string]bool{}
	var buf [16 << 10]byte
	for {
		n, err := unix.Read(r.fd, buf[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			break
		}
		all = r.events(buf[:n], seen) || all
	}
	r.arm()
	for s := range seen {
		sessions = append(sessions, s)
	}
	return sessions, all
}

func (r *records) events(buf []byte, seen map[string]bool) (all bool) {
	for len(buf) >= unix.SizeofInotifyEvent {
		wd := int32(binary.NativeEndian.Uint32(buf))
		mask := binary.NativeEndian.Uint32(buf[4:])
		size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[12:]))
		if size > len(buf) {
			break
		}
		name := strings.TrimRight(string(buf[unix.SizeofInotifyEvent:size]), "\x00")
		buf = buf[size:]
		at, known := r.places[wd]
		switch {
		case mask&unix.IN_Q_OVERFLOW != 0:
			all = true
		case wd == r.root:
			if mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_IGNORED|unix.IN_UNMOUNT) != 0 {
				unix.InotifyRmWatch(r.fd, uint32(wd)) // a directory that was moved still is watched
				r.root, all = -1, true
			} else if name != "" && !strings.HasPrefix(name, ".") {
				seen[name] = true
			}
		case !known:
		case mask&unix.IN_IGNORED != 0:
			delete(r.places, wd)
		case at.tasks && strings.HasSuffix(name, ".json"), !at.tasks && name == "session.json":
			seen[at.session] = true
		}
	}
	return all
}

func (r *records) close() {
	if r.fd >= 0 {
		unix.Close(r.fd)
	}
}
