package render

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
)

// mostRows is how many processes a receipt lists for people; JSON has all.
const mostRows = 30

// fates counts what became of processes.
type fates struct{ ended, killed, survived, alive int }

func (f *fates) add(list []session.Fated) {
	for i := range list {
		switch list[i].Fate {
		case session.FateEnded:
			f.ended++
		case session.FateKilled:
			f.killed++
		case session.FateSurvived:
			f.survived++
		default:
			f.alive++
		}
	}
}

func (f *fates) all() int { return f.ended + f.killed + f.survived + f.alive }

func fatesOf(r *session.Receipt) fates {
	var f fates
	f.add(r.Processes)
	f.add(r.Strays)
	for i := range r.Nested {
		n := fatesOf(&r.Nested[i])
		f.ended += n.ended
		f.killed += n.killed
		f.survived += n.survived
		f.alive += n.alive
	}
	return f
}

func receiptName(r *session.Receipt) string {
	if r.Name != "" {
		return r.Name
	}
	return r.ID
}

// ReceiptLine is the receipt in one line.
func ReceiptLine(r *session.Receipt) string {
	text, _ := headline(r, time.Now())
	return text
}

func headline(r *session.Receipt, now time.Time) (string, paint) {
	f, name := fatesOf(r), receiptName(r)
	strays := len(r.Strays)
	gone := f.ended + f.killed
	switch {
	case r.AlreadyClosed:
		return fmt.Sprintf("%s was closed %s ago: %s", name, Age(now.Sub(r.Closed)), sentence(f)), plain
	case r.DryRun && f.all() == 0 && withOthers(r) == "":
		return fmt.Sprintf("would close %s: nothing runs in it", name), plain
	case r.DryRun:
		return fmt.Sprintf("would close %s: %s alive%s%s", name, count(f.all(), "process", "processes"), withStrays(strays), withOthers(r)), plain
	case !r.Clean():
		n := survivors(r)
		text := fmt.Sprintf("%s is not closed: %s survived", name, count(n, "process", "processes"))
		if n == 0 {
			text = name + " is not closed"
		}
		if r.Forgotten {
			text += ", and forgotten"
		}
		if gone > 0 {
			text += fmt.Sprintf(", %d ended", gone)
		}
		return text + " in " + Took(r.TookSeconds), red
	}
	text := fmt.Sprintf("closed %s: %s%s%s%s in %s", name, sentence(f), withStrays(strays), withOthers(r), withSuspects(r)+withKept(r), Took(r.TookSeconds))
	if p := r.Usage.PeakBytes; p != nil && *p > 0 {
		text += ", peak " + memlimit.FormatBytes(*p)
	}
	if r.Reason != "" {
		text += " (" + r.Reason + ")"
	}
	if r.Box.Containment == session.BestEffort {
		text += "; best effort"
	}
	return text, plain
}

func survivors(r *session.Receipt) int {
	n := len(r.Survivors)
	for i := range r.Nested {
		n += survivors(&r.Nested[i])
	}
	return n
}

func withStrays(strays int) string {
	if strays == 0 {
		return ""
	}
	return ", " + count(strays, "stray", "strays")
}

// withSuspects counts who was left alone, as nothing proves whose it is.
func withSuspects(r *session.Receipt) string {
	if n := r.Suspected(); n > 0 {
		return ", " + count(n, "suspect", "suspects") + " left alone"
	}
	return ""
}

// withKept counts who lives on in a session of its own.
func withKept(r *session.Receipt) string {
	n := len(r.Kept)
	for i := range r.Nested {
		n += len(r.Nested[i].Kept)
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d kept", n)
}

// withOthers counts what others had started.
func withOthers(r *session.Receipt) string {
	if text := counted(others(r.Containers, r.Units, r.Jobs)); text != "" {
		return ", " + text
	}
	return ""
}

// sentence says what became of how many.
func sentence(f fates) string {
	gone := f.ended + f.killed
	if gone == 0 {
		return "nothing was left running"
	}
	text := count(gone, "process", "processes") + " ended"
	switch {
	case f.killed == 0:
		return text + " (all on SIGTERM)"
	case f.ended == 0:
		return text + " (all killed)"
	}
	return fmt.Sprintf("%s (%d killed, %d on SIGTERM)", text, f.killed, f.ended)
}

// Receipt writes what a close found and did.
func Receipt(w io.Writer, r *session.Receipt, st Style) error { return receipt(w, r, st, "") }

func receipt(w io.Writer, r *session.Receipt, st Style, indent string) error {
	text, p := headline(r, st.Now)
	if indent != "" {
		text = "nested: " + text
	}
	if _, err := fmt.Fprintln(w, indent+st.paint(boldly(p), text)); err != nil {
		return err
	}
	inner := indent + "  "
	if err := processes(w, r, st, inner); err != nil {
		return err
	}
	if err := writeOthers(w, others(r.Containers, r.Units, r.Jobs), st, inner); err != nil {
		return err
	}
	if err := survived(w, r, st, inner); err != nil {
		return err
	}
	for i := range r.Suspects {
		p := &r.Suspects[i]
		text := fmt.Sprintf("suspect: %d %s may be of this session, and was left alone", p.PID, Clean(p.Comm))
		if _, err := fmt.Fprintln(w, inner+st.paint(yellow, text)); err != nil {
			return err
		}
	}
	for i := range r.Served {
		if text := servedText(&r.Served[i], r.DryRun); text != "" {
			if _, err := fmt.Fprintln(w, inner+st.paint(yellow, text)); err != nil {
				return err
			}
		}
	}
	if r.OOM != nil {
		if _, err := fmt.Fprintln(w, inner+st.paint(red, "out of memory: "+Clean(r.OOM.String()))); err != nil {
			return err
		}
	}
	for _, n := range r.Notes {
		if _, err := fmt.Fprintln(w, inner+st.paint(yellow, "note: "+Clean(n))); err != nil {
			return err
		}
	}
	for i := range r.Nested {
		if err := receipt(w, &r.Nested[i], st, inner); err != nil {
			return err
		}
	}
	return nil
}

func boldly(p paint) paint {
	if p == plain {
		return bold
	}
	return p
}

// processes writes the table of what was ended, survivors first, then by task.
func processes(w io.Writer, r *session.Receipt, st Style, indent string) error {
	type row struct {
		*session.Fated
		stray bool
	}
	var rows []row
	for i := range r.Processes {
		rows = append(rows, row{&r.Processes[i], false})
	}
	for i := range r.Strays {
		rows = append(rows, row{&r.Strays[i], true})
	}
	if len(rows) == 0 {
		return nil
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(rank(a.Fate)-rank(b.Fate), cmp.Compare(a.Start, b.Start), a.PID-b.PID)
	})
	var rest []row
	if len(rows) > mostRows && !st.Whole {
		rows, rest = rows[:mostRows-1], rows[mostRows-1:]
	}
	t := table{indent: indent, columns: []column{{"PID", true}, {"AGE", true}, {"HOW", false}, {"TASK", false}, {"WHAT", false}}}
	for _, f := range rows {
		t.add(cell{text: strconv.Itoa(f.PID)}, cell{text: ageSeconds(f.AgeSeconds)}, fateCell(f.Fate),
			cell{text: taskName(f.Task)}, what(notOwn(&f.Process, r.Tasks), f.stray, st))
	}
	if err := t.write(w, st); err != nil || len(rest) == 0 {
		return err
	}
	names := map[string]int{}
	for _, f := range rest {
		names[Clean(f.Comm)]++
	}
	_, err := fmt.Fprintln(w, indent+st.paint(dim, fit(fmt.Sprintf("and %d more: %s", len(rest), tally(names)), cutWidth(st, indent))))
	return err
}

func cutWidth(st Style, indent string) int {
	if !st.cut() {
		return 0
	}
	return max(20, st.Width-width(indent))
}

// tally writes "12 × node, 3 × sh", the most frequent first.
func tally(names map[string]int) string {
	list := make([]string, 0, len(names))
	for n := range names {
		list = append(list, n)
	}
	slices.SortFunc(list, func(a, b string) int { return cmp.Or(names[b]-names[a], cmp.Compare(a, b)) })
	parts := make([]string, 0, 6)
	for i, n := range list {
		if i == 5 {
			parts = append(parts, "…")
			break
		}
		parts = append(parts, fmt.Sprintf("%d × %s", names[n], n))
	}
	return strings.Join(parts, ", ")
}

func rank(fate string) int {
	if fate == session.FateSurvived {
		return 0
	}
	return 1
}

func fateCell(fate string) cell {
	switch fate {
	case session.FateKilled:
		return cell{text: "killed", paint: yellow}
	case session.FateSurvived:
		return cell{text: "survived", paint: red}
	case session.FateEnded:
		return cell{text: "ended", paint: green}
	}
	return cell{text: Clean(fate)}
}

func taskName(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

// notOwn takes the mark off a task's own command in the background: that one has
// a session of its own because we gave it one.
func notOwn(p *session.Process, tasks []session.TaskInfo) *session.Process {
	for i := range tasks {
		if t := &tasks[i]; t.Detached && t.PID == p.PID && t.Start == p.Start && p.Escaped == "setsid" {
			own := *p
			own.Escaped = ""
			return &own
		}
	}
	return p
}

// what is the command with its marks: how it had left the reach of process-group
// cleaners, and the ports it held.
func what(p *session.Process, stray bool, st Style) cell {
	argv := p.Argv
	if len(argv) == 0 {
		argv = []string{p.Comm}
	}
	return cell{text: Command(argv, !st.Whole), tail: marks(p, stray)}
}

func marks(p *session.Process, stray bool) string {
	var all []string
	if stray {
		all = append(all, "stray")
	}
	if p.Escaped != "" {
		all = append(all, p.Escaped)
	}
	if ports := portList(p.Ports); ports != "" {
		all = append(all, ports)
	}
	if len(all) == 0 {
		return ""
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// survived says of each survivor what it waits for.
func survived(w io.Writer, r *session.Receipt, st Style, indent string) error {
	for _, s := range r.Survivors {
		text := fmt.Sprintf("%d %s survived: state %s", s.PID, Clean(s.Comm), stateName(s.State))
		if s.Wchan != "" {
			text += ", waits in " + Clean(s.Wchan)
		}
		if s.UID > 0 {
			text += fmt.Sprintf(", of user %d", s.UID)
		}
		if _, err := fmt.Fprintln(w, indent+st.paint(red, text)); err != nil {
			return err
		}
	}
	return nil
}

// stateName says what a letter of ps means, where it is not plain.
func stateName(s string) string {
	switch s {
	case "D":
		return "D (uninterruptible)"
	case "Z":
		return "Z (ended, not collected)"
	case "T", "t":
		return s + " (stopped)"
	}
	return Clean(s)
}

// History writes receipts one per line.
func History(w io.Writer, all []session.Receipt, st Style) error {
	t := table{columns: []column{{"CLOSED", false}, {"NAME", false}, {"ID", false}, {"OPEN", true}, {"TASKS", true}, {"ENDED", true},
		{"KILLED", true}, {"PEAK", true}, {"NOTE", false}}}
	for i := range all {
		r := &all[i]
		f := fatesOf(r)
		name := r.Name
		if name == "" {
			name = "-"
		}
		if st.cut() {
			name = fit(name, nameWidth)
		}
		peak := cell{text: "-", paint: dim}
		if p := r.Usage.PeakBytes; p != nil {
			peak = cell{text: memlimit.FormatBytes(*p)}
		}
		t.add(cell{text: r.Closed.Local().Format("2006-01-02 15:04:05")}, cell{text: name, paint: bold}, cell{text: r.ID, paint: dim},
			cell{text: ageSeconds(r.AgeSeconds)}, cell{text: strconv.Itoa(len(r.Tasks))}, number(f.ended, false, green), number(f.killed, false, yellow), peak,
			cell{text: remarks(r), paint: dim})
	}
	return t.write(w, st)
}

func remarks(r *session.Receipt) string {
	var all []string
	if n := len(r.Strays); n > 0 {
		all = append(all, count(n, "stray", "strays"))
	}
	if n := len(r.Nested); n > 0 {
		all = append(all, fmt.Sprintf("%d nested", n))
	}
	if r.OOM != nil {
		all = append(all, fmt.Sprintf("%d out of memory", r.OOM.Processes))
	}
	if r.Resumed {
		all = append(all, "resumed")
	}
	if n := survivors(r); n > 0 {
		all = append(all, fmt.Sprintf("%d survived", n))
	}
	return strings.Join(all, ", ")
}
