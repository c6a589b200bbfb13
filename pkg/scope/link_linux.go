package scope

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// link is one connection to a manager.
type link struct {
	sd    *sd.Conn
	conn  *dbus.Conn
	at    socket
	group string // the manager's own cgroup
	peer  int    // pid of who listens, in our pid namespace; 0: not in it
}

// newLink connects within dialTime; to be greeted and to get a first answer may
// take callTime, as it is the manager itself that greets, and 50 programs may
// want it to. That is a deadline on the socket: neither the D-Bus handshake nor
// go-systemd's subscription to signals takes a context.
//
// go-systemd wants two connections, one for calls and one for signals. It is
// given the same one twice: it needs two only where it makes calls while it
// handles a signal, for subscribers, and we do not subscribe. A manager sends
// each signal to everybody on its private socket, so that 50 programs that open
// boxes at once keep it busy with little else.
func newLink(ctx context.Context, s socket) (*link, error) {
	d := net.Dialer{Timeout: dialTime}
	c, err := d.DialContext(ctx, "unix", s.path)
	if err != nil {
		return nil, err
	}
	u := c.(*net.UnixConn)
	stop := context.AfterFunc(ctx, func() { u.SetDeadline(time.Unix(1, 0)) })
	l, err := talk(ctx, u, s)
	if !stop() && err == nil {
		l.close()
		err = ctx.Err()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer: %w", err)
	}
	return l, err
}

// talk makes a link out of a connected socket, which it closes when it fails.
func talk(ctx context.Context, u *net.UnixConn, s socket) (*link, error) {
	peer, err := peerPID(u)
	if err != nil {
		u.Close()
		return nil, err
	}
	u.SetDeadline(time.Now().Add(callTime))
	conn, err := greet(u, s.bus)
	if err != nil {
		return nil, err
	}
	l := &link{conn: conn, at: s, peer: peer}
	// Does not look at the answer to its AddMatch: if there was none the
	// deadline has closed the connection, and the probe fails.
	l.sd, err = sd.NewConnection(func() (*dbus.Conn, error) { return conn, nil })
	if err != nil {
		conn.Close()
		return nil, err
	}
	if err := bounded(ctx, l.probe); err != nil {
		l.close()
		return nil, err
	}
	u.SetDeadline(time.Time{})
	return l, nil
}

// probe proves that somebody who knows units answers, and where it lives.
func (l *link) probe(ctx context.Context) error {
	var v dbus.Variant
	err := l.conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1").
		CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", dbus.FlagNoAutoStart,
			"org.freedesktop.systemd1.Manager", "ControlGroup").Store(&v)
	if err != nil {
		return fmt.Errorf("ask for the manager: %w", err)
	}
	group, ok := v.Value().(string)
	if !ok {
		return fmt.Errorf("ask for the manager: its control group is %v", v)
	}
	l.group = group
	return nil
}

// greet shakes hands. EXTERNAL is the only method that says who we are without
// a file in a home directory; the uid spares looking up a name.
func greet(u *net.UnixConn, bus bool) (*dbus.Conn, error) {
	c, err := dbus.NewConn(timedConn{u})
	if err != nil {
		u.Close()
		return nil, err
	}
	if err := c.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))}); err != nil {
		c.Close()
		return nil, fmt.Errorf("authenticate: %w", err)
	}
	if bus {
		if err := c.Hello(); err != nil {
			c.Close()
			return nil, fmt.Errorf("greet the bus: %w", err)
		}
	}
	return c, nil
}

// timedConn bounds each write: godbus gives up waiting for an answer when its
// context ends, but not for a peer that does not read.
type timedConn struct{ *net.UnixConn }

func (c timedConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(callTime)); err != nil {
		return 0, err
	}
	return c.UnixConn.Write(b)
}

func (l *link) close() { l.sd.Close() }

func (l *link) alive() bool { return l.sd.Connected() }

// hungUp says whether a call failed as the peer closed the connection, which a
// manager does when it re-executes: what we asked may have been done or not.
func hungUp(err error) bool {
	for _, e := range []error{dbus.ErrClosed, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
		unix.ECONNRESET, unix.EPIPE} {
		if errors.Is(err, e) {
			return true
		}
	}
	switch errName(err) {
	case "org.freedesktop.DBus.Error.Disconnected",
		// What a bus says while the manager is off it.
		"org.freedesktop.DBus.Error.NoReply",
		"org.freedesktop.DBus.Error.NameHasNoOwner",
		"org.freedesktop.DBus.Error.ServiceUnknown":
		return true
	}
	return false
}

// peerPID is who listens at the other end, in our own pid namespace.
func peerPID(u *net.UnixConn) (int, error) {
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var cerr error
	err = raw.Control(func(fd uintptr) {
		cred, cerr = unix.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err := errors.Join(err, cerr); err != nil {
		return 0, fmt.Errorf("ask who listens: %w", err)
	}
	return int(cred.Pid), nil
}
