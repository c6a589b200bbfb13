package cli

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/render"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// sayWarnings says on stderr what a guard warns of that concerns the session, and what
// it does to it, until ctx is done.
func (a *app) sayWarnings(ctx context.Context, m *session.Manager, s *session.Session) {
	f := store.Filter{Events: []string{session.EventMemoryWarning, session.EventMemoryAction}, Since: time.Now()}
	for e, err := range m.Follow(ctx, f) {
		if err != nil || !concerns(&e, s.ID()) {
			continue // a line that cannot be read costs that line
		}
		if a.json {
			a.jsonLine(&e)
		} else {
			a.say("memory: %s", render.Clean(e.Msg))
		}
	}
}

// concerns says whether an event is of a session, or a warning of what is around it that
// names it. What is for the record only is left out.
func concerns(e *store.Event, id string) bool {
	if e.Event == session.EventMemoryAction {
		return e.ID == id
	}
	var w memlimit.Warning
	if json.Unmarshal(e.Detail, &w) != nil || w.Level < memlimit.Warn && w.Was < memlimit.Warn || w.Change == memlimit.Eased {
		return false
	}
	return e.ID == id || slices.ContainsFunc(w.Sessions, func(h memlimit.Hog) bool { return h.ID == id })
}
