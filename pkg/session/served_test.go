package session

import (
	"os"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// Who was to be spared and could not be moved has ended with the others: the receipt says so.
func TestSparedIsWhoWasMoved(t *testing.T) {
	m, err := New(Config{StateDir: t.TempDir(), NoGuard: true})
	if err != nil {
		t.Fatal(err)
	}
	daemon := func(pid int) Process { return Process{PID: pid, Start: 7} }
	c := closing{m: m, rec: store.Session{ID: store.NewID()}, r: Receipt{
		Served: []Served{{Process: daemon(2), Spared: true}, {Process: daemon(3), Spared: true}, {Process: daemon(4)}},
		Kept:   []Process{daemon(1), daemon(2), {PID: 3, Start: 8}},
	}}
	kept := &Session{m: m, rec: store.Session{ID: store.NewID(), Name: "kept"}}
	c.sparedNote(kept)
	c.settleServed()
	for i, want := range []bool{true, false, false} {
		s := c.r.Served[i]
		if s.Spared != want || (s.In == kept.ID()) != want {
			t.Errorf("%d: spared %v, in %q", s.PID, s.Spared, s.In)
		}
	}
	if len(c.r.Notes) != 1 {
		t.Errorf("the notes are %q", c.r.Notes)
	}
}

// A pid that is another's by now is nobody's to spare.
func TestSparedByIdentity(t *testing.T) {
	self, err := proc.ReadStat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for start, want := range map[uint64]bool{self.Start: true, self.Start - 1: false} {
		if got := isOneOf(map[proc.ID]bool{{PID: os.Getpid(), Start: start}: true}, os.Getpid()); got != want {
			t.Errorf("started at %d: %v", start, got)
		}
	}
}
