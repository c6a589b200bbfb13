package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/oci"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// OwnerInfo is on whose behalf a session exists.
type OwnerInfo struct {
	PID     int      `json:"pid,omitempty"` // 0: a lease
	Start   uint64   `json:"start,omitempty"`
	Command []string `json:"command,omitempty"`
	// LeaseSeconds is how long the owner may be silent, RemainingSeconds how long it
	// still may; negative once it is too long.
	LeaseSeconds     float64   `json:"lease_seconds,omitempty"`
	RemainingSeconds float64   `json:"remaining_seconds,omitempty"`
	Generation       int       `json:"generation"`
	Since            time.Time `json:"since"`
	State            string    `json:"state"`   // alive, gone, unknown
	OnExit           string    `json:"on_exit"` // close, keep
}

// The states of an owner. Of a process in another pid namespace, or of a session of
// another machine, it is not known.
const (
	OwnerAlive   = "alive"
	OwnerGone    = "gone"
	OwnerUnknown = "unknown"
)

// minLease is the shortest lease: who renews it must get to run in between.
const minLease = time.Second

// newOwner makes the owner that the options name; its generation is filled in when it
// is known which.
func newOwner(o *OwnerOptions, boot string) (*store.Owner, error) {
	if o == nil {
		return nil, nil
	}
	if (o.PID != 0) == (o.Lease != 0) {
		return nil, &Error{Kind: ErrUsage, Text: "an owner is a process or a lease", Hint: "give one of --owner-pid and --lease"}
	}
	now := time.Now()
	if o.PID == 0 {
		if o.Lease < minLease {
			return nil, &Error{Kind: ErrUsage, Text: fmt.Sprintf("a lease of %v is too short", o.Lease), Hint: "the shortest one is 1s"}
		}
		return &store.Owner{Lease: o.Lease, Ends: leaseEnd(o.Lease), Boot: boot, Generation: 1, Since: now}, nil
	}
	if o.PID == 1 {
		return nil, &Error{Kind: ErrUsage, Text: "process 1 cannot own a session: it ends with the machine",
			Hint: "a parent that has ended looks like 1; in a container whose first process is the owner, leave it out"}
	}
	id, err := proc.Lookup(o.PID)
	switch {
	case errors.Is(err, proc.ErrGone), o.PID < 0:
		return nil, &Error{Kind: ErrUsage, Text: fmt.Sprintf("no process %d to own the session", o.PID), Hint: "it may have ended already"}
	case err != nil:
		return nil, err
	}
	if fate := proc.FateOf(id); fate != proc.Alive {
		return nil, &Error{Kind: ErrUsage, Text: fmt.Sprintf("process %d cannot own the session: it has ended", o.PID),
			Hint: "a zombie is what its parent has not waited for"}
	}
	if uid, err := proc.UID(o.PID); err == nil && uid != os.Geteuid() && os.Geteuid() != 0 {
		return nil, &Error{Kind: ErrPermission, Text: fmt.Sprintf("process %d is another user's", o.PID), Hint: "a session belongs to a process of its own user"}
	}
	return &store.Owner{Process: store.ProcID(id), Command: shortArgs(proc.Args(o.PID)), Boot: boot, Generation: 1, Since: now}, nil
}

// leaseEnd is when a lease that is renewed now ends; one of centuries does not.
func leaseEnd(lease time.Duration) time.Duration {
	now := proc.Clock()
	if lease > 1<<62-now {
		return 1 << 62
	}
	return now + lease
}

// shortArgs bounds a command line that is shown to people.
func shortArgs(argv []string) []string {
	const words, letters = 8, 200
	argv = slices.Clone(argv[:min(len(argv), words)])
	for i, a := range argv {
		if len(a) > letters {
			argv[i] = a[:letters] + "…"
		}
	}
	return argv
}

// fateOf tells what became of a session's owner: gone only if that is proven.
func (m *Manager) fateOf(rec *store.Session) proc.Fate {
	o := rec.Owner
	if o == nil {
		return proc.Unknown
	}
	if here := m.machine(); rec.Machine != "" && here != "" && rec.Machine != here {
		return proc.Unknown
	}
	boot, err := m.boot()
	switch {
	case err != nil:
		return proc.Unknown
	case o.Boot != boot:
		return proc.Gone
	case o.Lease == 0:
		return proc.FateOf(proc.ID(o.Process))
	case o.Ends > proc.Clock():
		return proc.Alive
	}
	return proc.Gone
}

func (m *Manager) ownerInfo(rec *store.Session) *OwnerInfo {
	o := rec.Owner
	if o == nil {
		return nil
	}
	i := &OwnerInfo{PID: o.Process.PID, Start: o.Process.Start, Command: o.Command, LeaseSeconds: o.Lease.Seconds(),
		Generation: o.Generation, Since: o.Since, State: OwnerUnknown, OnExit: string(onExit(rec))}
	if o.Lease != 0 {
		i.RemainingSeconds = (o.Ends - proc.Clock()).Seconds()
	}
	switch m.fateOf(rec) {
	case proc.Alive:
		i.State = OwnerAlive
	case proc.Gone:
		i.State = OwnerGone
	}
	return i
}

func onExit(rec *store.Session) store.OwnerExit {
	if rec.OnOwnerExit == "" {
		return store.OwnerExitClose
	}
	return rec.OnOwnerExit
}

// ownerText names an owner for people.
func ownerText(o *store.Owner) string {
	if o.Lease != 0 {
		return fmt.Sprintf("whoever holds its lease (generation %d)", o.Generation)
	}
	if len(o.Command) == 0 {
		return fmt.Sprintf("process %d", o.Process.PID)
	}
	return fmt.Sprintf("process %d (%s)", o.Process.PID, o.Command[0])
}

// formerMax bounds how many former owners are remembered.
const formerMax = 16

// handOver makes owner the owner of a session; nil makes it nobody's.
func handOver(r *store.Session, owner *store.Owner) {
	if r.Owner != nil && r.Owner.Process.PID != 0 {
		r.Former = append(r.Former, r.Owner.Process)
		r.Former = r.Former[max(0, len(r.Former)-formerMax):]
	}
	if owner != nil {
		// One who takes over what it was taken is former no more.
		r.Former = slices.DeleteFunc(r.Former, func(p store.ProcID) bool { return p == owner.Process })
		owner.Generation = r.Generation + 1
		r.Generation = owner.Generation
	}
	r.Owner = owner
}

// mark writes the copy of a record on its box anew, under the session's lock: with the
// record lost it still says who owned the session before, and what generation the next
// owner is of.
func (m *Manager) mark(r *store.Session) {
	box, err := m.openBox(r)
	if err != nil {
		return
	}
	defer box.Close()
	meta, err := json.Marshal(r)
	if err == nil {
		err = box.SetMeta(string(meta))
	}
	if err != nil {
		m.log.Debug("mark the box", "session", r.ID, "err", err)
	}
}

// fits is an error if an open session is not of the kind that is wanted.
func (o *OpenOptions) fits(rec *store.Session) error {
	e := &Error{Kind: ErrUsage, Session: rec.ID, Hint: "close it first, or give another --name"}
	if o.Strict && !rec.Strict {
		e.Text = "is open already, and not strict"
		return e
	}
	if c := o.Container; c != nil {
		if dir, err := oci.Find(c.Bundle); rec.Container == nil || err != nil || dir != rec.Container.Bundle {
			e.Text = "is open already, and no container of that bundle"
			return e
		}
		if runtime, err := oci.FindRuntime(c.Runtime); c.Runtime != "" && (err != nil || runtime != rec.Container.Runtime) {
			e.Text = "is open already, and its runtime is " + rec.Container.Runtime
			return e
		}
	}
	return nil
}

// attach makes the open session that holds a name the caller's. Who is the owner is
// decided under the session's lock: of two at once one wins.
func (m *Manager) attach(ctx context.Context, id string, o *OpenOptions, owner *store.Owner) (*Session, error) {
	wait, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	from := ""
	rec, err := m.store.Update(wait, id, func(r *store.Session) error {
		if r.State != store.StateOpen {
			return &Error{Kind: ErrClosed, Session: id, Text: "is being closed", Retry: true, Hint: "open it again"}
		}
		if err := o.fits(r); err != nil {
			return err
		}
		if r.Owner != nil && !o.TakeOver {
			if sameOwner(r.Owner, owner) || owner == nil && m.descendsFrom(r.Owner.Process) {
				return errNothingToDo
			}
			if m.fateOf(r) != proc.Gone {
				return errOwnerLives
			}
		}
		if r.Owner == nil && owner == nil {
			return errNothingToDo
		}
		if r.Owner != nil {
			from = ownerText(r.Owner)
		}
		if owner == nil {
			r.Generation++ // who held it is told, though nobody holds it now
		}
		handOver(r, owner)
		r.Active = proc.Clock()
		if o.OnOwnerExit != "" {
			r.OnOwnerExit = o.OnOwnerExit
		}
		m.mark(r)
		return nil
	})
	if err != nil && !errors.Is(err, errNothingToDo) {
		if _, ok := errors.AsType[*Error](err); !ok && !errors.Is(err, errOwnerLives) && !errors.Is(err, store.ErrNotFound) {
			err = recordError(err)
		}
		return nil, err
	}
	if err == nil {
		detail := map[string]any{"generation": rec.Generation, "take_over": o.TakeOver}
		if from != "" {
			detail["from"] = from
		}
		if owner != nil {
			detail["owner"] = ownerText(owner)
		}
		m.event(store.Event{Event: "attached", ID: id, Name: rec.Name}, detail)
	}
	s, err := m.Get(ctx, id)
	if err == nil {
		m.wantGuard(ctx, &s.rec)
	}
	return s, err
}

var (
	errNothingToDo = errors.New("nothing to do")
	errOwnerLives  = errors.New("another owner lives")
)

func sameOwner(a, b *store.Owner) bool {
	return b != nil && a.Process.PID != 0 && a.Process == b.Process
}

// descendsFrom says whether the caller is a process or descends from it.
func (m *Manager) descendsFrom(p store.ProcID) bool {
	if p.PID == 0 {
		return false
	}
	chain, err := ancestors()
	if err != nil || !chain[p.PID] {
		return false
	}
	return proc.FateOf(proc.ID(p)) == proc.Alive
}

// mayAct is an error if the caller acts for an owner that was taken over from: it
// names an earlier generation or, naming none, descends from a former owner and not
// from the present one. Whoever never owned the session is not held up: people tear
// down what they want.
func (m *Manager) mayAct(rec *store.Session, generation int) error {
	if generation == rec.Generation && generation != 0 {
		return nil
	}
	former := generation != 0 || slices.ContainsFunc(rec.Former, m.descendsFrom)
	if !former || generation == 0 && rec.Owner != nil && m.descendsFrom(rec.Owner.Process) {
		return nil
	}
	name := rec.Name
	if name == "" {
		name = rec.ID
	}
	e := &Error{Kind: ErrHeld, Session: name, Text: "was taken over from you", Hint: "`sessionbox open --name " + name + " --take-over --owner-pid PID` (or --lease D) takes it back"}
	if rec.Owner != nil {
		e.Text += fmt.Sprintf(" by %s %s ago", ownerText(rec.Owner), time.Since(rec.Owner.Since).Round(time.Second))
	}
	if info, err := m.Inspect(context.Background(), rec.ID, InspectOptions{}); err == nil {
		e.Info = &info
	}
	return e
}

// mayAct is [Manager.mayAct] for whom this value acts, see ActFor.
func (s *Session) mayAct() error { return s.m.mayAct(&s.rec, s.generation) }

// Touch says that the session is in use: its lease is renewed, and it is not idle; one
// that was frozen for that is thawed.
// generation is that of the owner the caller acts for, see [OwnerInfo]; 0 if it does
// not know. The error is of kind [ErrHeld] when another has taken over meanwhile.
func (m *Manager) Touch(ctx context.Context, ref string, generation int) (Info, error) {
	id, err := m.resolve(ref)
	if err != nil {
		return Info{}, err
	}
	wait, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	frozen := false
	rec, err := m.store.Update(wait, id, func(r *store.Session) error {
		if r.State != store.StateOpen {
			return &Error{Kind: ErrClosed, Session: ref, Text: "is being closed"}
		}
		if err := m.mayAct(r, generation); err != nil {
			return err
		}
		if generation == 0 && r.Owner != nil && r.Owner.Lease != 0 && r.Owner.Generation > 1 {
			return &Error{Kind: ErrUsage, Session: ref, Text: "its lease has changed hands, and you do not say for whom you renew it",
				Hint: fmt.Sprintf("--generation N, with the owner.generation that `open --json` told you; it is %d now", r.Owner.Generation)}
		}
		frozen = r.IdleDone != 0 && r.IdleAction == store.IdleFreeze
		r.Active, r.IdleDone = proc.Clock(), 0
		if r.Owner != nil && r.Owner.Lease != 0 {
			r.Owner.Ends = leaseEnd(r.Owner.Lease)
		}
		return nil
	})
	if errors.Is(err, store.ErrNotFound) {
		return Info{}, m.lookupError(ref, err)
	}
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok {
			return Info{}, e
		}
		return Info{}, recordError(err)
	}
	if frozen { // for being idle, which it is no more
		if err := m.thawTouched(ctx, &rec); err != nil {
			return Info{}, err
		}
	}
	m.reguard(ctx, &rec)
	return m.Inspect(ctx, id, InspectOptions{})
}

func (m *Manager) thawTouched(ctx context.Context, rec *store.Session) error {
	box, err := m.openBox(rec)
	if err != nil {
		return err
	}
	defer box.Close()
	if err := box.Thaw(ctx); err != nil {
		return fmt.Errorf("thaw %s: %w", rec.ID, err)
	}
	m.event(store.Event{Event: "thawed", ID: rec.ID, Name: rec.Name, Msg: "it was touched"}, nil)
	return nil
}
