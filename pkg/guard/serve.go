package guard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/config"
	"github.com/sessionbox/sessionbox/pkg/session"
)

// ParseAddress reads where metrics are served: "unix:/PATH", or PORT or HOST:PORT of
// this machine's loopback.
func ParseAddress(text string) (network, addr string, err error) {
	return config.ParseAddress(text)
}

// server serves metrics on a socket that only this machine, or only this user, can
// reach. Its zero value serves nothing.
type server struct {
	network, addr string
	metrics       *metrics
	log           *slog.Logger
	l             net.Listener
	file          fs.FileInfo // of our socket
	done          context.CancelFunc
}

func newServer(o Options, log *slog.Logger) (*server, error) {
	if o.Metrics == "" {
		return &server{}, nil
	}
	network, addr, err := ParseAddress(o.Metrics)
	if err != nil {
		return &server{}, &session.Error{Kind: session.ErrUsage, Text: "metrics: " + err.Error(),
			Hint: "for other machines put a proxy in front that knows who may ask"}
	}
	return &server{network: network, addr: addr, metrics: newMetrics(o.Manager, o.Version), log: log}, nil
}

// freeTime is how long an address is tried that a guard before us has just left.
const freeTime = 2 * time.Second

// listen opens the socket, unless it is open. If another guard is about to leave it,
// that it is in use is no error: it is to be called again.
func (s *server) listen(later bool) error {
	if s.addr == "" || s.l != nil {
		return nil
	}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := s.open()
		switch {
		case err == nil, !errors.Is(err, syscall.EADDRINUSE):
			return err
		case later:
			return nil
		case time.Since(began) > freeTime:
			return &session.Error{Kind: session.ErrHeld, Text: "metrics: " + s.addr + " is in use", Err: err, Hint: "give another --metrics, or end who listens there"}
		}
	}
}

func (s *server) open() (err error) {
	if s.network != "unix" {
		s.l, err = net.Listen(s.network, s.addr)
		return err
	}
	if err := s.clear(); err != nil {
		return err
	}
	// Made aside and renamed: nobody can connect before only we may.
	tmp := fmt.Sprintf("%s.%d", s.addr, os.Getpid())
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: tmp, Net: "unix"})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	if err = os.Chmod(tmp, 0o600); err == nil {
		if s.file, err = os.Lstat(tmp); err == nil {
			err = os.Rename(tmp, s.addr)
		}
	}
	if err != nil {
		l.Close()
		os.Remove(tmp)
		return err
	}
	s.l = l
	return nil
}

// clear looks at what is where the socket is to be: the one of a guard that has died
// may be replaced, anything else not.
func (s *server) clear() error {
	info, err := os.Lstat(s.addr)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return &session.Error{Kind: session.ErrUsage, Text: "metrics: " + s.addr + " is there and is no socket", Hint: "give another path"}
	}
	c, err := net.DialTimeout("unix", s.addr, time.Second)
	if err == nil {
		c.Close()
		return &os.PathError{Op: "listen", Path: s.addr, Err: syscall.EADDRINUSE}
	}
	if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// serve answers from now on; it gives the metrics that are served, nil if none are.
func (s *server) serve() *metrics {
	if s.l == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.done = cancel
	go accept(ctx, s.l, s.metrics.write)
	s.log.Info("metrics at " + s.network + " " + s.address())
	return s.metrics
}

// address is where it listens.
func (s *server) address() string {
	if s.network == "unix" {
		return s.addr
	}
	return s.l.Addr().String()
}

func (s *server) close() {
	if s.done != nil {
		s.done()
	}
	if s.l != nil {
		s.l.Close()
	}
	// Ours alone: another guard may have put its own there.
	if now, err := os.Lstat(s.addr); err == nil && s.file != nil && os.SameFile(now, s.file) {
		os.Remove(s.addr)
	}
}
