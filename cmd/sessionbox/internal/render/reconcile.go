package render

import (
	"fmt"
	"io"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// Reconciliation writes what a reconcile found and did, a line for each session, with
// what to do next below.
func Reconciliation(w io.Writer, r *session.Reconciliation, st Style) error {
	if len(r.Sessions) == 0 {
		_, err := fmt.Fprintln(w, "no sessions")
		return err
	}
	t := table{columns: []column{{"NAME", false}, {"ID", false}, {"ACTION", false}, {"RUN", true}, {"LEFT", true}, {"REASON", false}}}
	for i := range r.Sessions {
		s := &r.Sessions[i]
		reason := s.Reason
		if s.Error != "" {
			reason = s.Error
		}
		t.add(nameCell(&s.Info, st), cell{text: s.ID, paint: dim}, actionCell(s, r.DryRun),
			number(s.Running, false, green), number(s.Leftovers, false, yellow), cell{text: Clean(reason)})
	}
	if err := t.write(w, st); err != nil {
		return err
	}
	for i := range r.Sessions {
		s := &r.Sessions[i]
		if s.Next == "" || s.Action == session.ActionEnded {
			continue
		}
		if _, err := fmt.Fprintf(w, "%s: %s\n", Called(&s.Info), st.paint(dim, Clean(s.Next))); err != nil {
			return err
		}
	}
	return nil
}

func actionCell(s *session.Reconciled, dry bool) cell {
	c := cell{text: s.Action}
	switch s.Action {
	case session.ActionNone:
		c.text, c.paint = "-", dim
		return c
	case session.ActionFailed:
		c.paint = red
	case session.ActionSkipped:
		c.paint = dim
	default:
		c.paint = yellow
	}
	if dry && s.Action != session.ActionSkipped {
		c.text = "(" + c.text + ")"
	}
	return c
}

// OwnerText says on whose behalf a session exists.
func OwnerText(o *session.OwnerInfo) string {
	what := fmt.Sprintf("process %d", o.PID)
	if len(o.Command) > 0 {
		what += " (" + Command(o.Command, true) + ")"
	}
	if o.PID == 0 {
		what = fmt.Sprintf("a lease of %s", Took(o.LeaseSeconds))
	}
	switch {
	case o.State == session.OwnerGone && o.PID == 0:
		what += ", not renewed"
	case o.PID == 0:
		what += fmt.Sprintf(", %s left", Took(o.RemainingSeconds))
	default:
		what += ", " + o.State
	}
	return what + "; then " + o.OnExit
}
