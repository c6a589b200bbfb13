package render

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// Row is a session in a list.
type Row struct {
	session.Info
	// Left are processes that outlived their command, for a session that has no
	// command running.
	Left []session.Process
}

// List writes the table of sessions, with a note for each that needs one.
func List(w io.Writer, rows []Row, st Style) error {
	t := table{columns: []column{{"NAME", false}, {"ID", false}, {"AGE", true}, {"BOX", false}, {"RUN", true},
		{"LEFT", true}, {"MEM", true}, {"COMMAND", false}}}
	ids := shortIDs(rows, st)
	var notes notes
	frozen := map[string]bool{}
	for i := range rows {
		frozen[rows[i].ID] = rows[i].Box.Frozen
	}
	for i := range rows {
		r := &rows[i]
		notes.of(&r.Info, frozen[r.Parent])
		t.add(nameCell(&r.Info, st), cell{text: ids[i], paint: dim}, ageCell(&r.Info), boxCell(&r.Info),
			runCell(r), leftCell(r), memCell(&r.Info), commandCell(r, st))
	}
	if err := t.write(w, st); err != nil {
		return err
	}
	return notes.write(w, st, "")
}

func ageCell(i *session.Info) cell {
	if i.State == session.StateBroken {
		return cell{text: "-", paint: dim}
	}
	return cell{text: ageSeconds(i.AgeSeconds)}
}

func closed(i *session.Info) bool { return i.State == string(store.StateClosed) }

// Called is a session's name or, when it has none, its id.
func Called(i *session.Info) string {
	if i.Name != "" {
		return i.Name
	}
	return i.ID
}

const nameWidth = 24

func nameCell(i *session.Info, st Style) cell {
	c := cell{text: i.Name, paint: bold}
	switch {
	case len(i.Problems) > 0 || i.State == session.StateBroken || i.Box.Gone && !closed(i):
		c.paint = red
	case i.Box.Frozen:
		c.paint = cyan
	case closed(i):
		c.paint = dim
	}
	if c.text == "" {
		c.text, c.paint = "-", dim
	}
	if st.cut() {
		c.text = fit(c.text, nameWidth)
	}
	if mark := markOf(i); mark != "" {
		c.text += mark
	}
	return c
}

// markOf points to the note below the table.
func markOf(i *session.Info) string {
	switch {
	case closed(i):
		return ""
	case len(i.Problems) > 0 || i.State == session.StateBroken || i.OOM != nil:
		return "!"
	case i.Box.Frozen, i.State != string(store.StateOpen), slices.ContainsFunc(i.Limits, func(c memlimit.Ceiling) bool { return !c.InForce }):
		return "*"
	}
	return ""
}

func boxCell(i *session.Info) cell {
	switch {
	case closed(i):
		return cell{text: "closed", paint: dim}
	case i.State == session.StateBroken:
		return cell{text: "broken", paint: red}
	case i.Box.Gone:
		return cell{text: "gone", paint: red}
	case i.Box.Hibernated:
		return cell{text: "hibernated", paint: cyan}
	case i.Box.Frozen:
		return cell{text: "frozen", paint: cyan}
	case i.State != string(store.StateOpen):
		return cell{text: i.State, paint: yellow}
	}
	if c := i.Box.Containment; c == session.ByCoalition || c == session.BestEffort {
		return cell{text: i.Box.Kind + " (" + c + ")"}
	}
	return cell{text: i.Box.Kind}
}

func runCell(r *Row) cell { return number(r.Running, closed(&r.Info), green) }

func leftCell(r *Row) cell { return number(r.Leftovers, closed(&r.Info), yellow) }

func number(n int, none bool, p paint) cell {
	if none || n == 0 {
		return cell{text: "-", paint: dim}
	}
	return cell{text: strconv.Itoa(n), paint: p}
}

// memCell is the memory used, or what a closed session used at most; red near
// its ceiling.
func memCell(i *session.Info) cell {
	use := i.Usage.MemoryBytes
	if closed(i) {
		use = i.Usage.PeakBytes
	}
	if use == nil || *use == 0 {
		return cell{text: "-", paint: dim}
	}
	c := cell{text: memlimit.FormatBytes(*use)}
	for _, l := range i.Limits {
		if l.File == "memory.max" && l.InForce {
			if full, ok := l.Value.Value(); ok && *use >= full/10*8 {
				c.paint = red
			}
		}
	}
	if closed(i) {
		c.paint = dim
	}
	return c
}

// commandCell is the command that was started last of those that run or, when
// none does, what is left over; with the ports that are held.
func commandCell(r *Row, st Style) cell {
	c := cell{tail: portList(r.Ports)}
	short := !st.Whole
	var running []*session.TaskInfo
	for k := range r.Tasks {
		if live(r.Tasks[k].State) {
			running = append(running, &r.Tasks[k])
		}
	}
	more := 0
	switch {
	case closed(&r.Info):
		c.paint = dim
		if r.Closed != nil {
			c.text = "closed " + Age(st.Now.Sub(*r.Closed)) + " ago"
		}
	case len(running) > 0:
		last := running[len(running)-1]
		c.text, more = Command(last.Argv, short), len(running)-1
	case len(r.Left) > 0:
		c.text, c.paint, more = Command(r.Left[0].Argv, short), yellow, len(r.Left)-1
	case r.Leftovers > 0:
		c.text, c.paint = count(r.Leftovers, "process", "processes"), yellow
	default:
		c.text, c.paint = "-", dim
	}
	if more > 0 {
		c.tail = strings.TrimSpace(fmt.Sprintf("+%d more %s", more, c.tail))
	}
	if text := counted(others(r.Containers, r.Units, r.Jobs)); text != "" {
		c.tail = strings.TrimSpace("+" + text + " " + c.tail)
	}
	return c
}

func live(state string) bool {
	switch store.TaskState(state) {
	case store.TaskRunning, store.TaskStarting, store.TaskOrphaned:
		return true
	}
	return false
}

// portList writes ports as ":3000 :3001", each number once.
func portList(ports []session.Port) string {
	var all []string
	for _, p := range ports {
		s := ":" + strconv.Itoa(p.Port)
		if strings.HasPrefix(p.Proto, "udp") {
			s += "/udp"
		}
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	if len(all) > 4 {
		all = append(all[:4], "…")
	}
	return strings.Join(all, " ")
}

const shortID = 4

// shortIDs gives the ids, on a narrow terminal as short as they are unique: a
// prefix is enough to name a session.
func shortIDs(rows []Row, st Style) []string {
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	if !st.narrow() {
		return ids
	}
	longest := shortID
	sorted := slices.Sorted(slices.Values(ids))
	for i := 1; i < len(sorted); i++ {
		a, b, n := sorted[i-1], sorted[i], 0
		for n < len(a) && n < len(b) && a[n] == b[n] {
			n++
		}
		longest = max(longest, n+1)
	}
	for i, id := range ids {
		ids[i] = id[:min(longest, len(id))]
	}
	return ids
}
