package session

import (
	"os"
	"slices"
	"strings"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// find looks who in the box listens at unix sockets, and who outside is connected.
func (s *serving) find() []Served {
	members, err := s.box.Members("")
	if err != nil {
		return nil
	}
	sockets, err := proc.UnixSockets()
	if err != nil {
		s.m.log.Debug("look for daemons that serve others", "session", s.rec.ID, "err", err)
		return nil
	}
	inside := map[string]bool{} // inodes of sockets that members have
	var servers []server
	of := make([][]string, len(members))
	each(len(members), func(i int) { of[i] = proc.Sockets(members[i].PID) })
	for i, p := range members {
		own := of[i]
		for _, inode := range own {
			inside[inode] = true
		}
		if nestedLeaf(p.Leaf) || isHelper(p) || engineLeaf(p.Leaf) {
			continue // of a session that is closed by itself, or ours, or in a container that is removed
		}
		for _, inode := range own {
			if s := sockets[inode]; s.Listens && s.Name != "" {
				servers = append(servers, server{p.PID, s.Name, own})
			}
		}
	}
	if len(servers) == 0 {
		return nil
	}
	// The ends that are not inside, of connections that were accepted.
	outside := map[string]int{} // inode → index of the server
	for i, s := range servers {
		for _, inode := range s.sockets {
			c := sockets[inode]
			if !c.Listens && c.Name == s.socket && c.Peer != "" && !inside[c.Peer] {
				if _, ok := outside[c.Peer]; !ok {
					outside[c.Peer] = i
				}
			}
		}
	}
	if len(outside) == 0 {
		return nil
	}
	return s.withClients(servers, outside)
}

// server is a process that listens.
type server struct {
	pid     int
	socket  string
	sockets []string
}

// ending are those who are closed in the same go.
func (s *serving) ending() map[int]bool {
	pids := map[int]bool{}
	if s.around != nil { // who is kept of it has left it by now, but not who is kept of those in it
		members, _ := s.around.box.Members("")
		for _, p := range members {
			if !nestedLeaf(p.Leaf) || !wantsToBeKept(p.PID) {
				pids[p.PID] = true
			}
		}
	}
	for _, ref := range s.along {
		for _, p := range s.m.membersOf(ref) {
			if !wantsToBeKept(p.PID) {
				pids[p.PID] = true
			}
		}
	}
	return pids
}

// wantsToBeKept says whether a process outlives its session, as far as can be told.
func wantsToBeKept(pid int) bool {
	env, err := proc.Env(pid, EnvKeep)
	return err != nil || env[EnvKeep] == "1"
}

// membersOf lists who is in the box of a session, nobody if it cannot be told.
func (m *Manager) membersOf(ref string) []proc.Member {
	id, err := m.resolve(ref)
	if err != nil {
		return nil
	}
	rec, _, err := m.load(id)
	if err != nil {
		return nil
	}
	box, err := m.openBox(&rec)
	if err != nil {
		return nil
	}
	defer box.Close()
	members, _ := box.Members("")
	return members
}

// withClients finds who holds the other ends.
func (s *serving) withClients(servers []server, outside map[string]int) []Served {
	pids, err := proc.PIDs()
	if err != nil {
		return nil
	}
	clients := make([][]Client, len(servers))
	now := ticksNow()
	owners, ending := s.owners(), s.ending()
	for _, pid := range pids {
		if ending[pid] || proc.SameProgram(pid) && pid != os.Getpid() {
			continue // no other, or one of ours that waits for something in the box
		}
		for _, inode := range proc.Sockets(pid) {
			i, ok := outside[inode]
			if !ok || slices.ContainsFunc(clients[i], func(c Client) bool { return c.PID == pid }) {
				continue
			}
			c := Client{PID: pid, Owner: owners.side(pid)}
			if st, err := proc.ReadStat(pid); err == nil {
				c.Comm = st.Comm
			}
			if cg, err := proc.Cgroup(pid); err == nil {
				if ids := idsOfPath(cg); len(ids) > 0 {
					c.Session = ids[len(ids)-1]
				}
			}
			clients[i] = append(clients[i], c)
		}
	}
	how := s.how
	if s.rec.Container != nil {
		how = SharedInclude // nothing in it outlives it
	}
	var all []Served
	for i, from := range servers {
		if len(clients[i]) == 0 {
			continue
		}
		p, ok := describe(from.pid, named, now)
		if !ok {
			continue
		}
		p.Session = s.rec.ID
		others := slices.ContainsFunc(clients[i], func(c Client) bool { return !c.Owner })
		all = append(all, Served{Process: p, Socket: from.socket, Clients: clients[i], Spared: how == SharedSpare || how == SharedAuto && others})
	}
	return all
}

// owners are who has a session, and those around it that are closed with it: a harness that
// is connected to what it had started there wants it ended when it closes the session.
type owners struct {
	above map[int]bool // whom the caller descends from, nil if that cannot be told
	known []store.ProcID
}

func (s *serving) owners() owners {
	above, err := ancestors()
	if err != nil {
		above = nil
	}
	o := owners{above: above}
	for rec := s.rec; rec != nil; rec = s.outer(rec) {
		o.known = append(o.known, rec.Creator)
		if rec.Owner != nil {
			o.known = append(o.known, rec.Owner.Process)
		}
		tasks, _, _ := s.m.store.Tasks(rec.ID)
		for i := range tasks {
			o.known = append(o.known, tasks[i].Supervisor)
		}
	}
	return o
}

// outer is the session around one, nil if that is not closed as well.
func (s *serving) outer(rec *store.Session) *store.Session {
	if s.around == nil || rec.ID == s.around.rec.ID || rec.Parent == "" {
		return nil
	}
	r, err := s.m.store.Get(rec.Parent)
	if err != nil {
		return nil
	}
	return &r
}

// side says whether a process is on the side of who has the session.
func (o *owners) side(pid int) bool {
	if o.above == nil || o.above[pid] {
		return true
	}
	st, err := proc.ReadStat(pid)
	if err != nil {
		return true // it has ended
	}
	return slices.ContainsFunc(o.known, func(p store.ProcID) bool { return p.PID == pid && p.Start == st.Start })
}

// withDescendants adds all in the box that descend from those given.
func withDescendants(box Box, ids map[proc.ID]bool) {
	members, err := box.Members("")
	if err != nil {
		return
	}
	type link struct {
		id   proc.ID
		ppid int
	}
	here := map[int]link{}
	for _, p := range members {
		if st, err := proc.ReadStat(p.PID); err == nil {
			here[p.PID] = link{proc.ID{PID: p.PID, Start: st.Start}, st.PPID}
		}
	}
	for more := true; more; {
		more = false
		for _, l := range here {
			if parent, ok := here[l.ppid]; ok && ids[parent.id] && !ids[l.id] {
				ids[l.id], more = true, true
			}
		}
	}
}

// engineLeaf says whether a place in the box is that of a container which an engine has made
// there: it is ended by that engine, with all that is in it, wherever it was moved.
func engineLeaf(leaf string) bool {
	for part := range strings.SplitSeq(leaf, "/") {
		id := strings.TrimPrefix(part, "libpod-")
		if engineScope(part) || len(id) == 64 && strings.Trim(id, "0123456789abcdef") == "" {
			return true
		}
	}
	return false
}
