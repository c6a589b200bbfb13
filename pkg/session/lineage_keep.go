package session

import (
	"context"
)

// Enter is refused: who execs in place has no keeper above it, and what it starts could
// not be told from others' once its parent has ended.
func (b *lineageBox) Enter(context.Context, string) error {
	return &Error{Kind: ErrUnsupported, Session: b.rec.ID, Text: "the lineage box cannot be entered in place",
		Hint: "leave out --replace: the command then has a keeper above it"}
}

// Move is refused.
func (b *lineageBox) Move(context.Context, string, int) error { return b.cannotMove() }

func (b *lineageBox) cannotMove() error {
	return &Error{Kind: ErrUnsupported, Session: b.rec.ID, Text: "the lineage box takes in no running processes",
		Hint: "start it in the session: `sessionbox exec`; `exec --keep` starts what is to outlive it"}
}
