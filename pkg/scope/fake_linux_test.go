package scope

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/godbus/dbus/v5"
)

// fake is a manager's private socket with somebody else behind it.
type fake struct {
	t    *testing.T
	path string
	l    *net.UnixListener

	mu    sync.Mutex
	conns int
	// answer gives the reply to a call; the n-th connection is 1. No reply at
	// all with errSilent, and errHangUp ends the connection.
	answer func(c *fakeConn, n int, member string, body []any) ([]any, error)
}

var (
	errSilent = errors.New("silent")
	errHangUp = errors.New("hang up")
)

type fakeConn struct {
	net.Conn
	mu sync.Mutex
}

func newFake(t *testing.T, answer func(c *fakeConn, n int, member string, body []any) ([]any, error)) *fake {
	t.Helper()
	f := &fake{t: t, path: filepath.Join(t.TempDir(), "private"), answer: answer}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: f.path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	f.l = l
	t.Cleanup(func() { l.Close() })
	go f.accept()
	return f
}

func (f *fake) accept() {
	for {
		c, err := f.l.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		f.conns++
		n := f.conns
		f.mu.Unlock()
		f.t.Cleanup(func() { c.Close() })
		go f.serve(&fakeConn{Conn: c}, n)
	}
}

func (f *fake) serve(c *fakeConn, n int) {
	if f.answer == nil {
		io.Copy(io.Discard, c) // accepts, and never says anything
		return
	}
	r := bufio.NewReader(c)
	if b, err := r.ReadByte(); err != nil || b != 0 {
		return
	}
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		switch line = strings.TrimSpace(line); {
		case line == "AUTH":
			io.WriteString(c, "REJECTED EXTERNAL\r\n")
		case strings.HasPrefix(line, "AUTH EXTERNAL"):
			io.WriteString(c, "OK 00\r\n")
		case line == "BEGIN":
			f.calls(c, r, n)
			return
		}
	}
}

func (f *fake) calls(c *fakeConn, r io.Reader, n int) {
	for {
		m, err := dbus.DecodeMessage(r)
		if err != nil {
			return
		}
		member, _ := m.Headers[dbus.FieldMember].Value().(string)
		reply := &dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldReplySerial: dbus.MakeVariant(m.Serial()),
		}}
		if member != "AddMatch" {
			body, err := f.answer(c, n, member, m.Body)
			var named dbus.Error
			switch {
			case errors.Is(err, errSilent):
				continue
			case errors.Is(err, errHangUp):
				c.Close()
				return
			case errors.As(err, &named):
				reply.Type, body = dbus.TypeError, named.Body
				reply.Headers[dbus.FieldErrorName] = dbus.MakeVariant(named.Name)
			}
			reply.Body = body
		}
		c.send(reply)
	}
}

func (c *fakeConn) send(m *dbus.Message) {
	if len(m.Body) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(m.Body...))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// An error is the client's hanging up, which is what is tested.
	_ = m.EncodeTo(serialled{c}, binary.LittleEndian)
}

// serialled gives each message a serial: 0 is not valid, and godbus lets nobody
// but a connection set one.
type serialled struct{ w io.Writer }

func (s serialled) Write(b []byte) (int, error) {
	if len(b) > 12 {
		b = append([]byte{}, b...)
		binary.LittleEndian.PutUint32(b[8:], 7)
	}
	return s.w.Write(b)
}

// jobRemoved sends the signal.
func (c *fakeConn) jobRemoved(job dbus.ObjectPath, unit, result string) {
	c.send(&dbus.Message{Type: dbus.TypeSignal, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldPath:      dbus.MakeVariant(dbus.ObjectPath("/org/freedesktop/systemd1")),
		dbus.FieldInterface: dbus.MakeVariant("org.freedesktop.systemd1.Manager"),
		dbus.FieldMember:    dbus.MakeVariant("JobRemoved"),
	}, Body: []any{uint32(1), job, unit, result}})
}

// polite answers as a manager that runs would, all but member, which do answers.
func polite(member string, do func(c *fakeConn, n int, body []any) ([]any, error)) func(*fakeConn, int, string, []any) ([]any, error) {
	return func(c *fakeConn, n int, m string, body []any) ([]any, error) {
		switch {
		case m == member:
			return do(c, n, body)
		case m == "Get" && body[1] == "ControlGroup":
			return []any{dbus.MakeVariant("/x.service")}, nil
		case m == "Get" && body[1] == "ActiveState":
			return []any{dbus.MakeVariant("active")}, nil
		case m == "Get" && body[1] == "Job":
			return []any{dbus.MakeVariant(struct {
				ID   uint32
				Path dbus.ObjectPath
			}{0, "/"})}, nil
		}
		return nil, nil
	}
}

func (f *fake) dial(ctx context.Context) (*Manager, error) {
	m, err := dial(ctx, []socket{{path: f.path}})
	if err == nil {
		f.t.Cleanup(func() { m.Close() })
	}
	return m, err
}
