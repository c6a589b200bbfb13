package render

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// note is a line below a table: what is wrong with sessions, or unusual.
type note struct {
	mark  string
	paint paint
	text  string
	names []string
}

// notes collects them; sessions with the same trouble share a line.
type notes []note

func (n *notes) add(mark string, p paint, i *session.Info, text string) {
	at := slices.IndexFunc(*n, func(o note) bool { return o.mark == mark && o.text == text })
	if at < 0 {
		*n = append(*n, note{mark: mark, paint: p, text: text})
		at = len(*n) - 1
	}
	(*n)[at].names = append((*n)[at].names, Called(i))
}

// of collects the notes on one session; parentFrozen says that the session
// around it is frozen, and this one with it.
func (n *notes) of(i *session.Info, parentFrozen bool) {
	if closed(i) {
		return
	}
	for _, p := range i.Problems {
		n.add("!", red, i, Clean(p))
	}
	if i.OOM != nil {
		n.add("!", red, i, "out of memory: "+Clean(i.OOM.String()))
	}
	switch {
	case i.Box.Frozen && parentFrozen:
		n.add("*", cyan, i, "frozen with the session around it")
	case i.Box.Hibernated:
		n.add("*", cyan, i, "hibernated; the next exec wakes it, and so does `sessionbox thaw`")
	case i.Box.Frozen:
		n.add("*", cyan, i, "frozen; `sessionbox thaw` lets it run on")
	}
	if len(i.Problems) == 0 {
		switch store.State(i.State) {
		case store.StateClosing:
			n.add("*", yellow, i, "is being closed, or its close was interrupted; `sessionbox close` finishes it")
		case store.StateOpening:
			n.add("*", yellow, i, "is being opened")
		}
	}
	if o := i.OOMPolicy; o != nil && !o.InForce {
		n.add("*", yellow, i, OOMNotInForce(o))
	}
	for _, why := range reasons(i.Limits) {
		n.add("*", yellow, i, NotInForce(why...)+fixOf(&why[0]))
	}
}

// OOMNotInForce says that the kernel cannot be told what to kill.
func OOMNotInForce(o *session.OOMInfo) string {
	return fmt.Sprintf("--oom %s is not in force: %s", o.Policy, o.Why)
}

// reasons groups the ceilings that are not in force by why.
func reasons(all []memlimit.Ceiling) [][]memlimit.Ceiling {
	var groups [][]memlimit.Ceiling
	for _, c := range all {
		if c.InForce {
			continue
		}
		at := slices.IndexFunc(groups, func(g []memlimit.Ceiling) bool { return g[0].Why == c.Why })
		if at < 0 {
			groups = append(groups, nil)
			at = len(groups) - 1
		}
		groups[at] = append(groups[at], c)
	}
	return groups
}

// NotInForce says that ceilings do not hold, and why: it is the same for all.
func NotInForce(all ...memlimit.Ceiling) string {
	what := make([]string, len(all))
	for i, c := range all {
		what[i] = fmt.Sprintf("%s %s", c.File, c.Want)
	}
	verb := "is"
	if len(all) > 1 {
		verb = "are"
	}
	return fmt.Sprintf("%s %s not in force: %s", strings.Join(what, ", "), verb, all[0].Why)
}

// fixOf says how a ceiling that the kernel would have comes to be in force; what it takes
// to have the kernel's control is a matter for doctor.
func fixOf(c *memlimit.Ceiling) string {
	if c.Missing() || c.Fix == "" {
		return ""
	}
	return " (" + c.Fix + ")"
}

// NotInForceLines says it for a list of ceilings, one line for each reason.
func NotInForceLines(all []memlimit.Ceiling) []string {
	var lines []string
	for _, g := range reasons(all) {
		lines = append(lines, NotInForce(g...))
	}
	return lines
}

// mostNames is how many sessions a note names.
const mostNames = 5

func (n notes) write(w io.Writer, st Style, indent string) error {
	for _, l := range n {
		names := l.names
		more := ""
		if k := len(names) - mostNames; k > 0 {
			names, more = names[:mostNames], fmt.Sprintf(" and %d more", k)
		}
		text := fmt.Sprintf("%s %s%s: %s", l.mark, strings.Join(names, ", "), more, l.text)
		if _, err := fmt.Fprintln(w, indent+st.paint(l.paint, text)); err != nil {
			return err
		}
	}
	return nil
}
