package session

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// EventClosed is the event whose detail is a [Receipt].
const EventClosed = "closed"

// event writes to the history. It is a log: that it cannot be written stops
// nothing.
func (m *Manager) event(e store.Event, detail any) {
	if err := m.appendEvent(e, detail); err != nil {
		m.log.Debug("write to the history", "event", e.Event, "err", err)
	}
}

func (m *Manager) appendEvent(e store.Event, detail any) error {
	if detail != nil {
		b, err := json.Marshal(detail)
		if err != nil {
			return err
		}
		e.Detail = b
	}
	// The writer has a bound of its own for its lock.
	return m.store.Append(context.Background(), e)
}

// History gives the events since a time, oldest first.
func (m *Manager) History(f store.Filter) ([]store.Event, error) {
	page, err := m.store.ReadHistory(f)
	return page.Events, err
}

// Follow gives events as they are written, until ctx is done.
func (m *Manager) Follow(ctx context.Context, f store.Filter) iter.Seq2[store.Event, error] {
	return m.store.Follow(ctx, store.Cursor{}, f)
}

// Receipts gives the receipts of closed sessions since a time, oldest first.
func (m *Manager) Receipts(since time.Time) ([]Receipt, error) {
	events, err := m.History(store.Filter{Since: since, Events: []string{EventClosed}})
	if err != nil {
		return nil, err
	}
	all := make([]Receipt, 0, len(events))
	for _, e := range events {
		var r Receipt
		if json.Unmarshal(e.Detail, &r) == nil && r.ID != "" {
			all = append(all, r)
		}
	}
	return all, nil
}

// recently is how far back a closed session is remembered by name.
const recently = 31 * 24 * time.Hour

// lastReceipt is that of the session of this name or id which closed last.
func (m *Manager) lastReceipt(ref string) (Receipt, bool) {
	all, err := m.Receipts(time.Now().Add(-recently))
	if err != nil {
		return Receipt{}, false
	}
	for _, r := range slices.Backward(all) {
		if r.ID == ref || r.Name == ref {
			return r, true
		}
	}
	return Receipt{}, false
}

func (m *Manager) closedInfos() []Info {
	all, err := m.Receipts(time.Now().Add(-recently))
	if err != nil {
		m.log.Warn("read the history", "err", err)
	}
	infos := make([]Info, 0, len(all))
	for i := range all {
		infos = append(infos, all[i].info())
	}
	return infos
}

// Closed is what the history tells of the session of this name or id which closed last.
func (m *Manager) Closed(ref string) (Info, bool) {
	r, ok := m.lastReceipt(ref)
	return r.info(), ok
}

func (r *Receipt) info() Info {
	return Info{Schema: Schema, ID: r.ID, Name: r.Name, State: string(store.StateClosed),
		Created: r.Opened, AgeSeconds: r.AgeSeconds, Closed: &r.Closed, Box: r.Box, Tasks: r.Tasks,
		Usage: r.Usage, OOM: r.OOM, Limits: []memlimit.Ceiling{}, Ports: []Port{}}
}

// receiptProcesses is how many processes a receipt in the history names: a line
// there has a limit, and the first ones tell what it was.
const receiptProcesses = 60

// appendReceipt writes a receipt to the history, shortened if it is too long.
func (m *Manager) appendReceipt(r *Receipt) error {
	e := store.Event{Event: EventClosed, ID: r.ID, Name: r.Name}
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if len(b) > store.MaxLine-1024 { // what the event itself takes
		return m.appendEvent(e, shortened(*r))
	}
	return m.appendEvent(e, json.RawMessage(b))
}

func shortened(r Receipt) Receipt {
	if more := len(r.Processes) - receiptProcesses; more > 0 {
		r.Processes = r.Processes[:receiptProcesses]
		r.Notes = append(slices.Clone(r.Notes), fmt.Sprintf("%d more processes are left out here", more))
	}
	if more := len(r.Tasks) - receiptProcesses; more > 0 {
		r.Tasks = r.Tasks[more:]
		r.Notes = append(slices.Clone(r.Notes), fmt.Sprintf("%d earlier tasks are left out here", more))
	}
	nested := make([]Receipt, len(r.Nested))
	for i := range r.Nested {
		nested[i] = Receipt{Schema: Schema, ID: r.Nested[i].ID, Name: r.Nested[i].Name, Notes: []string{"its own receipt is in the history"}}
	}
	r.Nested = nested
	return r
}
