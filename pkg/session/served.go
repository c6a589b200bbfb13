package session

import (
	"context"
	"fmt"
	"strings"

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

// Served finds the daemons of a session that serve others now.
func (m *Manager) Served(ctx context.Context, ref string) ([]Served, error) {
	id, err := m.resolve(ref)
	if err != nil {
		return nil, err
	}
	rec, _, err := m.load(id)
	if err != nil {
		return nil, m.lookupError(ref, err)
	}
	box, err := m.openBox(&rec)
	if err != nil {
		return nil, nil // nobody runs in it
	}
	defer box.Close()
	return m.served(&rec, box, SharedAuto), ctx.Err()
}

// serves finds them for a close.
func (c *closing) serves() {
	if c.box == nil || len(c.rec.KeptFrom) > 0 { // what was kept once ends with the session that keeps it
		return
	}
	c.r.Served = c.m.served(&c.rec, c.box, c.o.Shared)
}

// sparedPIDs are those that are spared as they, or who started them, serve others.
func (c *closing) sparedPIDs() map[int]bool {
	pids := map[int]bool{}
	for i := range c.r.Served {
		if c.r.Served[i].Spared {
			pids[c.r.Served[i].PID] = true
		}
	}
	if len(pids) > 0 {
		withDescendants(c.box, pids)
	}
	return pids
}

// sparedNote says of the daemons that were spared where they are now.
func (c *closing) sparedNote(kept *Session) {
	for i := range c.r.Served {
		s := &c.r.Served[i]
		if !s.Spared || s.In != "" { // or it was told
			continue
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
