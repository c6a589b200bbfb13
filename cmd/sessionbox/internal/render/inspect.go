package render

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// Inspect writes all that is known of a session.
func Inspect(w io.Writer, i *session.Info, st Style) error {
	b := bufio.NewWriter(w)
	field := func(name, format string, args ...any) {
		fmt.Fprintf(b, "%s  %s\n", st.paint(dim, fmt.Sprintf("%-9s", name)), fmt.Sprintf(format, args...))
	}
	if i.Name != "" {
		field("name", "%s", st.paint(bold, i.Name))
	}
	field("id", "%s", i.ID)
	field("state", "%s", stateText(i, st))
	if !i.Created.IsZero() {
		field("opened", "%s (%s ago)", i.Created.Local().Format(time.DateTime), ageSeconds(i.AgeSeconds))
	}
	for _, k := range slices.Sorted(maps.Keys(i.Labels)) {
		field("label", "%s=%s", Clean(k), Clean(i.Labels[k]))
	}
	if i.Parent != "" {
		field("inside", "%s", i.Parent)
	}
	if i.Owner != nil {
		field("owner", "%s", Clean(OwnerText(i.Owner)))
	}
	if len(i.KeptFrom) > 0 {
		field("kept from", "%s", strings.Join(i.KeptFrom, ", "))
	}
	if d := i.Idle; d != nil {
		field("idle", "%s of %s, then %s", idleText(d), Took(d.TimeoutSeconds), d.Action)
	}
	if d := i.MemoryWatch; d != nil {
		field("watched", "%s", Clean(watchText(d)))
	}
	field("box", "%s", boxText(i))
	if c := i.Container; c != nil {
		field("container", "%s, bundle %s%s", Clean(filepath.Base(c.Runtime)), Clean(c.Bundle), map[bool]string{false: ", " + st.paint(red, "ended")}[c.Running])
	}
	if i.Strict != nil {
		for _, d := range i.Strict.Doors {
			if d.Closed {
				field("closed", "%s: %s", d.Name, Clean(d.Text))
			} else {
				field("open", "%s", st.paint(yellow, d.Name+": "+Clean(d.Text)))
			}
		}
	}
	for _, why := range i.Box.MayEscape {
		field("escapes", "%s", why)
	}
	if i.Box.Path != "" {
		field("path", "%s", Clean(i.Box.Path))
	}
	if i.Cwd != "" {
		field("cwd", "%s", Clean(i.Cwd))
	}
	if i.TmpDir != "" {
		field("tmp", "%s", Clean(i.TmpDir))
	}
	field("grace", "%v", time.Duration(i.Grace*float64(time.Second)))
	field("memory", "%s", memoryText(&i.Usage))
	if c := i.Usage.CPUSeconds; c != nil {
		field("cpu", "%s", Took(*c))
	}
	if n := i.Usage.OOMKills; i.OOM != nil {
		field("oom", "%s", st.paint(red, Clean(i.OOM.String())))
	} else if n != nil && *n > 0 {
		field("oom", "%s", st.paint(red, count(int(*n), "process", "processes")+" killed for want of memory"))
	}
	for _, c := range i.Limits {
		field("ceiling", "%s", Ceiling(c, st))
	}
	if o := i.OOMPolicy; o != nil && o.InForce {
		field("on oom", "%s", "the kernel kills "+map[string]string{"task": "the whole task", "process": "the process that holds most"}[o.Policy])
	} else if o != nil {
		field("on oom", "%s", st.paint(yellow, OOMNotInForce(o)))
	}
	for _, p := range i.Ports {
		field("port", "%s %s by %d", p.Proto, portAddress(p), p.PID)
	}
	field("processes", "%d, of them %s", i.Processes, st.paint(leftPaint(i.Leftovers), fmt.Sprintf("%d left over", i.Leftovers)))
	for k := range i.Served {
		s := &i.Served[k]
		field("serves", "%s (%d) at %s: %s", Clean(s.Comm), s.PID, Clean(s.Socket), Clients(s))
	}
	for _, o := range others(i.Containers, i.Units, i.Jobs) {
		text := o.name + ", " + o.what
		if o.fate == session.FateSuspect {
			text += ": " + o.why
		} else if o.tail != "" {
			text += " [" + o.tail + "]"
		}
		kind := o.kind
		if o.fate == session.FateSuspect {
			kind, text = "suspect", o.kind+" "+text
		}
		field(kind, "%s", Clean(text))
	}
	for _, p := range i.Suspects {
		field("suspect", "%d %s: it may be of this session, and is left alone", p.PID, Clean(p.Comm))
	}
	for _, p := range i.Problems {
		field("problem", "%s", st.paint(red, Clean(p)))
	}
	if err := b.Flush(); err != nil {
		return err
	}
	if len(i.Tasks) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return Tasks(w, i.Tasks, st)
}

// watchText says what is done when memory runs out.
func watchText(d *session.MemoryWatchInfo) string {
	if d.Protected {
		return "memory: nothing is done to it"
	}
	text := "memory: " + strings.ReplaceAll(d.Steps, ",", ", ")
	if !d.Warn {
		text += " (of this session: no warnings)"
	}
	if d.OnWarn != "" {
		text += "; runs " + d.OnWarn
	}
	if d.Notify != "" {
		text += "; tells the " + d.Notify
	}
	if d.FrozenSeconds != nil {
		text += "; frozen for want of memory for " + Took(*d.FrozenSeconds)
	}
	return text
}

func idleText(d *session.IdleInfo) string {
	if d.InUse {
		return "in use"
	}
	return Took(d.IdleSeconds)
}

func leftPaint(n int) paint {
	if n > 0 {
		return yellow
	}
	return plain
}

func portAddress(p session.Port) string {
	if strings.Contains(p.Address, ":") {
		return "[" + p.Address + "]:" + strconv.Itoa(p.Port)
	}
	return p.Address + ":" + strconv.Itoa(p.Port)
}

func stateText(i *session.Info, st Style) string {
	switch {
	case i.Box.Hibernated:
		return i.State + ", " + st.paint(cyan, "hibernated")
	case i.Box.Frozen:
		return i.State + ", " + st.paint(cyan, "frozen")
	case len(i.Problems) > 0:
		return st.paint(red, i.State)
	}
	return i.State
}

func boxText(i *session.Info) string {
	s := i.Box.Kind
	if i.Box.Unit != "" {
		s += " " + i.Box.Unit
	}
	if i.Box.Gone {
		return s + ", gone"
	}
	switch i.Box.Containment {
	case "":
	case session.BestEffort:
		s += ", " + i.Box.Containment
	default:
		s += ", kept by the " + i.Box.Containment
	}
	return s
}

func memoryText(u *session.UsageInfo) string {
	var parts []string
	add := func(what string, n *uint64) {
		if n != nil {
			parts = append(parts, what+memlimit.FormatBytes(*n))
		}
	}
	add("", u.MemoryBytes)
	add("peak ", u.PeakBytes)
	add("swap ", u.SwapBytes)
	if len(parts) == 0 {
		return "not known"
	}
	s := strings.Join(parts, ", ")
	if u.Source == string(memlimit.TierProcesses) {
		s += " (added up over the processes)"
	}
	return s
}

// Ceiling says what a ceiling is and whether it holds.
func Ceiling(c memlimit.Ceiling, st Style) string {
	if c.InForce {
		return fmt.Sprintf("%s %s, in force", c.File, c.Value)
	}
	return st.paint(yellow, NotInForce(c)+fixOf(&c))
}

// Ceilings writes a table of ceilings.
func Ceilings(w io.Writer, all []memlimit.Ceiling, st Style) error {
	t := table{columns: []column{{"CEILING", false}, {"WANTED", true}, {"VALUE", true}, {"IN FORCE", false}}}
	text := func(s memlimit.Size) cell {
		if !s.IsSet() {
			return cell{text: "-", paint: dim}
		}
		return cell{text: s.String()}
	}
	for _, c := range all {
		force := cell{text: "yes", paint: green}
		if !c.InForce {
			force = cell{text: "no: " + c.Why, paint: yellow}
		}
		t.add(cell{text: c.File}, text(c.Want), text(c.Value), force)
	}
	return t.write(w, st)
}

// Tasks writes a table of tasks.
func Tasks(w io.Writer, tasks []session.TaskInfo, st Style) error {
	t := table{columns: []column{{"TASK", true}, {"STATE", false}, {"PID", true}, {"STARTED", true}, {"TOOK", true}, {"PEAK", true}, {"COMMAND", false}}}
	for i := range tasks {
		k := &tasks[i]
		state := cell{text: TaskState(k)}
		switch {
		case k.State == string(store.TaskOOMKilled):
			state.paint = red
		case k.Leftovers > 0:
			state.paint = yellow
		case live(k.State):
			state.paint = green
		}
		took := cell{text: "-", paint: dim}
		if k.Ended != nil && !k.Started.IsZero() {
			took = cell{text: Took(k.Ended.Sub(k.Started).Seconds())}
		}
		peak := cell{text: "-", paint: dim}
		if k.PeakBytes != nil {
			peak = cell{text: memlimit.FormatBytes(*k.PeakBytes)}
		}
		started := cell{text: "-", paint: dim}
		if !k.Started.IsZero() {
			started = cell{text: Age(st.Now.Sub(k.Started)) + " ago"}
		}
		pid := cell{text: "-", paint: dim}
		if k.PID != 0 {
			pid = cell{text: strconv.Itoa(k.PID)}
		}
		t.add(cell{text: strconv.Itoa(k.N)}, state, pid, started, took, peak, cell{text: Command(k.Argv, !st.Whole)})
	}
	return t.write(w, st)
}
