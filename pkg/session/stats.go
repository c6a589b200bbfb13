package session

import (
	"context"
	"errors"
	"time"
)

// Look is what sessions were at one time. Two of them make rates; taking one is no
// activity in a session.
type Look struct {
	At       time.Time
	Sessions []Info
}

// Stats is what a session uses, between two looks at it. A figure that cannot be
// had here is absent, which differs from 0.
type Stats struct {
	Schema int       `json:"schema"`
	Time   time.Time `json:"time"`
	ID     string    `json:"id"`
	Name   string    `json:"name,omitempty"`
	Parent string    `json:"parent,omitempty"`
	State  string    `json:"state"` // as in Info
	Frozen bool      `json:"frozen"`
	// SpanSeconds is the time between the looks, which CPUPercent is of; both are
	// absent for a session that was not seen before.
	SpanSeconds float64 `json:"span_seconds,omitempty"`
	// CPUPercent is of one processor: 200 is two of them, busy all the time.
	CPUPercent *float64  `json:"cpu_percent,omitempty"`
	Usage      UsageInfo `json:"usage"`
	Running    int       `json:"running"`
	Leftovers  int       `json:"leftovers"`
	Processes  int       `json:"processes"`
}

// Look looks at the sessions with the given ids or, with none, at all that are not
// closed. One that was closed meanwhile is left out.
func (m *Manager) Look(ctx context.Context, ids ...string) (Look, error) {
	l := Look{At: time.Now()}
	if len(ids) == 0 {
		all, err := m.list(ctx, InspectOptions{Limit: true})
		l.Sessions = all
		return l, err
	}
	for _, id := range ids {
		i, err := m.Inspect(ctx, id, InspectOptions{Limit: true})
		if errors.Is(err, ErrNotFound) || errors.Is(err, ErrClosed) {
			continue
		}
		if err != nil {
			return l, err
		}
		l.Sessions = append(l.Sessions, i)
	}
	return l, ctx.Err()
}

// Stats are the figures of the later look, with rates since the one before, which
// may be the zero one.
func (l Look) Stats(before Look) []Stats {
	was := map[string]*Info{}
	for i := range before.Sessions {
		was[before.Sessions[i].ID] = &before.Sessions[i]
	}
	all := make([]Stats, len(l.Sessions))
	for i := range l.Sessions {
		in := &l.Sessions[i]
		s := Stats{Schema: Schema, Time: l.At.UTC(), ID: in.ID, Name: in.Name, Parent: in.Parent, State: in.State, Frozen: in.Box.Frozen,
			Usage: in.Usage, Running: in.Running, Leftovers: in.Leftovers, Processes: in.Processes}
		now := in.Usage.CPUSeconds
		if w := was[in.ID]; w != nil && w.Box.Inode == in.Box.Inode && now != nil && w.Usage.CPUSeconds != nil {
			span := l.At.Sub(before.At)
			if percent, ok := CPUPercent(*w.Usage.CPUSeconds, *now, span); ok {
				s.CPUPercent, s.SpanSeconds = &percent, span.Seconds()
			}
		}
		all[i] = s
	}
	return all
}

// CPUPercent is how much of one processor was used between two readings of a
// counter, in seconds, that much time apart; false if they make no rate: no time
// has passed, or the counter is another one's.
func CPUPercent(before, now float64, span time.Duration) (percent float64, ok bool) {
	if span <= 0 || now < before {
		return 0, false
	}
	return (now - before) / span.Seconds() * 100, true
}
