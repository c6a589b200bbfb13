package render

import (
	"fmt"
	"io"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// Doctor writes one line per check and, below it, what would help.
func Doctor(w io.Writer, checks []session.Check, st Style) error {
	longest := 0
	for _, c := range checks {
		longest = max(longest, width(c.Name))
	}
	for _, c := range checks {
		p := green
		switch {
		case c.Status == session.CheckMissing && c.Needed:
			p = red
		case c.Status == session.CheckMissing:
			p = yellow
		case c.Status == session.CheckUnknown:
			p = dim
		}
		status := fmt.Sprintf("%-7s", c.Status)
		if _, err := fmt.Fprintf(w, "%s  %-*s  %s\n", st.paint(p, status), longest, c.Name, Clean(c.Text)); err != nil {
			return err
		}
		if c.Fix != "" {
			if _, err := fmt.Fprintf(w, "%*s  %s\n", longest+9, "", st.paint(dim, "fix: "+Clean(c.Fix))); err != nil {
				return err
			}
		}
	}
	return nil
}
