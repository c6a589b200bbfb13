package session

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// thawing is a box that asks, when it is thawed, what the records say by then.
type thawing struct {
	Box
	thaw func() error
}

func (b thawing) Thaw(context.Context) error { return b.thaw() }

func (b thawing) Frozen() (bool, error) { return false, nil }

// A thaw by hand is noted before it is done, and that the session was frozen until it is
// not: who is killed in between leaves neither one that is frozen again at once nor one
// that nobody thaws.
func TestThawIsNotedFirst(t *testing.T) {
	m, err := New(Config{StateDir: t.TempDir(), NoGuard: true})
	if err != nil {
		t.Fatal(err)
	}
	self, err := proc.Self()
	if err != nil {
		t.Fatal(err)
	}
	rec := store.Session{Schema: store.Schema, ID: store.NewID(), State: store.StateOpen, Created: time.Now(), Boot: self.Boot, Creator: store.ProcID(self),
		Kind: store.KindCgroup, Path: "/nowhere", Inode: 1, Memory: &store.MemoryPolicy{Steps: "freeze", Frozen: time.Second}}
	if err := m.store.Claim(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	policy := func() store.MemoryPolicy {
		t.Helper()
		r, err := m.store.Get(rec.ID)
		if err != nil {
			t.Fatal(err)
		}
		return *r.Memory
	}
	failed := errors.New("no")
	var at store.MemoryPolicy
	s := &Session{m: m, rec: rec, box: thawing{thaw: func() error { at = policy(); return failed }}}
	if err := s.Thaw(t.Context()); !errors.Is(err, failed) || at.Frozen == 0 || at.Thawed == 0 {
		t.Errorf("%v; when it was thawed the record was %+v", err, at)
	}
	if p := policy(); p.Frozen == 0 {
		t.Errorf("after a thaw that failed the record is %+v", p)
	}
	failed = nil
	if err := s.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := policy(); p.Frozen != 0 || p.Thawed == 0 {
		t.Errorf("after a thaw the record is %+v", p)
	}
}
