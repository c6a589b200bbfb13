package scope

import (
	"errors"
	"os"
	"testing"

	"github.com/godbus/dbus/v5"
)

func TestAttachAnswers(t *testing.T) {
	for _, c := range []struct {
		name string
		want error
		gone bool
	}{
		{name: ""},
		{name: "org.freedesktop.DBus.Error.AccessDenied", want: ErrAttach},
		{name: "org.freedesktop.systemd1.NoSuchUnit", gone: true},
		{name: "System.Error.ENOENT", gone: true},
	} {
		f := newFake(t, polite("AttachProcessesToUnit", func(_ *fakeConn, _ int, body []any) ([]any, error) {
			if body[0] != "a.service" || body[1] != "/task-1" {
				t.Errorf("asked with %v", body)
			}
			if c.name == "" {
				return nil, nil
			}
			return nil, dbus.Error{Name: c.name, Body: []any{"no"}}
		}))
		m, err := f.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = m.attach(t.Context(), "a.service", "task-1", os.Getpid())
		if gone := errors.As(err, new(*unitGoneError)); gone != c.gone || c.want != nil && !errors.Is(err, c.want) ||
			(c.want == nil && !c.gone) != (err == nil) {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.want != nil {
			if refused := (*AttachError)(nil); !errors.As(err, &refused) || refused.Hint() == "" {
				t.Errorf("no hint: %v", err)
			}
		}
	}
}

// Nobody is named by pid to a manager that would take it for somebody else.
func TestOtherPidNamespace(t *testing.T) {
	f := newFake(t, polite("AttachProcessesToUnit", func(*fakeConn, int, []any) ([]any, error) {
		t.Error("it was asked")
		return nil, nil
	}))
	m, err := f.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.sameNamespace(); err != nil {
		t.Fatalf("in our own: %v", err)
	}
	for _, peer := range []int{0, 1 << 30} {
		m.link.peer = peer
		if err := m.attach(t.Context(), "a.service", "task-1", os.Getpid()); !errors.Is(err, ErrNamespace) {
			t.Errorf("peer %d: %v", peer, err)
		}
	}
}
