package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// What others run for a session: engines, a systemd manager, at and cron.

// other is one of them, whatever its kind.
type other struct {
	kind, name, fate, what, tail, why string
}

func others(cs []session.HiredContainer, us []session.UnitInfo, js []session.JobInfo) []other {
	var all []other
	for i := range cs {
		c := &cs[i]
		o := other{kind: "container", name: c.Engine + " " + cutID(c.ID), fate: c.Fate, what: c.Image, tail: c.By, why: c.Why}
		if c.Name != "" {
			o.name = c.Engine + " " + c.Name
		}
		switch {
		case c.Pod:
			o.kind = "pod"
		case c.ID == "": // it did not say what it has
			o.kind, o.name = "engine", c.At
		}
		all = append(all, o)
	}
	for i := range us {
		u := &us[i]
		all = append(all, other{kind: "unit", name: u.Name, fate: u.Fate, what: u.Command, why: u.Why})
	}
	for i := range js {
		j := &js[i]
		o := other{kind: j.Kind, name: "-", fate: j.Fate, what: j.Line, why: j.Why}
		if j.ID != "" {
			o.name = j.ID
		}
		all = append(all, o)
	}
	return all
}

// servedText says of a daemon that served others what becomes of it. That it was spared
// is among the notes, with where it is now.
func servedText(s *session.Served, dry bool) string {
	what := fmt.Sprintf("%s (%d), which serves %s", Clean(s.Comm), s.PID, Clients(s))
	switch {
	case dry && s.Spared:
		return what + ", would be spared"
	case dry:
		return what + ", would be ended"
	case !s.Spared:
		return what + ", was ended with the session"
	}
	return ""
}

// Clients names who is connected to a daemon.
func Clients(s *session.Served) string {
	all := make([]string, len(s.Clients))
	for i := range s.Clients {
		all[i] = Clean(s.Clients[i].String())
	}
	return strings.Join(all, ", ")
}

func cutID(id string) string { return id[:min(len(id), 12)] }

// counted says how many of each kind there are: "2 containers, 1 unit". Suspects are not
// counted: they are nobody's that we know.
func counted(all []other) string {
	var parts []string
	for _, k := range []struct{ kind, one, many string }{
		{"container", "container", "containers"}, {"pod", "pod", "pods"}, {"unit", "unit", "units"}, {"at", "job of at", "jobs of at"}, {"cron", "line of crontab", "lines of crontab"},
	} {
		n := 0
		for _, o := range all {
			if o.kind == k.kind && o.fate != session.FateSuspect {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, count(n, k.one, k.many))
		}
	}
	return strings.Join(parts, ", ")
}

// writeOthers writes the table of what others started, and what became of it.
func writeOthers(w io.Writer, all []other, st Style, indent string) error {
	if len(all) == 0 {
		return nil
	}
	t := table{indent: indent, columns: []column{{"KIND", false}, {"NAME", false}, {"HOW", false}, {"WHAT", false}}}
	for _, o := range all {
		tail := o.why
		if tail == "" {
			tail = o.tail
		}
		if tail != "" {
			tail = "[" + Clean(tail) + "]"
		}
		name := Clean(o.name)
		if st.cut() {
			name = fit(name, nameWidth)
		}
		t.add(cell{text: o.kind}, cell{text: name}, fateCell(o.fate), cell{text: Clean(o.what), tail: tail})
	}
	return t.write(w, st)
}
