package session

import (
	"os"
	"slices"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// served looks who in the box listens at unix sockets, and who outside is connected.
func (m *Manager) served(rec *store.Session, box Box, how Shared) []Served {
	members, err := box.Members("")
	if err != nil {
		return nil
	}
	sockets, err := proc.UnixSockets()
	if err != nil {
		m.log.Debug("look for daemons that serve others", "session", rec.ID, "err", err)
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
		if nestedLeaf(p.Leaf) || isHelper(p) {
			continue // of a session that is closed by itself, or ours
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
	return m.withClients(rec, servers, outside, how)
}

// server is a process that listens.
type server struct {
	pid     int
	socket  string
	sockets []string
}

// withClients finds who holds the other ends.
func (m *Manager) withClients(rec *store.Session, servers []server, outside map[string]int, how Shared) []Served {
	pids, err := proc.PIDs()
	if err != nil {
		return nil
	}
	clients := make([][]Client, len(servers))
	now := ticksNow()
	for _, pid := range pids {
		if proc.SameProgram(pid) && pid != os.Getpid() {
			continue // those of ours that wait for something in the box
		}
		for _, inode := range proc.Sockets(pid) {
			i, ok := outside[inode]
			if !ok || slices.ContainsFunc(clients[i], func(c Client) bool { return c.PID == pid }) {
				continue
			}
			c := Client{PID: pid, Owner: m.ownerSide(rec, pid)}
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
	var all []Served
	for i, s := range servers {
		if len(clients[i]) == 0 {
			continue
		}
		p, ok := describe(s.pid, named, now)
		if !ok {
			continue
		}
		p.Session = rec.ID
		others := slices.ContainsFunc(clients[i], func(c Client) bool { return !c.Owner })
		all = append(all, Served{Process: p, Socket: s.socket, Clients: clients[i], Spared: how == SharedSpare || how == SharedAuto && others})
	}
	return all
}

// ownerSide says whether a process is on the side of who owns the session: a harness that
// is connected to what it had started there wants it ended when it closes the session.
func (m *Manager) ownerSide(rec *store.Session, pid int) bool {
	if safe, err := ancestors(); err != nil || safe[pid] {
		return true
	}
	st, err := proc.ReadStat(pid)
	if err != nil {
		return true // it has ended
	}
	is := func(p store.ProcID) bool { return p.PID == pid && p.Start == st.Start }
	if is(rec.Creator) || rec.Owner != nil && is(rec.Owner.Process) {
		return true
	}
	tasks, _, _ := m.store.Tasks(rec.ID)
	return slices.ContainsFunc(tasks, func(t store.Task) bool { return is(t.Supervisor) })
}

// withDescendants adds all in the box that descend from those given.
func withDescendants(box Box, pids map[int]bool) {
	members, err := box.Members("")
	if err != nil {
		return
	}
	parent := map[int]int{}
	for _, p := range members {
		if st, err := proc.ReadStat(p.PID); err == nil {
			parent[p.PID] = st.PPID
		}
	}
	for more := true; more; {
		more = false
		for pid, ppid := range parent {
			if pids[ppid] && !pids[pid] {
				pids[pid], more = true, true
			}
		}
	}
}
