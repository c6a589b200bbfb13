package tui

import (
	"context"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// Snapshot is what is shown: sessions, and the processes of those that were asked
// for.
type Snapshot struct {
	session.Look
	Alive map[string][]session.Process // by the session's id
}

// Source is where the figures come from and what acts on sessions, named by their
// ids.
type Source interface {
	// Look looks at all sessions, and at the processes of those that are wanted.
	Look(ctx context.Context, wanted func(id string) bool) (Snapshot, error)

	Freeze(ctx context.Context, id string) error
	Thaw(ctx context.Context, id string) error

	// WouldKill lists what Kill would end.
	WouldKill(ctx context.Context, id string, task int) ([]session.Process, error)
	Kill(ctx context.Context, id string, task int) error

	// WouldClose is the receipt that Close would give.
	WouldClose(ctx context.Context, id string) (session.Receipt, error)
	Close(ctx context.Context, id string) (session.Receipt, error)
}
