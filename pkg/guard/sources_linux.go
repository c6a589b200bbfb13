package guard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
)

var (
	_ source = (*kernel)(nil)
	_ meter  = (*groupMeter)(nil)
)

// kernel is the real source: cgroups and procfs, by held descriptors.
type kernel struct {
	epoll, event int
	waking       sync.Mutex // holds Close while somebody wakes us
	mount        cgroup.Mount
	own          string // our directory below it
	holding      func(id string) (session.Holding, error)
	host         *cgroup.HostSampler
	hostWake     *cgroup.Wake
	memory1      *cgroup.Memory1 // nil: it is not mounted
	around1      string          // see around1
	wakes        map[int32]*groupMeter
	woken        []meter
	events       [64]unix.EpollEvent
}

// newSource opens what there is; an error says that memory cannot be watched here. What no
// cgroup holds is asked of holding.
func newSource(holding func(id string) (session.Holding, error)) (source, error) {
	k := &kernel{epoll: -1, event: -1, holding: holding, wakes: map[int32]*groupMeter{}}
	if mount, err := cgroup.FindMount(); err == nil {
		k.mount = mount
		k.own, _ = cgroup.Own(mount) // "" then: it lies outside of what is mounted
	}
	if err := k.open(); err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

func (k *kernel) open() (err error) {
	if k.host, err = cgroup.NewHostSampler("/proc"); err != nil {
		return err
	}
	if m, err := cgroup.FindMemory1(); err == nil {
		k.memory1, k.around1 = &m, around1()
	}
	if k.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll_create: %w", err)
	}
	if k.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	if err := k.add(k.event, unix.EPOLLIN); err != nil {
		return err
	}
	// Sizes decide; that nobody wakes us for pressure costs a second at most.
	if w, err := cgroup.WakeOnHostPressure("/proc/pressure/memory"); err == nil {
		k.hostWake = w
		return k.add(w.FD(), w.Mask())
	}
	return nil
}

func (k *kernel) add(fd int, events uint32) error {
	if err := unix.EpollCtl(k.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

func (k *kernel) Session(w *session.MemoryWatch) (meter, error) {
	if w.Lineage != "" {
		return &lineageMeter{id: w.Lineage, ask: k.holding}, nil
	}
	g, err := cgroup.OpenExact(w.Path, w.Inode)
	if err != nil {
		return nil, err
	}
	return k.meter(g)
}

func (k *kernel) Group(dir string) (meter, error) {
	if dir == k.around1 {
		s, err := cgroup.OpenSampler1(dir)
		if err != nil {
			return nil, err
		}
		return &meter1{s}, nil
	}
	g, err := cgroup.Open(dir)
	if err != nil {
		return nil, err
	}
	return k.meter(g)
}

func (k *kernel) meter(g *cgroup.Group) (meter, error) {
	s, err := g.Sampler()
	if err != nil {
		g.Close()
		return nil, err
	}
	m := &groupMeter{k: k, group: g, sampler: s}
	if k.memory1 != nil {
		m.v1 = &alone1{hierarchy: *k.memory1}
	}
	// Without the controller there is no such file, and somebody has to look.
	if w, err := g.WakeOnEvents(); err == nil {
		if k.add(w.FD(), w.Mask()) != nil {
			w.Close()
			return m, nil
		}
		m.wake = w
		k.wakes[int32(w.FD())] = m
	}
	return m, nil
}

// Around goes up to where the tree is mounted: what that shows is a limit, too, if it
// is not the root of all.
func (k *kernel) Around(box string) []string {
	var dirs []string
	from := filepath.Dir(box)
	if box == "" {
		from = k.own
	}
	for dir := from; k.mount.Point != "" && len(dir) >= len(k.mount.Point) && len(dir) > 1; dir = filepath.Dir(dir) {
		if unix.Access(filepath.Join(dir, "memory.max"), unix.F_OK) == nil {
			dirs = append(dirs, dir)
		}
	}
	if len(dirs) == 0 && k.around1 != "" && box != k.around1 {
		dirs = append(dirs, k.around1)
	}
	return dirs
}

func (k *kernel) Host(out *memlimit.Sample) (swapFree uint64, worth float64, err error) {
	return k.host.Sample(out)
}

func (k *kernel) Available() (uint64, error) { return k.host.Available() }

// Hidden: only the root of all cgroups has no type.
func (k *kernel) Hidden() bool {
	return k.mount.Point != "" && unix.Access(filepath.Join(k.mount.Point, "cgroup.type"), unix.F_OK) == nil
}

func (k *kernel) Wait(until time.Duration) []meter {
	k.woken = k.woken[:0]
	timeout := -1
	if until != 0 {
		timeout = int(max(0, until-proc.Clock()+time.Millisecond-1) / time.Millisecond)
	}
	n, err := unix.EpollWait(k.epoll, k.events[:], timeout)
	if err != nil { // EINTR
		return nil
	}
	for _, e := range k.events[:n] {
		switch {
		case int(e.Fd) == k.event:
			drain(k.event)
		case k.hostWake != nil && int(e.Fd) == k.hostWake.FD():
			cause, err := k.hostWake.Woke(e.Events)
			if err != nil {
				unix.EpollCtl(k.epoll, unix.EPOLL_CTL_DEL, int(e.Fd), nil)
			}
			if cause {
				k.woken = append(k.woken, nil)
			}
		default:
			m := k.wakes[e.Fd]
			if m == nil {
				continue
			}
			cause, err := m.wake.Woke(e.Events)
			if err != nil {
				m.unwake()
			}
			if cause {
				k.woken = append(k.woken, m)
			}
		}
	}
	return k.woken
}

func (k *kernel) Wake() {
	k.waking.Lock()
	defer k.waking.Unlock()
	one := binary.NativeEndian.AppendUint64(nil, 1)
	unix.Write(k.event, one) // full: it is awake
}

func (k *kernel) Close() error {
	if k.host != nil {
		k.host.Close()
	}
	if k.hostWake != nil {
		k.hostWake.Close()
	}
	k.waking.Lock()
	defer k.waking.Unlock()
	for _, fd := range []*int{&k.epoll, &k.event} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
	return nil
}

// groupMeter measures a cgroup: by its memory controller or, without one, by what its
// processes hold.
type groupMeter struct {
	k       *kernel
	group   *cgroup.Group
	sampler *cgroup.Sampler
	wake    *cgroup.Wake

	exactly
	// summed is when they were last added up, used the processor time before that.
	summed, used time.Duration
	v1           *alone1 // nil: there is no such controller
}

func (m *groupMeter) Sample(out *memlimit.Sample) error {
	err := m.sampler.Sample(out)
	switch {
	case errors.Is(err, cgroup.ErrGone):
		return errGone
	case !errors.Is(err, cgroup.ErrNoMemory):
		return err
	}
	m.summed = out.At
	m.used, _ = m.sampler.CPU()
	if m.v1 != nil && out.At-m.v1.looked < exactRest && m.v1.sample(out) {
		return nil
	}
	all, err := m.group.Processes()
	if err != nil {
		return err
	}
	if m.v1 != nil && (m.v1.looked == 0 || out.At-m.v1.looked >= exactRest) {
		if m.v1.find(all, out.At); m.v1.sample(out) {
			return nil
		}
	}
	m.exact(all, out.At)
	memlimit.FillProcesses(out, all)
	out.Max, out.SwapMax = memlimit.Infinity, memlimit.Infinity
	out.Done = proc.Clock()
	return nil
}

// What is added up from processes has hardly moved while they did not use the
// processor: in that time they can write to 20 MiB for the first time, at most.
const (
	stillUse  = 10 * time.Millisecond
	stillTime = 30 * time.Second // and what somebody else does to it is seen after this
)

func (m *groupMeter) Still(out *memlimit.Sample) bool {
	if out.Tier == memlimit.TierCgroup {
		return m.sampler.Still(out)
	}
	now := proc.Clock()
	used, ok := m.sampler.CPU()
	if !ok || used-m.used > stillUse || now-m.summed >= stillTime {
		return false
	}
	out.At, out.Done = now, now
	return true
}

func (m *groupMeter) Fresh() { m.sampler.Fresh() }

func (m *groupMeter) CPU() (time.Duration, bool) { return m.group.CPU() }

func (m *groupMeter) Processes() []memlimit.Process {
	all, err := m.group.Processes()
	if err != nil {
		return nil
	}
	return all
}

// unwake takes the events out of the epoll, by hand: a child between fork and exec has
// a copy that would keep them in.
func (m *groupMeter) unwake() {
	if m.wake == nil {
		return
	}
	unix.EpollCtl(m.k.epoll, unix.EPOLL_CTL_DEL, m.wake.FD(), nil)
	delete(m.k.wakes, int32(m.wake.FD()))
	m.wake.Close()
	m.wake = nil
}

func (m *groupMeter) Close() error {
	m.unwake()
	m.sampler.Close()
	if m.v1 != nil {
		m.v1.close()
	}
	return m.group.Close()
}
