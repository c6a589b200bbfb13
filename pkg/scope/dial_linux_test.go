package scope

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

func TestSockets(t *testing.T) {
	for _, c := range []struct {
		uid  int
		dir  string
		want []socket
	}{
		{0, "/run/user/0", []socket{{"/run/systemd/private", false}, {"/run/dbus/system_bus_socket", true}}},
		{1000, "/run/user/1000", []socket{{"/run/user/1000/systemd/private", false}, {"/run/user/1000/bus", true}}},
		{1000, "", []socket{{"/run/user/1000/systemd/private", false}, {"/run/user/1000/bus", true}}},
		{1000, "/tmp/x", []socket{{"/tmp/x/systemd/private", false}, {"/tmp/x/bus", true}}},
	} {
		if got := sockets(c.uid, c.dir); !reflect.DeepEqual(got, c.want) {
			t.Errorf("sockets(%d, %q) = %v", c.uid, c.dir, got)
		}
	}
}

func TestNobodyThere(t *testing.T) {
	dir := t.TempDir()
	begun := time.Now()
	_, err := dial(t.Context(), sockets(1, dir))
	if !errors.Is(err, ErrNoManager) || !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	no := (*NoManagerError)(nil)
	if !errors.As(err, &no) || len(no.Tried) != 2 || no.Tried[1].Socket != filepath.Join(dir, "bus") {
		t.Errorf("tried %+v", no)
	}
	for _, s := range []string{"systemd/private: ", "bus: ", "no such file"} {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not say %q", err, s)
		}
	}
	if took := time.Since(begun); took > time.Second {
		t.Errorf("it took %v to see that nobody is there", took)
	}
}

// A manager that died leaves its socket behind.
func TestNobodyListens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "private")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	begun := time.Now()
	if _, err := dial(t.Context(), []socket{{path: path}}); !errors.Is(err, unix.ECONNREFUSED) {
		t.Error(err)
	}
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestManagerThatHangs(t *testing.T) {
	t.Parallel()
	answers := map[string]func(*fakeConn, int, string, []any) ([]any, error){
		"before the greeting": nil,
		"after the greeting":  polite("Get", func(*fakeConn, int, []any) ([]any, error) { return nil, errSilent }),
	}
	for when, answer := range answers {
		for _, own := range []bool{true, false} {
			t.Run(when, func(t *testing.T) {
				if !own && testing.Short() {
					t.Skip("takes seconds")
				}
				t.Parallel()
				f := newFake(t, answer)
				ctx, most := t.Context(), callTime+2*time.Second
				if own { // the caller has less patience than we
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
					defer cancel()
					most = 2 * time.Second
				}
				begun := time.Now()
				_, err := f.dial(ctx)
				if !errors.Is(err, ErrNoManager) || !strings.Contains(err.Error(), "no answer") {
					t.Error(err)
				}
				if took := time.Since(begun); took > most {
					t.Errorf("it took %v", took)
				}
			})
		}
	}
}

// The second place is tried when the first one is no good.
func TestNextSocket(t *testing.T) {
	bad := newFake(t, polite("Get", func(*fakeConn, int, []any) ([]any, error) {
		return nil, dbus.Error{Name: "org.freedesktop.DBus.Error.UnknownObject", Body: []any{"no"}}
	}))
	good := newFake(t, polite("", nil))
	m, err := dial(t.Context(), []socket{{path: bad.path}, {path: good.path}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Socket() != good.path || m.ControlGroup() != "/x.service" || !m.User() {
		t.Errorf("%s, %s", m.Socket(), m.ControlGroup())
	}
	m.Close()
	if _, err := m.activeState(t.Context(), "x.slice"); !errors.Is(err, ErrNoManager) {
		t.Errorf("after Close: %v", err)
	}
}

func TestNothingIsLeftOpen(t *testing.T) {
	good := newFake(t, polite("", nil))
	bad := newFake(t, polite("Get", func(*fakeConn, int, []any) ([]any, error) {
		return nil, dbus.Error{Name: "org.freedesktop.DBus.Error.UnknownObject", Body: []any{"no"}}
	}))
	open := func() int {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		mine := 0
		for _, fd := range fds {
			if name, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(name, "socket:") {
				mine++
			}
		}
		return mine
	}
	before, routines := open(), runtime.NumGoroutine()
	for range 20 {
		m, err := dial(t.Context(), []socket{{path: bad.path}, {path: good.path}})
		if err != nil {
			t.Fatal(err)
		}
		m.Close()
	}
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		// The fake's own ends stay until the test is over.
		if open() <= before+40 && runtime.NumGoroutine() <= routines+2 {
			return
		}
	}
	t.Errorf("%d sockets, before %d; %d goroutines, before %d", open(), before, runtime.NumGoroutine(), routines)
}
