package render

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// Branch is a session in a tree, with all that is alive in it.
type Branch struct {
	session.Info
	// Alive are the processes, those of nested sessions left out.
	Alive []session.Process
}

// Tree writes sessions with those inside them, their tasks and processes.
func Tree(w io.Writer, all []Branch, st Style) error {
	b := bufio.NewWriter(w)
	t := tree{b: b, all: all, st: st}
	for i := range all {
		if !slices.ContainsFunc(all, func(o Branch) bool { return o.ID == all[i].Parent }) {
			t.session(&all[i], "", "")
		}
	}
	if err := t.notes.write(b, st, ""); err != nil {
		return err
	}
	return b.Flush()
}

type tree struct {
	b     *bufio.Writer
	all   []Branch
	st    Style
	notes notes
}

func (t *tree) frozen(id string) bool {
	return slices.ContainsFunc(t.all, func(b Branch) bool { return b.ID == id && b.Box.Frozen })
}

// line writes one line; the text is cut, what is before it is not.
func (t *tree) line(prefix, text, tail string, p paint) {
	if t.st.cut() {
		room := max(8, t.st.Width-width(prefix))
		if tail != "" {
			text = fit(text, max(8, room-1-width(tail)))
		} else {
			text = fit(text, room)
		}
	}
	t.b.WriteString(t.st.paint(dim, prefix))
	t.b.WriteString(t.st.paint(p, text))
	if tail != "" {
		t.b.WriteString(" " + t.st.paint(dim, tail))
	}
	t.b.WriteByte('\n')
}

// node is something below a session: write writes it, with its own line's
// prefix and that of what is below it.
type node func(prefix, below string)

func (t *tree) nodes(list []node, below string) {
	for i, n := range list {
		if i == len(list)-1 {
			n(below+"└─ ", below+"   ")
		} else {
			n(below+"├─ ", below+"│  ")
		}
	}
}

func (t *tree) session(br *Branch, prefix, below string) {
	c := nameCell(&br.Info, Style{Whole: true})
	c.text = Called(&br.Info) + markOf(&br.Info)
	t.line(prefix, c.text, sessionTail(&br.Info), c.paint)
	var list []node
	for i := range br.Tasks {
		task := &br.Tasks[i]
		procs := ofTask(br.Alive, task.N)
		if len(procs) > 0 || live(task.State) {
			list = append(list, func(p, b string) { t.task(task, procs, p, b) })
		}
	}
	if procs := ofTask(br.Alive, 0); len(procs) > 0 {
		list = append(list, t.processNodes(procs)...)
	}
	for i := range t.all {
		if t.all[i].Parent == br.ID {
			list = append(list, func(p, b string) { t.session(&t.all[i], p, b) })
		}
	}
	t.nodes(list, below)
	t.notes.of(&br.Info, t.frozen(br.Parent))
}

func sessionTail(i *session.Info) string {
	parts := []string{i.ID, boxCell(i).text, ageSeconds(i.AgeSeconds)}
	if i.Name == "" {
		parts = parts[1:]
	}
	if m := i.Usage.MemoryBytes; m != nil && *m > 0 {
		parts = append(parts, memlimit.FormatBytes(*m))
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

func ofTask(all []session.Process, n int) []session.Process {
	var list []session.Process
	for i := range all {
		if all[i].Task == n {
			list = append(list, all[i])
		}
	}
	return list
}

func (t *tree) task(task *session.TaskInfo, procs []session.Process, prefix, below string) {
	p := plain
	if !live(task.State) {
		p = yellow
	}
	t.line(prefix, fmt.Sprintf("%d %s", task.N, Command(task.Argv, !t.st.Whole)), "("+TaskState(task)+")", p)
	t.nodes(t.processNodes(procs), below)
}

// processNodes makes a forest of processes: one whose parent is among them is
// below it.
func (t *tree) processNodes(procs []session.Process) []node {
	var list []node
	for i := range procs {
		p := &procs[i]
		if slices.ContainsFunc(procs, func(o session.Process) bool { return o.PID == p.PPID && o.PID != p.PID }) {
			continue
		}
		list = append(list, t.processNode(p, procs))
	}
	return list
}

func (t *tree) processNode(p *session.Process, procs []session.Process) node {
	return func(prefix, below string) {
		c := what(p, false, t.st)
		t.line(prefix, strconv.Itoa(p.PID)+" "+c.text, c.tail, plain)
		var list []node
		for i := range procs {
			if procs[i].PPID == p.PID && procs[i].PID != p.PID {
				list = append(list, t.processNode(&procs[i], procs))
			}
		}
		t.nodes(list, below)
	}
}

// TaskState says how a task is, or how it ended.
func TaskState(t *session.TaskInfo) string {
	s := strings.ReplaceAll(t.State, "_", " ")
	switch {
	case t.State == string(store.TaskOOMKilled): // whatever its status was
	case t.Exit != nil && *t.Exit != 0:
		s = fmt.Sprintf("exited %d", *t.Exit)
		if t.State == "timed_out" {
			s = "timed out"
		}
	case t.Signal != "" && t.State == "signaled":
		s = "ended by " + t.Signal
	}
	if t.Leftovers > 0 {
		s += fmt.Sprintf(", %d left", t.Leftovers)
	}
	return s
}
