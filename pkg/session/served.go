package session

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// A daemon that was founded in a session may work for others: a tmux server, the master
// of ssh connections, an agent. It is known by what it serves, not by its name: somebody
// outside the session is connected to a unix socket that it listens at. Who is only at
// the end of a TCP connection does not count: a browser that looks at a server is no
// reason for it to stay.

// Shared is what a close does with daemons that serve others.
type Shared string

// What can be done with a daemon that serves others.
const (
	SharedAuto    Shared = ""        // spare those that serve somebody who is not the session's owner
	SharedSpare   Shared = "spare"   // spare them whoever is connected
	SharedInclude Shared = "include" // end them with the session
)

// Served is a daemon in a session that serves others.
type Served struct {
	Process
	Socket  string   `json:"socket"` // a path; @ is an abstract name
	Clients []Client `json:"clients"`
	// Spared says that it is left running: in a session of its own, with all it started.
	Spared bool `json:"spared"`
	// In is the session that it is left in.
	In string `json:"in,omitempty"`
}

// Client is who is connected to a daemon.
type Client struct {
	PID     int    `json:"pid"`
	Comm    string `json:"comm"`
	Session string `json:"session,omitempty"` // that it is in
	// Owner says that it is the session's owner, who opened it, who closes it, or whom that
	// one descends from.
	Owner bool `json:"owner,omitempty"`
}

func (c Client) String() string {
	text := fmt.Sprintf("%s (%d)", c.Comm, c.PID)
	if c.Session != "" {
		text += " in session " + c.Session
	}
	return text
}

// serving is a look for the daemons of a session that serve others.
type serving struct {
	m   *Manager
	rec *store.Session
	box Box
	how Shared
	// around is the outermost session that is closed with this one, nil if it is closed by
	// itself, and along are references to those that are closed at the same time: who ends
	// with the session is nobody that its daemons could be spared for.
	around *Session
	along  []string
}

// Served finds the daemons of a session that serve others now, and that its close can spare.
// along are sessions that are to be closed with it: their processes are no others.
func (m *Manager) Served(ctx context.Context, ref string, along ...string) ([]Served, error) {
	id, err := m.resolve(ref)
	if err != nil {
		return nil, err
	}
	rec, _, err := m.load(id)
	if err != nil {
		return nil, m.lookupError(ref, err)
	}
	if rec.Container != nil {
		return nil, nil // nothing in it outlives it
	}
	box, err := m.openBox(&rec)
	if err != nil {
		return nil, nil // nobody runs in it
	}
	defer box.Close()
	s := serving{m: m, rec: &rec, box: box, along: along}
	return s.find(), ctx.Err()
}

// serves finds them for a close.
func (c *closing) serves() {
	if c.box == nil || len(c.rec.KeptFrom) > 0 { // what was kept once ends with the session that keeps it
		return
	}
	s := serving{m: c.m, rec: &c.rec, box: c.box, how: c.o.Shared, around: c.o.around, along: c.o.Along}
	c.r.Served = s.find()
}

// spared are those that are spared as they, or who started them, serve others.
func (c *closing) spared() map[proc.ID]bool {
	ids := map[proc.ID]bool{}
	for i := range c.r.Served {
		if s := &c.r.Served[i]; s.Spared {
			ids[proc.ID{PID: s.PID, Start: s.Start}] = true
		}
	}
	if len(ids) > 0 {
		withDescendants(c.box, ids)
	}
	return ids
}

// settleServed says of those that were to be spared whether they were.
func (c *closing) settleServed() {
	for i := range c.r.Served {
		c.r.Served[i].Spared = c.r.Served[i].In != ""
	}
}

// sparedNote says of the daemons that were spared where they are now.
func (c *closing) sparedNote(kept *Session) {
	for i := range c.r.Served {
		s := &c.r.Served[i]
		if !s.Spared || s.In != "" { // or it was told
			continue
		}
		if !slices.ContainsFunc(c.r.Kept, func(p Process) bool { return sameProcess(&p, &s.Process) }) {
			continue // it could not be moved
		}
		clients := make([]string, len(s.Clients))
		for k := range s.Clients {
			clients[k] = s.Clients[k].String()
		}
		s.In = kept.ID()
		c.note(fmt.Sprintf("%s (%d) was spared, as %s: it serves %s", s.Comm, s.PID, kept.Name(), strings.Join(clients, ", ")))
		c.m.event(store.Event{Event: "spared", ID: c.rec.ID, Name: c.rec.Name}, map[string]any{"session": kept.ID(), "pid": s.PID, "socket": s.Socket})
	}
}
