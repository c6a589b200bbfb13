package keeper

import (
	"encoding/json"
	"os"
	"strings"

	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
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

// inWord is between a leaf and the rest of the name of a part that says who was received in it.
const inWord = "-in-"

// InPart is a part of its own for processes that come into a leaf from elsewhere: each part has
// one writer, and that of the leaf is its keeper.
func InPart(leaf string) string { return leaf + inWord + store.NewID() }

// LeafOf is the leaf that a part is about.
func LeafOf(part string) string {
	leaf, _, _ := strings.Cut(part, inWord)
	return leaf
}

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

// order is what is kept, by the names of now.
func (k *keeping) order() Order {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.o
}

// others says of a process that it serves another session or, of one leaf, any.
func (k *keeping) others(p *darwinjob.Proc, leaf string) bool {
	if p.Comm != k.comm() {
		return false
	}
	ids, ok := Session(proc.Args(p.PID))
	// A name and arguments are anybody's to choose; the program is not.
	return ok && proc.SameProgram(p.PID) && (leaf != "" || ids[len(ids)-1] != k.id())
}

// comm is what the kernel calls our program.
func (k *keeping) comm() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.self == "" {
		if st, err := proc.ReadStat(os.Getpid()); err == nil {
			k.self = st.Comm
		}
	}
	return k.self
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
	if from, done := k.adopt(to); done {
		k.job.Rename(k.id(), from, to.Leaf)
	}
	_ = k.save(k.job.Ledger())
}

// restore writes down again what is gone from the records of a session that has them still, or
// has new ones.
func (k *keeping) restore() {
	if b, err := k.st.LineagePart(k.id(), k.leaf()); err == nil && b == nil {
		_ = k.save(k.job.Ledger())
	}
}

// adopt takes over the new names, removes what was written under the former ones, and gives
// the former leaf. Not done: somebody else of us just did.
func (k *keeping) adopt(to Moved) (from string, done bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	former, from := k.o.ID(), k.o.Leaf
	if former == to.Sessions[len(to.Sessions)-1] {
		return from, false
	}
	_ = k.st.RemoveLineage(former, from) // it may have been written once more meanwhile
	k.o.Sessions, k.o.Leaf, k.o.Task, k.kept = to.Sessions, to.Leaf, to.Task, true
	return from, true
}

// save writes the ledger down where the leaf is now.
func (k *keeping) save(l *darwinjob.Ledger) error {
	k.saving.Lock()
	defer k.saving.Unlock()
	if k.left { // who watches or kills beside has seen somebody before he ended
		return nil
	}
	if to, ok := k.moved(); ok {
		if from, done := k.adopt(to); done {
			l.Rename(k.id(), from, to.Leaf)
		}
	}
	b, err := l.Encode()
	if err != nil {
		return err
	}
	return k.st.PutLineage(k.id(), k.leaf(), b)
}
