package darwinjob

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
)

// Lineage is one session's processes: a ledger, and the table that it is kept by.
// Its methods may be called from several goroutines.
type Lineage struct {
	t Table
	o Options

	mu     sync.Mutex
	l      *Ledger
	read   seen
	dirty  bool           // what was last handed out was not written down
	denied map[ID]bool    // kill said that they are another user's
	live   map[ID]*Node   // members that were alive when last seen
	stood  map[ID]bool    // whom we have sent SIGSTOP
	shield map[int]string // who must not be signalled, as of the last reading
	shared map[ID]bool    // reapers that another session has as well: what they hold is not ours alone
}

// Options of a [Lineage]; the zero value is meant to be used.
type Options struct {
	// Rivals gives the ledgers of the other sessions, for processes that two claim.
	Rivals func() []*Ledger
	// Changed is called with the ledger whenever a reading showed someone new, before
	// anything is done about it; it is written down there. What it returns is returned
	// by who did the reading, except by a kill, which needs no record.
	Changed func(*Ledger) error
	// Inside says that the caller may be a member itself. It is not counted then, and of
	// the others those that descend from a root are ended although the caller descends
	// from them, or is in their process group: somebody closes the session that he is in.
	Inside bool
	// Helper says of a process that it is one of the tracker's own which serves another session
	// or another leaf than the one that is looked at, "" for all: it is no member, and what it
	// started is none for being its child.
	Helper func(p *Proc, leaf string) bool
	// Last says of a member of a job that it is one of the tracker's own, which keeps others of it:
	// it is not signalled before all of them are gone, and then given a moment to end by itself.
	Last func(p *Proc) bool
	// Reaper says that the caller is the one to whom the session's orphans are given.
	Reaper bool
	// FreezeFor bounds the search for a standstill before a kill (5 s), KillFor the time
	// until all has to be gone after it (3 s).
	FreezeFor, KillFor time.Duration
	// Settle is the least time between two readings that prove a standstill (10 ms):
	// a thread that is in fork when its process is stopped still finishes it. Apart is
	// that between two readings that prove that nobody is left (50 ms).
	Settle, Apart time.Duration
}

// New is a lineage of what the ledger says; the ledger is the lineage's from then on.
func New(t Table, l *Ledger, o Options) *Lineage {
	def := func(d *time.Duration, is time.Duration) {
		if *d == 0 {
			*d = is
		}
	}
	def(&o.FreezeFor, 5*time.Second)
	def(&o.KillFor, 3*time.Second)
	def(&o.Settle, 10*time.Millisecond)
	def(&o.Apart, 50*time.Millisecond)
	return &Lineage{t: t, l: l, o: o, denied: map[ID]bool{}, live: map[ID]*Node{}, stood: map[ID]bool{}}
}

// Picture is one look at a session.
type Picture struct {
	// Members are alive, or zombies that nobody has collected yet.
	Members []*Member
	// Suspects were looked for if that was asked.
	Suspects []Suspect
	Joined   int
	Snapshot *Snapshot
}

// Alive are the living members of a leaf, or all with leaf "".
func (p *Picture) Alive(leaf string) []*Member {
	var ms []*Member
	for _, m := range p.Members {
		if m.alive() && (leaf == "" || m.Leaf == leaf) {
			ms = append(ms, m)
		}
	}
	return ms
}

// Look reads the process table and records who is new. With deep, the marks of
// strangers are read as well, which costs a few system calls for each.
func (j *Lineage) Look(ctx context.Context, deep bool) (*Picture, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p, err := j.look(ctx, "", deep)
	if err == nil && (p.Joined > 0 || j.dirty) {
		err = j.changed()
	}
	return p, err
}

// Shared says whether another session has the same reaper, as of the last reading: a move from
// the one to the other was broken off.
func (j *Lineage) Shared(reaper ID) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.shared[reaper]
}

func (j *Lineage) changed() error {
	if j.o.Changed == nil {
		return nil
	}
	err := j.o.Changed(j.l)
	j.dirty = err != nil
	return err
}

func (j *Lineage) look(ctx context.Context, leaf string, deep bool) (*Picture, error) {
	s, err := j.t.List(ctx)
	if err != nil {
		return nil, err
	}
	v, err := j.l.Observe(s)
	if err != nil {
		return nil, err
	}
	p := &Picture{Snapshot: s}
	if deep {
		p.Suspects = v.search(j.t, &j.read)
		j.read.forget(v)
	}
	if j.o.Rivals != nil && len(v.Members)+len(j.l.Reapers) > 0 {
		rivals := j.o.Rivals()
		j.shared = map[ID]bool{}
		for _, r := range rivals {
			for _, k := range r.Reapers {
				j.shared[k.ID] = j.shared[k.ID] || j.l.rivals(r)
			}
		}
		for _, m := range v.yield(rivals) {
			p.Suspects = append(p.Suspects, Suspect{Proc: m.Proc, Score: m.Score, Evidence: m.Evidence, Why: "two sessions claim it"})
		}
	}
	if j.o.Helper != nil {
		v.Members = slices.DeleteFunc(v.Members, func(m *Member) bool { return m.alive() && j.o.Helper(&m.Proc, leaf) })
	}
	if j.o.Inside {
		v.unshield()
	}
	p.Members, p.Joined = v.Members, len(v.Joined)
	j.live, j.shield = map[ID]*Node{}, v.shield
	for _, m := range p.Alive("") {
		j.live[m.ID] = m.node
	}
	return p, nil
}

// AddRoot takes a process in that was started, or adopted, as a leaf's first, see
// [Ledger.AddRoot].
func (j *Lineage) AddRoot(pid int, leaf string) (ID, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p, err := j.t.Lookup(pid)
	if err != nil {
		return ID{}, err
	}
	j.l.AddRoot(p, leaf)
	return p.ID, j.changed()
}

// Encode is the ledger as it is now.
func (j *Lineage) Encode() ([]byte, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.l.Encode()
}

// Signal sends sig once to each living member of a leaf, parents first, and says to
// how many.
func (j *Lineage) Signal(ctx context.Context, leaf string, sig syscall.Signal) (int, error) {
	j.mu.Lock()
	p, err := j.look(ctx, leaf, true)
	if err == nil && p.Joined > 0 {
		err = j.changed()
	}
	j.mu.Unlock()
	if err != nil {
		return 0, err
	}
	n := 0
	var failed error
	for _, m := range topDown(p.Alive(leaf)) {
		if m.Shield != "" || j.isOwn(m) {
			continue
		}
		err := j.t.Signal(m.ID, sig)
		switch {
		case err == nil:
			n++
		case !gone(err):
			failed = errors.Join(failed, err)
		}
	}
	return n, failed
}

// isOwn says of a member of a job that it is the stub, or one of [Options.Last].
func (j *Lineage) isOwn(m *Member) bool {
	return j.isStub(m) || j.l.Mode == Job && j.o.Last != nil && j.o.Last(&m.Proc)
}

func (j *Lineage) isStub(m *Member) bool { return j.l.Stub.proven() && j.l.Stub.Same(m.ID) }

// gone says that there is no such process any more.
func gone(err error) bool { return errors.Is(err, proc.ErrGone) || errors.Is(err, proc.ErrReused) }

// reach are the members that can be signalled, and are not ours to keep.
func (j *Lineage) reach(ms []*Member) []*Member {
	return slices.DeleteFunc(slices.Clone(ms), func(m *Member) bool {
		return m.Shield != "" || j.isOwn(m) || j.denied[m.ID]
	})
}

// send signals a member and remembers who is another user's.
func (j *Lineage) send(m *Member, sig syscall.Signal) {
	switch err := j.t.Signal(m.ID, sig); {
	case errors.Is(err, fs.ErrPermission):
		j.denied[m.ID] = true
	case err == nil && sig == syscall.SIGSTOP:
		j.stood[m.ID] = true
	}
}
