package render

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// Event writes one event as a line.
func Event(w io.Writer, e *store.Event, st Style) error {
	who := e.Name
	if who == "" {
		who = e.ID
	}
	if e.Task != 0 {
		who += "/" + strconv.Itoa(e.Task)
	}
	line := fmt.Sprintf("%s %-12s %s", e.Time.Local().Format(time.DateTime), Clean(e.Event), Clean(who))
	if d := eventDetail(e); d != "" {
		line += "  " + d
	}
	if st.cut() {
		line = fit(line, st.Width)
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

// eventDetail says in words what the kinds that we know carry.
func eventDetail(e *store.Event) string {
	if e.Msg != "" {
		return Clean(e.Msg)
	}
	if len(e.Detail) == 0 {
		return ""
	}
	if e.Event == session.EventClosed {
		var r session.Receipt
		if json.Unmarshal(e.Detail, &r) == nil {
			return strings.TrimPrefix(ReceiptLine(&r), "closed "+receiptName(&r)+": ")
		}
	}
	var d struct {
		Argv      []string `json:"argv"`
		State     string   `json:"state"`
		Exit      *int     `json:"exit"`
		Leftovers int      `json:"leftovers"`
		Reason    string   `json:"reason"`
		Processes int      `json:"processes"`
	}
	if json.Unmarshal(e.Detail, &d) != nil {
		return ""
	}
	switch {
	case len(d.Argv) > 0:
		return Command(d.Argv, true)
	case d.State != "":
		t := session.TaskInfo{State: d.State, Exit: d.Exit, Leftovers: d.Leftovers}
		if d.Exit != nil && *d.Exit < 0 {
			t.Exit = nil
		}
		if t.State == string(store.TaskOOMKilled) && d.Reason != "" {
			return TaskState(&t) + ": " + Clean(d.Reason)
		}
		return TaskState(&t)
	case d.Reason != "":
		return Clean(d.Reason)
	}
	return ""
}
