package anchor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"golang.org/x/sys/unix"
)

// killTime bounds the killing of one abandoned task.
const killTime = 30 * time.Second

// Server watches the supervisors of one box.
type Server struct {
	Dir string // the session's directory: socket and lock
	// Work is the directory whose leaves are the tasks.
	Work *cgroup.Group
	// Abandoned is called before the leaf of a dead supervisor is killed.
	Abandoned func(task int)
}

// Run serves until ctx is done. ready is called once supervisors can connect;
// when another anchor serves this session already, Run returns nil after ready.
func (s *Server) Run(ctx context.Context, ready func()) error {
	lock, err := os.OpenFile(filepath.Join(s.Dir, "anchor.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			ready()
			return nil
		}
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	l, err := s.listen()
	if err != nil {
		return err
	}
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	ready()
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		go s.serve(c)
	}
}

// listen replaces the socket of a dead predecessor; the lock says it is dead.
func (s *Server) listen() (l *net.UnixListener, err error) {
	if err := os.Remove(filepath.Join(s.Dir, Socket)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	err = shortPath(s.Dir, Socket, func(path string) error {
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		return err
	})
	if err != nil {
		return nil, err
	}
	// A successor makes its own under this name; do not take that one away.
	l.SetUnlinkOnClose(false)
	return l, nil
}

func (s *Server) serve(c *net.UnixConn) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(Timeout))
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	if err != nil {
		return
	}
	verb, leaf, task, err := s.open(line)
	if err != nil {
		fmt.Fprintf(c, "error %v\n", err)
		return
	}
	defer leaf.Close()
	if _, err := fmt.Fprint(c, "ok\n"); err != nil {
		// It may have read the answer before it died.
		s.abandoned(verb, leaf, task)
		return
	}
	c.SetDeadline(time.Time{})
	if verb == verbHold {
		c.SetReadDeadline(time.Now().Add(HoldTime))
	}
	if line, _ := r.ReadString('\n'); line != "done\n" {
		s.abandoned(verb, leaf, task)
	}
}

func (s *Server) open(line string) (verb string, leaf *cgroup.Group, task int, err error) {
	var name string
	var inode uint64
	_, err = fmt.Sscanf(line, "%s %s %d %d\n", &verb, &name, &task, &inode)
	if err != nil || verb != verbTie && verb != verbHold {
		return "", nil, 0, fmt.Errorf("bad request %q", line)
	}
	leaf, err = s.child(name)
	if err != nil {
		return "", nil, 0, err
	}
	if name == cgroup.AnchorLeaf || leaf.Inode() != inode {
		leaf.Close()
		return "", nil, 0, fmt.Errorf("%s is not the leaf that was meant", name)
	}
	return verb, leaf, task, nil
}

// child opens a leaf: one in Work or, of a container, in a directory there.
func (s *Server) child(name string) (*cgroup.Group, error) {
	inner, leaf, ok := strings.Cut(name, "/")
	if !ok {
		return s.Work.Child(name)
	}
	g, err := s.Work.Child(inner)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	return g.Child(leaf)
}

// abandoned does what was asked for the case that nobody says goodbye.
func (s *Server) abandoned(verb string, leaf *cgroup.Group, task int) {
	if verb == verbHold {
		leaf.Thaw() // one that was removed has nobody in it
		return
	}
	s.end(leaf, task)
}

func (s *Server) end(leaf *cgroup.Group, task int) {
	if p, err := leaf.Populated(); err == nil && !p {
		return
	}
	if s.Abandoned != nil {
		s.Abandoned(task)
	}
	ctx, cancel := context.WithTimeout(context.Background(), killTime)
	defer cancel()
	leaf.Kill(ctx) // what survives shows up as a leftover of the task
}
