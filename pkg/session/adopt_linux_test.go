package session

import (
	"slices"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
)

// row is a process of a table: pid, parent, start, group, session.
func row(pid, ppid int, start uint64, pgid, sid int) proc.Stat {
	return proc.Stat{PID: pid, PPID: ppid, Start: start, PGID: pgid, SID: sid}
}

func walked(t *tree, table []proc.Stat, alien ...int) (pids []int) {
	t.walk(table, func(st *proc.Stat) bool {
		pids = append(pids, st.PID)
		return slices.Contains(alien, st.PID)
	})
	return pids
}

func TestTreeWalk(t *testing.T) {
	table := []proc.Stat{
		row(10, 1, 5, 10, 10), row(20, 10, 6, 20, 20), row(21, 20, 7, 20, 20), row(22, 21, 8, 20, 20),
		row(23, 20, 9, 20, 20), row(30, 10, 6, 30, 30),
		row(24, 20, 3, 20, 20), // older than its parent: the child of an earlier 20
	}
	tr := newTree()
	tr.add(proc.ID{PID: 20, Start: 6})
	if got, want := walked(tr, table), []int{20, 21, 23, 22}; !slices.Equal(got, want) {
		t.Errorf("walk = %v, want %v, parents first", got, want)
	}
	// 21 has ended, and 1 has its child, which had one itself. 20 is another by now.
	table = []proc.Stat{row(20, 1, 50, 20, 20), row(22, 1, 8, 20, 20), row(25, 22, 60, 20, 20), row(26, 20, 60, 20, 20)}
	if got, want := walked(tr, table), []int{22, 25}; !slices.Equal(got, want) {
		t.Errorf("walk after an end = %v, want %v", got, want)
	}
	// What an alien started is not looked at, in this pass or the next.
	tr = newTree()
	tr.add(proc.ID{PID: 1, Start: 1})
	table = []proc.Stat{row(1, 0, 1, 1, 1), row(2, 1, 2, 1, 1), row(3, 2, 3, 1, 1), row(4, 1, 2, 1, 1)}
	for range 2 {
		if got, want := walked(tr, table, 2), []int{1, 2, 4}; !slices.Equal(got, want) {
			t.Errorf("walk around an alien = %v, want %v", got, want)
		}
	}
}

func TestTreeOrphans(t *testing.T) {
	const began = 100
	tr := newTree()
	root := row(20, 10, 6, 20, 5) // a job of the shell 5
	tr.add(idOf(&root))
	tr.add(proc.ID{PID: 40, Start: 7}) // has ended, was the leader of a session
	table := []proc.Stat{
		root,
		row(50, 1, 101, 20, 5),    // in the root's own group
		row(51, 1, 101, 40, 40),   // in a session whose leader was of the tree
		row(60, 1, 9, 61, 40),     // for long, in a group of its own
		row(52, 1, 99, 20, 5),     // a neighbour in a pipeline, from before
		row(53, 1, 101, 53, 5),    // shares the terminal's session, as the shell's other jobs do
		row(54, 1, 101, 54, 54),   // a daemon, by anybody
		row(55, 70, 101, 20, 5),   // has a parent that could not have got it
		row(56, 20, 101, 20, 5),   // no orphan
		row(57, 10, 101, 57, 57),  // a child of an ancestor
		row(58, 10, 101, 20, 5),   // given to an ancestor that reaps
		row(59, 1, 101, 300, 300), // group and session of others
	}
	own, likely, suspects := tr.orphans(table, began, map[int]bool{1: true, 10: true})
	pids := func(list []proc.Stat) (all []int) {
		for _, st := range list {
			all = append(all, st.PID)
		}
		return all
	}
	if got, want := pids(own), []int{51, 60}; !slices.Equal(got, want) {
		t.Errorf("own orphans %v, want %v", got, want)
	}
	if got, want := pids(likely), []int{50, 58}; !slices.Equal(got, want) {
		t.Errorf("likely orphans %v, want %v", got, want)
	}
	if got, want := pids(suspects), []int{53}; !slices.Equal(got, want) {
		t.Errorf("suspects %v, want %v", got, want)
	}
}

func TestServiceOf(t *testing.T) {
	const user = "/user.slice/user-1000.slice/user@1000.service"
	for _, c := range []struct {
		comm, cg, parent string
		refused          bool
	}{
		{"systemd", "/init.scope", "", true},
		{"systemd", user + "/init.scope", "/init.scope", true},
		{"(sd-pam)", user + "/init.scope", user + "/init.scope", true},
		{"shell of a system that has them there", "/init.scope", "/init.scope", false},
		{"sshd", "/system.slice/ssh.service", "/init.scope", true},
		{"user service", user + "/app.slice/terminal.service", user + "/init.scope", true},
		{"delegated service", "/system.slice/agentd.service/main", "/init.scope", true},
		{"child of a service", "/system.slice/agentd.service", "/system.slice/agentd.service", false},
		{"login session", "/user.slice/user-1000.slice/session-3.scope", "/user.slice/user-1000.slice/session-3.scope", false},
		{"orphan of a login session", "/user.slice/user-1000.slice/session-3.scope", user + "/init.scope", false},
		{"scope of an application", user + "/app.slice/app-x.scope", user + "/init.scope", false},
		{"container", "/", "/", false},
		{"no systemd", "/agents/one", "/", false},
	} {
		if got := serviceOf(c.comm, c.cg, c.parent); got != "" != c.refused {
			t.Errorf("%s in %s: %q, want refused: %v", c.comm, c.cg, got, c.refused)
		}
	}
}

func TestPlaceOf(t *testing.T) {
	leader := proc.Stat{PID: 7, SID: 7, TTY: 34816}
	job := proc.Stat{PID: 8, SID: 7, TTY: 34816}
	quiet := proc.Stat{PID: 7, SID: 7}
	for _, c := range []struct {
		what    string
		st      proc.Stat
		comm    string
		argv    []string
		refused bool
	}{
		{"shell of a terminal", leader, "bash", []string{"bash"}, true},
		{"with flags", leader, "zsh", []string{"/bin/zsh", "-i", "-l"}, true},
		{"with a long flag", leader, "bash", []string{"bash", "--norc", "--noprofile", "-i"}, true},
		{"login shell", leader, "bash", []string{"-bash"}, true},
		{"login shell without a terminal", quiet, "bash", []string{"-bash"}, true},
		{"agent in a terminal of its own", leader, "node", []string{"claude"}, false},
		{"command of a terminal", leader, "sh", []string{"sh", "-c", "claude"}, false},
		{"script of a terminal", leader, "bash", []string{"bash", "agent.sh"}, false},
		{"flags together", leader, "bash", []string{"bash", "-lc", "claude"}, false},
		{"shell in a shell", job, "bash", []string{"bash"}, false},
		{"hook", quiet, "bash", []string{"bash", "-c", "x"}, false},
		{"sshd", quiet, "sshd", []string{"sshd: me@pts/0"}, true},
		{"tmux", quiet, "tmux: server", []string{"tmux", "new", "-d"}, true},
		{"no arguments", quiet, "x", nil, false},
	} {
		c.st.Comm = c.comm
		if got := placeOf(&c.st, c.argv); got != "" != c.refused {
			t.Errorf("%s: %q, want refused: %v", c.what, got, c.refused)
		}
	}
}
