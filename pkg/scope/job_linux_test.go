package scope

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

const job7 = dbus.ObjectPath("/org/freedesktop/systemd1/job/7")

func TestJobThatIsDoneBeforeTheAnswer(t *testing.T) {
	for result, ok := range map[string]bool{"done": true, "failed": false, "dependency": false} {
		f := newFake(t, polite("StartTransientUnit", func(c *fakeConn, _ int, _ []any) ([]any, error) {
			c.jobRemoved(job7, "a.slice", result)
			return []any{job7}, nil
		}))
		m, err := f.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = m.start(t.Context(), "a.slice", nil)
		failed := (*JobError)(nil)
		if ok != (err == nil) || !ok && (!errors.As(err, &failed) || failed.Result != result) {
			t.Errorf("%s: %v", result, err)
		}
	}
}

func TestCallWithoutAnswer(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	f := newFake(t, polite("StartTransientUnit", func(*fakeConn, int, []any) ([]any, error) { return nil, errSilent }))
	m, err := f.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := m.start(t.Context(), "a.slice", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if took := time.Since(begun); took < callTime/2 || took > 2*callTime {
		t.Errorf("it took %v", took)
	}
}

func TestJobWithoutEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	f := newFake(t, func(_ *fakeConn, _ int, member string, body []any) ([]any, error) {
		switch {
		case member == "StartTransientUnit":
			return []any{job7}, nil
		case body[1] == "ActiveState":
			return []any{dbus.MakeVariant("activating")}, nil
		}
		return []any{dbus.MakeVariant("/")}, nil
	})
	m, err := f.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := m.start(t.Context(), "a.slice", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if took := time.Since(begun); took < jobTime/2 || took > jobTime+callTime {
		t.Errorf("it took %v", took)
	}
}

// A manager that re-executes may have done what it did not answer.
func TestManagerHangsUp(t *testing.T) {
	exists := dbus.Error{Name: "org.freedesktop.systemd1.UnitExists", Body: []any{"exists"}}
	for name, second := range map[string]func(c *fakeConn) ([]any, error){
		"it had done it":     func(*fakeConn) ([]any, error) { return nil, exists },
		"it had not done it": func(c *fakeConn) ([]any, error) { c.jobRemoved(job7, "a.slice", "done"); return []any{job7}, nil },
	} {
		var asked atomic.Int32
		f := newFake(t, polite("StartTransientUnit", func(c *fakeConn, _ int, _ []any) ([]any, error) {
			if asked.Add(1) == 1 {
				return nil, errHangUp
			}
			return second(c)
		}))
		m, err := f.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := m.start(t.Context(), "a.slice", nil); err != nil || asked.Load() != 2 {
			t.Errorf("%s: asked %d times, %v", name, asked.Load(), err)
		}
	}
	// After it took the job on: nobody will tell us, so the unit is asked for.
	f := newFake(t, polite("StartTransientUnit", func(c *fakeConn, _ int, _ []any) ([]any, error) {
		time.AfterFunc(50*time.Millisecond, func() { c.Close() })
		return []any{job7}, nil
	}))
	m, err := f.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.start(t.Context(), "a.slice", nil); err != nil {
		t.Error(err)
	}
}

// A name that somebody holds: the first time we ask it is not ours.
func TestUnitExists(t *testing.T) {
	f := newFake(t, polite("StartTransientUnit", func(*fakeConn, int, []any) ([]any, error) {
		return nil, dbus.Error{Name: "org.freedesktop.systemd1.UnitExists", Body: []any{"exists"}}
	}))
	m, err := f.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.start(t.Context(), "a.slice", nil); !errors.Is(err, ErrExists) {
		t.Error(err)
	}
}

func TestPending(t *testing.T) {
	var id atomic.Uint32
	f := newFake(t, polite("Get", func(_ *fakeConn, _ int, body []any) ([]any, error) {
		if body[1] == "Job" {
			return []any{dbus.MakeVariant(struct {
				ID   uint32
				Path dbus.ObjectPath
			}{id.Load(), "/"})}, nil
		}
		return []any{dbus.MakeVariant("/")}, nil
	}))
	m, err := f.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []uint32{0, 5} {
		id.Store(n)
		if p, err := m.pending(t.Context(), "a.slice"); err != nil || p != (n != 0) {
			t.Errorf("job %d: pending %v, %v", n, p, err)
		}
	}
}
