package keeper

import (
	"encoding/json"

	"github.com/sessionbox/sessionbox/pkg/darwinjob"
)

// Moved is where a leaf is kept from now on. It is written into the part [MovedPart] of the
// session that had it; its keeper then goes on there.
type Moved struct {
	Sessions []string `json:"sessions"`
	Leaf     string   `json:"leaf"`
	Task     int      `json:"task"`
}

// MovedPrefix begins the names of those parts of a lineage.
const MovedPrefix = "moved-"

// MovedPart is the part of a lineage that says where a leaf is now.
func MovedPart(leaf string) string { return MovedPrefix + leaf }

func (k *keeping) id() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.o.ID()
}

func (k *keeping) leaf() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.o.Leaf
}

// moved reads whether the leaf was given to another session.
func (k *keeping) moved() (to Moved, ok bool) {
	b, err := k.st.LineagePart(k.id(), MovedPart(k.leaf()))
	if err != nil || b == nil || json.Unmarshal(b, &to) != nil || len(to.Sessions) == 0 {
		return Moved{}, false
	}
	return to, true
}

// follow goes on in the session that the leaf was given to.
func (k *keeping) follow() {
	to, ok := k.moved()
	if !ok {
		k.restore()
		return
	}
	former := k.id()
	from := k.adopt(to)
	_ = k.st.RemoveLineage(former, from) // it may have been written once more meanwhile
	k.job.Rename(k.id(), from, to.Leaf)
	_ = k.save(k.job.Ledger())
}

// restore writes down again what is gone from the records of a session that has them still, or
// has new ones.
func (k *keeping) restore() {
	if b, err := k.st.LineagePart(k.id(), k.leaf()); err == nil && b == nil {
		_ = k.save(k.job.Ledger())
	}
}

// adopt takes over the new names, and gives the former leaf.
func (k *keeping) adopt(to Moved) (from string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	from = k.o.Leaf
	k.o.Sessions, k.o.Leaf, k.o.Task, k.kept = to.Sessions, to.Leaf, to.Task, true
	return from
}

// save writes the ledger down where the leaf is now.
func (k *keeping) save(l *darwinjob.Ledger) error {
	if to, ok := k.moved(); ok {
		former := k.id()
		from := k.adopt(to)
		_ = k.st.RemoveLineage(former, from)
		l.Rename(k.id(), from, to.Leaf)
	}
	b, err := l.Encode()
	if err != nil {
		return err
	}
	return k.st.PutLineage(k.id(), k.leaf(), b)
}
