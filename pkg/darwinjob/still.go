package darwinjob

import "context"

// listed is a table that is listed once.
type listed struct {
	Table
	s *Snapshot
}

// Still lists a table once, for who looks at many sessions: each look sees that same moment.
// Ledgers that are judged by it must be older.
func Still(t Table) (Table, error) {
	s, err := t.List(context.Background())
	if err != nil {
		return nil, err
	}
	return &listed{Table: t, s: s}, nil
}

func (t *listed) List(ctx context.Context) (*Snapshot, error) { return t.s, ctx.Err() }
