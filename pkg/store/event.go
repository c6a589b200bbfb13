package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Event is one line of the history.
type Event struct {
	Schema int       `json:"schema"`            // set by Append
	Time   time.Time `json:"time"`              // set by Append if zero; stored in UTC
	Event  string    `json:"event"`             // what happened: "opened", "closed", …
	ID     string    `json:"session,omitempty"` // id of the session
	Name   string    `json:"name,omitempty"`    // its name
	Task   int       `json:"task,omitempty"`    // number of the task it is about
	Boot   string    `json:"boot,omitempty"`    // boot id, to tell reboots apart
	UID    int       `json:"uid"`               // who did it; set by Append
	PID    int       `json:"pid,omitempty"`     // the process it is about
	Msg    string    `json:"msg,omitempty"`     // for people
	// Detail is whatever belongs to this kind of event, a JSON object.
	Detail json.RawMessage `json:"detail,omitempty"`

	// Extra holds unknown fields, as in Session.
	Extra map[string]json.RawMessage `json:"-"`
}

// MarshalJSON writes the event as it is stored, Extra included.
func (e Event) MarshalJSON() ([]byte, error) { return encodeRecord(eventLayout(), &e, e.Extra) }

// UnmarshalJSON reads a stored event.
func (e *Event) UnmarshalJSON(b []byte) error {
	var out Event
	extra, err := decodeRecord(eventLayout(), b, &out)
	if err != nil {
		return err
	}
	out.Extra = extra
	*e = out
	return nil
}

// parseEvent reads one line. Events of newer schemas are read for what this
// version knows of them: an audit trail must not end at an update.
func parseEvent(line []byte) (Event, error) {
	var e Event
	if err := e.UnmarshalJSON(line); err != nil {
		return Event{}, err
	}
	if e.Schema < 1 || e.Event == "" || e.Time.IsZero() {
		return Event{}, fmt.Errorf("no event: schema %d, event %q, time %v", e.Schema, e.Event, e.Time)
	}
	return e, nil
}

// Filter chooses events; its zero value chooses all. What is set must all hold.
type Filter struct {
	Since   time.Time // not before
	Until   time.Time // before
	Session string    // an id or a name, exactly
	Task    int
	Events  []string // any of these kinds
	Limit   int      // the newest so many; not for Follow
}

func (f Filter) fits(e Event) bool {
	return (f.Since.IsZero() || !e.Time.Before(f.Since)) &&
		(f.Until.IsZero() || e.Time.Before(f.Until)) &&
		(f.Session == "" || f.Session == e.ID || f.Session == e.Name) &&
		(f.Task == 0 || f.Task == e.Task) &&
		(len(f.Events) == 0 || slices.Contains(f.Events, e.Event))
}
