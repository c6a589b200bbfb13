package tui

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/render"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// node is one line of the tree: a session, a task of it, or a process. Of its three
// pointers the innermost that is set says which.
type node struct {
	key      string // stays the same from look to look
	session  *session.Info
	stats    *session.Stats
	task     *session.TaskInfo
	proc     *session.Process
	children []*node
	// more says that there may be something below that was not looked for.
	more bool

	name, command string
	cpu           *float64
	memory        *uint64
	pids, left    int
	age           time.Duration
	began         time.Time // of what is sorted by; ages are not all taken at one time
	trend         []uint64
}

func (n *node) isSession() bool { return n.task == nil && n.proc == nil }

// ref is what the line is called in a sentence.
func (n *node) ref() string {
	name := render.Clean(render.Called(n.session))
	if t := n.taskNumber(); t != 0 {
		return fmt.Sprintf("%s/%d", name, t)
	}
	return name
}

// taskNumber is the task that the line is, or that the process is of; 0 for none.
func (n *node) taskNumber() int {
	switch {
	case n.task != nil:
		return n.task.N
	case n.proc != nil:
		return n.proc.Task
	}
	return 0
}

// forest makes the tree of a snapshot. Sessions inside another one are below it.
func forest(s *Snapshot, r rates, trends map[string][]uint64) []*node {
	nodes := map[string]*node{}
	for i := range s.Sessions {
		in := &s.Sessions[i]
		nodes[in.ID] = sessionNode(in, s, r, trends[in.ID])
	}
	var tops []*node
	for i := range s.Sessions {
		n := nodes[s.Sessions[i].ID]
		if parent, ok := nodes[n.session.Parent]; ok && parent != n {
			parent.children = append(parent.children, n)
		} else {
			tops = append(tops, n)
		}
	}
	return tops
}

func sessionNode(in *session.Info, s *Snapshot, r rates, trend []uint64) *node {
	n := &node{key: in.ID, session: in, stats: r.stats[in.ID], name: render.Clean(render.Called(in)), pids: in.Processes, left: in.Leftovers,
		age: seconds(in.AgeSeconds), began: in.Created, memory: in.Usage.MemoryBytes, trend: trend}
	if n.stats != nil {
		n.cpu = n.stats.CPUPercent
	}
	alive, looked := s.Alive[in.ID]
	n.more = !looked && in.Processes > 0
	for i := range in.Tasks {
		t := &in.Tasks[i]
		procs := ofTask(alive, t.N)
		if len(procs) == 0 && !running(t) && (looked || t.Leftovers == 0) {
			continue
		}
		n.children = append(n.children, taskNode(in, t, procs, looked, s.At, r))
		if running(t) {
			n.command = render.Command(t.Argv, true)
		}
	}
	for _, p := range ofTask(alive, 0) {
		n.children = append(n.children, processNode(in, p, s.At, r))
	}
	switch {
	case in.State == session.StateBroken:
		n.command, n.age = in.State, -1
	case in.State != string(store.StateOpen):
		n.command = in.State
	case in.Box.Gone:
		n.command = "its box is gone"
	case n.command == "" && in.Leftovers > 0:
		n.command = "left over"
	}
	return n
}

func taskNode(in *session.Info, t *session.TaskInfo, procs []*session.Process, looked bool, at time.Time, r rates) *node {
	n := &node{key: fmt.Sprintf("%s/%d", in.ID, t.N), session: in, task: t, name: strconv.Itoa(t.N), command: render.Command(t.Argv, true),
		left: t.Leftovers, age: at.Sub(t.Started), began: t.Started, more: !looked}
	if !running(t) {
		n.command = render.TaskState(t) + ": " + n.command
	}
	if !looked {
		return n
	}
	var sum uint64
	for _, p := range procs {
		c := processNode(in, p, at, r)
		n.children = append(n.children, c)
		sum += *c.memory
		if c.cpu != nil {
			if n.cpu == nil {
				n.cpu = new(float64)
			}
			*n.cpu += *c.cpu
		}
	}
	n.pids, n.memory = len(procs), &sum
	return n
}

func processNode(in *session.Info, p *session.Process, at time.Time, r rates) *node {
	n := &node{key: fmt.Sprintf("%d:%d", p.PID, p.Start), session: in, proc: p, name: strconv.Itoa(p.PID), command: render.Command(p.Argv, true),
		age: seconds(p.AgeSeconds), began: at.Add(-seconds(p.AgeSeconds)), memory: new(uint64(max(0, p.MemoryBytes)))}
	if percent, ok := r.cpu[whoIs(p)]; ok {
		n.cpu = &percent
	}
	if p.Escaped != "" {
		n.command += " [" + p.Escaped + "]"
	}
	return n
}

func running(t *session.TaskInfo) bool {
	switch store.TaskState(t.State) {
	case store.TaskRunning, store.TaskStarting, store.TaskOrphaned:
		return true
	}
	return false
}

func ofTask(all []session.Process, task int) []*session.Process {
	var list []*session.Process
	for i := range all {
		if all[i].Task == task {
			list = append(list, &all[i])
		}
	}
	return list
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// matches says whether the line itself has a text in it, in any case.
func (n *node) matches(lower string) bool {
	texts := []string{n.name, n.command}
	if n.isSession() { // its command is a task's
		texts = []string{n.name, n.session.ID}
	}
	return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(strings.ToLower(t), lower) })
}
