package darwinjob

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
)

// Report is what a kill found and did.
type Report struct {
	// Ended are the members that were there and are gone now.
	Ended []*Member
	// Survivors are the members that are left, and why.
	Survivors []Survivor
	// Suspects were left alone.
	Suspects []Suspect
	// Frozen says that a standstill was proven before the first was killed: nothing
	// can have been forked meanwhile.
	Frozen bool
	// Empty says that nobody is left as far as can be seen: two readings in a row found
	// no member, or, in Job mode, the kernel's count of the coalition said so.
	Empty bool
	// Readings is how often the process table was read.
	Readings int
	Took     time.Duration
}

// Survivor is a member that is left after a kill.
type Survivor struct {
	*Member
	Why string
}

// Err is nil if nobody is left, else a [*proc.SurvivorsError] that names path.
func (r *Report) Err(path string) error {
	if r.Empty && len(r.Survivors) == 0 {
		return nil
	}
	e := &proc.SurvivorsError{Path: path}
	if len(r.Survivors) == 0 {
		e.Survivors = []proc.Survivor{{Comm: "somebody", State: "?", UID: -1, Wchan: "that nobody is left was not seen in time"}}
	}
	for _, s := range r.Survivors {
		e.Survivors = append(e.Survivors, proc.Survivor{PID: s.PID, Start: s.Start, Comm: s.Comm, State: s.letter(), UID: s.UID, Wchan: s.Why})
	}
	return e
}

func (m *Member) letter() string {
	if m.Wait != "" {
		return m.Wait
	}
	return string(rune(m.State))
}

func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d ended", len(r.Ended))
	for _, s := range r.Survivors {
		fmt.Fprintf(&b, ", %s %s is left: %s", s.Comm, s.ID, s.Why)
	}
	return b.String()
}

// phase of a kill. Each can be entered anew from the ledger alone, so a kill that was
// interrupted is begun again.
type phase int

const (
	freezing  phase = iota // stop all, until proven
	killing                // SIGKILL to the stopped, children first
	verifying              // read until nobody is there, ending who is found
	unstub                 // Job mode: the stub, last
	done
)

// kill under way.
type kill struct {
	j     *Lineage
	leaf  string
	phase phase
	r     *Report
	last  *Picture
	seen  map[ID]*Member
	clean int // readings in a row that found nobody
	blurs int // readings that found nobody but somebody marked, who did not stand still
	looks int // readings since the first was killed
	end   time.Duration
}

// Kill ends all members of a leaf, or of the session with leaf "": it stops them until
// nobody moves, kills children before parents, and reads until twice in a row nobody is
// found. It changes no record but the ledger, and needs none to be written.
//
// The error says that the table could not be read; whether somebody is left is in the
// report.
func (j *Lineage) Kill(ctx context.Context, leaf string) (*Report, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	began := j.t.Clock()
	k := &kill{j: j, leaf: leaf, r: &Report{}, seen: map[ID]*Member{}}
	clear(j.denied)
	var err error
	for k.phase != done && err == nil {
		err = k.step(ctx)
	}
	k.fates()
	k.r.Took = j.t.Clock() - began
	return k.r, err
}

func (k *kill) step(ctx context.Context) (err error) {
	switch k.phase {
	case freezing:
		k.r.Frozen, k.last, err = k.j.freeze(ctx, k.leaf)
		if k.last == nil {
			return err
		}
		k.note(k.last)
		k.phase = killing // also without proof: what is known must end
		return nil
	case killing:
		k.send(ctx, k.last)
		k.phase, k.end = verifying, k.j.t.Clock()+k.j.o.KillFor
		return nil
	case verifying:
		return k.verify(ctx)
	case unstub:
		return k.endStub(ctx)
	}
	return nil
}

// send kills whom a picture shows, and whom they started meanwhile, and says whether
// that was nobody.
func (k *kill) send(ctx context.Context, p *Picture) (nobody bool) {
	shown := bottomUp(k.j.reach(p.Alive(k.leaf)))
	for _, m := range shown {
		k.j.send(m, syscall.SIGKILL)
	}
	met, settled := k.j.chase(ctx, k.leaf, syscall.SIGKILL)
	for _, m := range met {
		if !k.j.isOwn(m) {
			k.seen[m.ID] = m
		}
	}
	return len(shown) == 0 && len(met) == 0 && settled
}

func (k *kill) note(p *Picture) {
	k.r.Readings++
	for _, m := range p.Alive(k.leaf) {
		if !k.j.isOwn(m) {
			k.seen[m.ID] = m
		}
	}
	if p.Suspects != nil {
		k.r.Suspects = p.Suspects
	}
}

// blurredTries is how often who is marked, and changes while it is read, is looked at again.
const blurredTries = 10

// leastLooks is how often is read after a kill before time is up: where one reading takes
// seconds, as a hundred others do the same, two that prove the end have to fit in.
const leastLooks = 5

// verify reads once more.
func (k *kill) verify(ctx context.Context) error {
	p, err := k.j.look(ctx, k.leaf, true)
	if err != nil {
		return err
	}
	k.looks++
	k.r.Suspects = nil
	k.note(p)
	k.last = p
	left := k.j.reach(p.Alive(k.leaf))
	switch {
	case !k.send(ctx, p):
		k.clean = 0
	case k.blurs < blurredTries && slices.ContainsFunc(p.Suspects, func(s Suspect) bool { return s.Why == whyBlurred }):
		k.clean = 0
		k.blurs++
	case k.counted(p):
		k.clean++
	}
	switch {
	case k.clean >= 2:
		k.phase = done
		if !slices.ContainsFunc(p.Alive(k.leaf), func(m *Member) bool { return !k.j.isOwn(m) }) {
			k.phase, k.r.Empty = unstub, true
		}
	case k.j.t.Clock() >= k.end && k.looks >= leastLooks && k.clean == 0 || ctx.Err() != nil:
		k.phase = done
	case len(left) > 0:
		k.j.t.Wait(ctx, ids(left), k.j.o.Settle)
	default:
		k.j.t.Wait(ctx, nil, k.j.o.Apart)
	}
	return nil
}

// counted says whether the kernel's own count of the coalition, where there is one,
// agrees that nobody is left: a count is not blurred as a listing is.
func (k *kill) counted(p *Picture) bool {
	if k.j.l.Mode != Job || k.leaf != "" || p.Snapshot.Coalitions == nil {
		return true
	}
	return p.Snapshot.Coalitions[k.j.l.Coalition] <= p.Snapshot.inCoalition(k.j.l.Coalition)
}

// inCoalition counts who is alive in a coalition by the listing. When none of them is left to
// be ended, they are our own, those whom we may not end, and what was kept in other sessions.
func (s *Snapshot) inCoalition(id uint64) (n int) {
	for i := range s.Procs {
		if p := &s.Procs[i]; p.Coalition == id && p.alive() {
			n++
		}
	}
	return n
}

// lastWords is how long those of [Options.Last] may take to end by themselves: they have
// somebody's end to tell.
const lastWords = time.Second

// endStub ends our own processes in a job, when all others are gone, and the stub after the
// rest of them.
func (k *kill) endStub(ctx context.Context) error {
	k.phase = done
	if k.leaf != "" || k.j.l.Mode != Job {
		return nil
	}
	began := k.j.t.Clock()
	for {
		p, err := k.j.look(ctx, k.leaf, false)
		if err != nil {
			return err
		}
		k.r.Readings++
		own := slices.DeleteFunc(p.Alive(""), func(m *Member) bool { return m.Shield != "" || !k.j.isOwn(m) }) // shielded: we are it
		if len(own) == 0 {
			return nil
		}
		now := k.j.t.Clock()
		if now >= k.end+k.j.o.KillFor+lastWords || ctx.Err() != nil {
			for _, m := range own {
				k.seen[m.ID] = m
			}
			k.last, k.r.Empty = p, false
			return nil
		}
		rest := slices.DeleteFunc(slices.Clone(own), k.j.isStub)
		switch {
		case len(rest) == 0:
			k.j.send(own[0], syscall.SIGKILL)
		case now-began >= lastWords:
			for _, m := range rest {
				k.j.send(m, syscall.SIGKILL)
			}
		}
		k.j.t.Wait(ctx, ids(own), k.j.o.Settle)
	}
}

// fates says of each that was seen what became of it.
func (k *kill) fates() {
	left, theirs := map[ID]*Member{}, map[ID]bool{}
	if k.last != nil {
		for i := range k.last.Snapshot.Procs {
			if p := &k.last.Snapshot.Procs[i]; p.alive() {
				theirs[p.ID] = true
			}
		}
		for _, m := range k.last.Alive(k.leaf) {
			left[m.ID] = m
			delete(theirs, m.ID)
		}
	}
	for id, m := range k.seen {
		now := left[id]
		switch {
		case now != nil:
		case theirs[id]: // it turned out to be another session's
			continue
		default:
			k.r.Ended = append(k.r.Ended, m)
			continue
		}
		why := "it did not end"
		switch {
		case now.Shield != "":
			why = now.Shield
		case k.j.denied[id]:
			why = "it runs as another user"
		case now.State == Exiting:
			why = "the kernel has not finished ending it"
		}
		k.r.Survivors = append(k.r.Survivors, Survivor{now, why})
	}
	k.j.runOn(func(id ID) bool { return theirs[id] })
	slices.SortFunc(k.r.Ended, func(a, b *Member) int { return a.PID - b.PID })
	slices.SortFunc(k.r.Survivors, func(a, b Survivor) int { return a.PID - b.PID })
}

func ids(ms []*Member) []ID {
	var is []ID
	for _, m := range ms {
		is = append(is, m.ID)
	}
	return is
}
