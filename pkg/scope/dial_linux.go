package scope

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds on everything that waits for the manager.
const (
	dialTime = 2 * time.Second  // to connect, each socket
	callTime = 5 * time.Second  // to be greeted; each method call
	jobTime  = 10 * time.Second // a job, once it is queued
	// refusedTime is how long a socket that refuses is tried again: a manager
	// that re-executes listens anew within that, one that died leaves its
	// socket file behind for ever.
	refusedTime = 300 * time.Millisecond
)

// Manager is a connection to a systemd manager: the user's, or, as root, the
// system's. It may be used by several goroutines. When the manager re-executes
// the connection breaks and is made again.
type Manager struct {
	group string
	turn  chan struct{} // holds one: whoever queues a job

	mu     sync.Mutex
	link   *link // the last one, may be broken; never nil
	closed bool
}

// socket is a place where a manager can be spoken to.
type socket struct {
	path string
	// bus says that a bus daemon listens there, which wants to be greeted, and
	// not the manager itself.
	bus bool
}

// sockets gives the places in the order of preference. The private socket first:
// the manager itself listens there, no bus daemon has to be well.
// DBUS_SESSION_BUS_ADDRESS is not looked at, and with none set nothing is
// launched: a bus started from here would be a stray.
func sockets(uid int, runtimeDir string) []socket {
	if uid == 0 {
		return []socket{{path: "/run/systemd/private"}, {path: "/run/dbus/system_bus_socket", bus: true}}
	}
	if runtimeDir == "" { // su and cron do not set it
		runtimeDir = fmt.Sprintf("/run/user/%d", uid)
	}
	return []socket{
		{path: filepath.Join(runtimeDir, "systemd/private")},
		{path: filepath.Join(runtimeDir, "bus"), bus: true},
	}
}

// Dial connects to the manager of the calling user; root's is the system's. An
// unprivileged user is never connected to the system's manager: it would ask for
// a password through polkit. The error is a [*NoManagerError].
func Dial(ctx context.Context) (*Manager, error) {
	return dial(ctx, sockets(os.Geteuid(), os.Getenv("XDG_RUNTIME_DIR")))
}

func dial(ctx context.Context, at []socket) (*Manager, error) {
	l, err := connect(ctx, at)
	if err != nil {
		return nil, err
	}
	return &Manager{group: l.group, turn: make(chan struct{}, 1), link: l}, nil
}

// connect tries one socket after the other.
func connect(ctx context.Context, at []socket) (*link, error) {
	no := &NoManagerError{}
	for _, s := range at {
		l, err := connectPatiently(ctx, s)
		if err == nil {
			return l, nil
		}
		no.Tried = append(no.Tried, Attempt{Socket: s.path, Err: err})
		if ctx.Err() != nil {
			break
		}
	}
	return nil, no
}

// connectPatiently tries a socket that is there and refuses again for a while.
func connectPatiently(ctx context.Context, s socket) (*link, error) {
	until := time.Now().Add(refusedTime)
	for wait := 5 * time.Millisecond; ; wait *= 2 {
		l, err := newLink(ctx, s)
		if err == nil || !restarting(err) || time.Now().Add(wait).After(until) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(wait):
		}
	}
}

// restarting says whether an error may come from a manager that is about to
// listen again. A socket that is missing is not such a case at the first dial:
// most machines without a manager look like that, and should be told at once.
func restarting(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || hungUp(err)
}

// Close ends the connection.
func (m *Manager) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.link.close()
	return nil
}

func (m *Manager) isClosed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}

// ControlGroup is the manager's own cgroup as it names it: "/" for the system's,
// e.g. "/user.slice/user-1000.slice/user@1000.service" for a user's.
func (m *Manager) ControlGroup() string {
	if m.group == "" {
		return "/"
	}
	return m.group
}

// Socket is where the manager was reached.
func (m *Manager) Socket() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.link.at.path
}

// User says whether it is a user's manager: its units end with the last login
// unless lingering is on.
func (m *Manager) User() bool { return strings.HasSuffix(m.ControlGroup(), ".service") }
