package scope

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// reconnectTime is how long a manager that hung up is waited for: long enough to
// re-execute, short enough when it is gone for good.
const reconnectTime = callTime

// get gives the connection, made again when the last one broke.
func (m *Manager) get(ctx context.Context) (*link, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil { // it may have taken long to get here
		return nil, err
	}
	if m.closed {
		return nil, &NoManagerError{Tried: []Attempt{{Socket: "(closed)", Err: dbus.ErrClosed}}}
	}
	if m.link.alive() {
		return m.link, nil
	}
	l, err := m.reconnect(ctx)
	if err != nil {
		return nil, err
	}
	m.link = l
	return l, nil
}

// reconnect dials the manager that hung up: at the place where it was, as the bus
// may depend on it (a user's bus that is started by its socket accepts meanwhile,
// and is silent).
func (m *Manager) reconnect(ctx context.Context) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, reconnectTime)
	defer cancel()
	at := m.link.at
	m.link.close()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		l, err := newLink(ctx, at)
		if err == nil {
			return l, nil
		}
		// Only for the moment between two of them: one that hangs has had its
		// time, and one that says no will not change its mind.
		if restarting(err) || errors.Is(err, fs.ErrNotExist) {
			select {
			case <-ctx.Done():
			case <-time.After(wait):
				continue
			}
		}
		return nil, &NoManagerError{Tried: []Attempt{{Socket: at.path, Err: err}}}
	}
}

// attempts is how often something is asked of a manager that hangs up meanwhile:
// it may re-execute once more while we ask again.
const attempts = 3

// do makes one call, and again when the manager hung up on it. again says that it
// is not the first time: an earlier call may have taken effect.
func (m *Manager) do(ctx context.Context, fn func(ctx context.Context, l *link, again bool) error) error {
	for n := 1; ; n++ {
		l, err := m.get(ctx)
		if err != nil {
			return err
		}
		err = bounded(ctx, func(ctx context.Context) error { return fn(ctx, l, n > 1) })
		if err == nil || n == attempts || !hungUp(err) || ctx.Err() != nil {
			return err
		}
		l.close()
	}
}

func bounded(ctx context.Context, fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return fn(ctx)
}

// property reads one property of a unit; kind is Unit, Slice, Service or Scope.
// Of a unit that is not loaded it is the zero value.
func (m *Manager) property(ctx context.Context, unit, kind, name string) (any, error) {
	var p *sd.Property
	err := m.do(ctx, func(ctx context.Context, l *link, _ bool) (err error) {
		if kind == "Unit" {
			p, err = l.sd.GetUnitPropertyContext(ctx, unit, name)
		} else {
			p, err = l.sd.GetUnitTypePropertyContext(ctx, unit, kind, name)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return p.Value.Value(), nil
}

func (m *Manager) stringProperty(ctx context.Context, unit, kind, name string) (string, error) {
	v, err := m.property(ctx, unit, kind, name)
	s, _ := v.(string)
	return s, err
}

// errName is the D-Bus name of an error, "" if it did not come over D-Bus.
func errName(err error) string {
	if e, ok := errors.AsType[dbus.Error](err); ok {
		return e.Name
	}
	return ""
}

func errText(err error) string {
	if e, ok := errors.AsType[dbus.Error](err); ok {
		return e.Error()
	}
	return ""
}

func noSuchUnit(err error) bool {
	return errName(err) == "org.freedesktop.systemd1.NoSuchUnit"
}

// unitExists: a unit of that name is loaded, in whatever state.
func unitExists(err error) bool {
	return errName(err) == "org.freedesktop.systemd1.UnitExists"
}

// unknownProperty: the manager is older than a property, and refuses the call
// as a whole. The name of the error differs with the version.
func unknownProperty(err error) bool {
	switch errName(err) {
	case "org.freedesktop.DBus.Error.PropertyReadOnly", "org.freedesktop.DBus.Error.UnknownProperty":
		return true
	}
	return strings.Contains(errText(err), "unknown property")
}
