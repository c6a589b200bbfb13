package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sessionbox/sessionbox/pkg/internal/config"
	"github.com/sessionbox/sessionbox/pkg/internal/oci"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// DefaultGrace is how long a close waits after SIGTERM, if nothing else is said.
const DefaultGrace = 5 * time.Second

// OpenOptions say what session is wanted. Unset fields are the config file's.
type OpenOptions struct {
	Name   string // may be empty
	Labels map[string]string
	// Kind of box; "" is the best this machine has.
	Kind store.Kind
	// LineageMode is how a lineage box holds, on macOS: [LineageDirect], [LineageJob], or "" for
	// the latter where it can be had and nobody is at a terminal, see Detached.
	LineageMode LineageMode
	// Detached says that the session is not for somebody at a terminal.
	Detached bool
	// RequireKernel refuses a box that the kernel does not enforce.
	RequireKernel bool
	// Limits are the ceilings of the whole session.
	Limits memlimit.Limits
	// OOM is what the kernel kills when a task runs out of memory: "" is the process
	// that holds most.
	OOM store.OOMPolicy
	// Grace before a close kills; nil is the config's, or DefaultGrace.
	Grace *time.Duration
	// NoParent makes a session independent though the caller runs in another.
	NoParent bool
	// Owner is on whose behalf the session exists; nil: nobody's.
	Owner *OwnerOptions
	// OnOwnerExit is what happens when the owner is gone; "" is to close.
	OnOwnerExit store.OwnerExit
	// Attach gives the session that holds the name, if it is open and no other owner
	// of it lives; it is then the caller's, or nobody's if Owner is nil.
	Attach bool
	// TakeOver is Attach also while another owner lives: who is told with its next
	// call.
	TakeOver bool
	// IdleTimeout is how long it may be idle before IdleAction, 0 for ever. Activity
	// is a command being started or waited for, a [Manager.Touch], and use of the
	// processor in the box; being looked at is none.
	IdleTimeout time.Duration
	IdleAction  store.IdleAction // "" is to warn
	// PrivateTmp gives its commands a TMPDIR of their own, removed with the session.
	PrivateTmp bool
	// Memory is how its memory is watched.
	Memory MemoryOptions
	// Strict closes to its commands the ways by which others would start something for
	// them, as far as the kernel lets a user do that; [Info].Strict says which.
	Strict bool
	// Container makes it an OCI container; nil: its commands run as the caller does.
	Container *ContainerOptions
	// Shims put commands of ours before docker, podman, nerdctl, docker-compose,
	// systemd-run, at, batch and crontab in the PATH of its commands: what is started
	// through them is found by the close, and ended.
	Shims bool
}

// OwnerOptions name an owner: a process, or whoever renews a lease in time.
type OwnerOptions struct {
	PID   int
	Lease time.Duration
}

// Session is an open session.
type Session struct {
	m   *Manager
	rec store.Session
	box Box
	// ceilings is what the last SetLimits said of each.
	ceilings []memlimit.Ceiling
	// generation is that of the owner the caller acts for, see ActFor.
	generation int
}

// ActFor says for which owner of the session the caller acts: its
// [OwnerInfo].Generation. What changes the session or what runs in it fails with
// [ErrHeld] if another has taken over since. Without it that is told by the processes
// the caller descends from.
func (s *Session) ActFor(generation int) { s.generation = generation }

// Generation is that of the session's owner when this value was made, 0 when it had
// none.
func (s *Session) Generation() int { return s.rec.Generation }

// aggregate is the ceilings of all sessions together.
type aggregate struct{ limits *specs.LinuxResources }

// Open makes a session: it claims the name, makes the box and sets its ceilings.
// The error is of kind [ErrHeld] when the name is another open session's.
//
// The record is written before the box is made, so that a crash leaves nothing
// that the record does not name.
func (m *Manager) Open(ctx context.Context, o OpenOptions) (*Session, error) {
	if m.stateErr != nil {
		return nil, m.stateErr
	}
	rec, ag, err := m.newRecord(&o)
	if err != nil {
		return nil, err
	}
	bundle, err := m.placeContainer(&rec, &o)
	if err != nil {
		return nil, err
	}
	if o.Strict {
		if err := m.closeDoors(ctx, &rec); err != nil {
			return nil, err
		}
	}
	if !o.Attach && !o.TakeOver { // which most often opens none
		if err := m.unheld(ctx); err != nil {
			return nil, err
		}
	}
	at := place{kernel: o.RequireKernel || o.Container != nil || o.Strict, job: wantsJob(&o)}
	if own := m.ownSession(); len(own) > 0 && !o.NoParent {
		if p, err := m.store.Get(own[len(own)-1]); err == nil && p.State != store.StateOpen {
			return nil, &Error{Kind: ErrClosed, Session: p.ID, Text: "the session around this one is being closed"}
		}
		at.parents = own
		rec.Parent = own[len(own)-1]
		if o.LineageMode == LineageJob {
			return nil, &Error{Kind: ErrUsage, Session: rec.Parent, Text: "a session inside another is held by that one's box, and has no job of its own",
				Hint: "give no --lineage-mode, or --no-parent"}
		}
		at.job = noJob
		around := m.kindOf(rec.Parent)
		switch {
		case rec.Kind == "":
			rec.Kind = around
		case around == store.KindLineage && rec.Kind != around:
			return nil, &Error{Kind: ErrUsage, Session: rec.Parent, Text: "the session around this one is a lineage box, and so is what is opened inside",
				Hint: "give no backend, or --no-parent"}
		}
		if rec.Kind == store.KindLineage && o.RequireKernel {
			return nil, &Error{Kind: ErrUnsupported, Session: rec.Parent, Text: "the session around this one is a lineage box, which the kernel does not enforce",
				Hint: "--no-parent makes it independent"}
		}
		if rec.Kind == store.KindLineage && rec.Container != nil {
			return nil, needsKernel(rec.Parent)
		}
		if rec.Kind == store.KindLineage && rec.Strict {
			return nil, strictNeedsKernel(rec.Parent)
		}
	}
	if s, err := m.claim(ctx, &rec, &o); s != nil || err != nil {
		return s, err
	}
	return m.build(ctx, rec, at, ag, bundle)
}

// place is where a box is made.
type place struct {
	parents []string // ids of the sessions around it, outermost first
	// base is the directory of the box, "" for that of the caller's own session or
	// of all boxes.
	base string
	// kernel: only a box that the kernel enforces will do.
	kernel bool
	// job is whether a lineage box is to be a launchd job.
	job jobWish
}

// build makes the box of a session whose record was claimed, and the container of a
// bundle in it.
func (m *Manager) build(ctx context.Context, rec store.Session, at place, ag aggregate, bundle *oci.Bundle) (*Session, error) {
	if err := m.makeTmp(&rec); err != nil {
		m.abandon(&rec)
		return nil, err
	}
	box, err := m.makeBox(ctx, &rec, at, ag)
	if err != nil {
		m.abandon(&rec)
		return nil, err
	}
	if b, ok := box.(*lineageBox); ok {
		if err := b.enterJob(ctx, &rec, at.job); err != nil {
			return nil, errors.Join(err, m.undo(ctx, &rec, box))
		}
	}
	rec.Mark = mark(box.Mark(true))
	m.makeShims(&rec, false)
	s := &Session{m: m, rec: rec, box: box}
	if bundle != nil {
		err = s.startContainer(ctx, bundle)
	}
	if err == nil {
		err = s.publish()
	}
	if err != nil {
		err = errors.Join(err, m.undo(ctx, &rec, box))
		return nil, err
	}
	want, _ := memlimit.FromOCI(rec.Limits) // it was made by OCI()
	s.ceilings, _ = box.Limits(want)
	m.remark(&rec, box, s.ceilings)
	m.event(store.Event{Event: "opened", ID: rec.ID, Name: rec.Name, Boot: rec.Boot}, nil)
	m.wantGuard(ctx, &s.rec)
	return s, nil
}

// undo takes back a box that was made for nothing. What runs in it already and does not end
// keeps its record, for a close that can end it.
func (m *Manager) undo(ctx context.Context, rec *store.Session, box Box) error {
	defer box.Close()
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if b, ok := box.(*lineageBox); ok && b.inJob() || rec.Container != nil {
		if err := box.Kill(clean, ""); err != nil {
			return err
		}
	}
	if rec.Container != nil {
		failed, left := m.deleteContainer(clean, rec, box)
		if failed != nil {
			m.log.Debug("clear up behind a container", "err", failed)
		}
		if left != nil {
			return left
		}
	}
	if err := box.Remove(clean); err != nil {
		m.log.Warn("remove a box that was made for nothing", "id", rec.ID, "err", err)
	}
	m.abandon(rec)
	return nil
}

// undoTime bounds that.
const undoTime = 2 * killTime

// newRecord checks the options and fills in what the config says.
func (m *Manager) newRecord(o *OpenOptions) (store.Session, aggregate, error) {
	home, _ := os.UserHomeDir()
	cfg, err := config.Load(config.Paths(os.LookupEnv, home)...)
	if err != nil {
		return store.Session{}, aggregate{}, &Error{Kind: ErrUsage, Text: "the config file is wrong", Err: err}
	}
	if o.Name != "" && !store.ValidName(o.Name) {
		return store.Session{}, aggregate{}, &Error{Kind: ErrUsage, Text: fmt.Sprintf("bad name %q", o.Name),
			Hint: "a name is a letter or digit, then up to 63 of letters, digits, '.', '_', '-'"}
	}
	grace := DefaultGrace
	if cfg.Session.Grace != nil {
		grace = *cfg.Session.Grace
	}
	if o.Grace != nil {
		grace = *o.Grace
	}
	kind := o.Kind
	if kind == "" {
		kind = store.Kind(cfg.Session.Backend)
	}
	if kind == "auto" {
		kind = ""
	}
	if err := m.checkMode(o.LineageMode, kind); err != nil {
		return store.Session{}, aggregate{}, err
	}
	if kind == store.KindLineage && o.RequireKernel {
		return store.Session{}, aggregate{}, &Error{Kind: ErrUsage, Text: "the kernel does not enforce the lineage box",
			Hint: "give no backend, or another one"}
	}
	limits, err := resources(o.Limits.Merge(cfg.Session.Limits))
	if err != nil {
		return store.Session{}, aggregate{}, &Error{Kind: ErrUsage, Text: "bad ceiling", Err: err, Hint: sizesHint}
	}
	all, err := resources(cfg.Slice)
	if err != nil {
		return store.Session{}, aggregate{}, &Error{Kind: ErrUsage, Text: "bad [slice] in the config file", Err: err}
	}
	self, err := proc.Self()
	if err != nil {
		return store.Session{}, aggregate{}, err
	}
	owner, err := newOwner(o.Owner, self.Boot)
	if err != nil {
		return store.Session{}, aggregate{}, err
	}
	if err := o.checkLife(); err != nil {
		return store.Session{}, aggregate{}, err
	}
	memory, err := o.Memory.policy(&cfg.Memory)
	if err != nil {
		return store.Session{}, aggregate{}, err
	}
	generation := 0
	if owner != nil {
		generation = owner.Generation
	}
	cwd, _ := os.Getwd()
	clock := proc.Clock()
	rec := store.Session{
		Schema: store.Schema, ID: store.NewID(), Name: o.Name, Labels: maps.Clone(o.Labels), State: store.StateOpening,
		Created: time.Now(), Opened: proc.Clock(), Boot: self.Boot, Machine: machineID(), UID: os.Getuid(), Kind: kind,
		Cookie: store.NewCookie(), Grace: grace, Limits: limits, Creator: store.ProcID(self), Cwd: cwd,
		StateDir: m.store.Dirs().State, Owner: owner, Generation: generation, OnOwnerExit: o.OnOwnerExit,
		OOMPolicy: o.OOM, IdleTimeout: o.IdleTimeout, IdleAction: o.IdleAction, Active: clock, Sampled: clock, PrivateTmp: o.PrivateTmp,
		Memory: memory, Shims: o.Shims,
	}
	if o.Container != nil {
		return rec, aggregate{all}, nil // it would not be seen inside
	}
	return rec, aggregate{all}, m.placeTmp(&rec)
}

// checkLife refuses words that are none and times that are no times.
func (o *OpenOptions) checkLife() error {
	switch o.OnOwnerExit {
	case "", store.OwnerExitClose, store.OwnerExitKeep:
	default:
		return &Error{Kind: ErrUsage, Text: fmt.Sprintf("on owner's exit: not %q", o.OnOwnerExit), Hint: "want close or keep"}
	}
	switch o.IdleAction {
	case "", store.IdleWarn, store.IdleFreeze, store.IdleClose:
	default:
		return &Error{Kind: ErrUsage, Text: fmt.Sprintf("idle action: not %q", o.IdleAction), Hint: "want warn, freeze or close"}
	}
	if err := checkOOM(o.OOM); err != nil {
		return err
	}
	if o.IdleTimeout < 0 {
		return &Error{Kind: ErrUsage, Text: fmt.Sprintf("an idle timeout of %v", o.IdleTimeout), Hint: "0 is none"}
	}
	if o.IdleAction != "" && o.IdleTimeout == 0 {
		return &Error{Kind: ErrUsage, Text: "an idle action without an idle timeout", Hint: "give --idle-timeout too"}
	}
	return nil
}

// sizesHint says how ceilings are written.
const sizesHint = "sizes are like 512M, 4G, 75% of this machine's memory or max"

// resources makes amounts of limits: shares are of this machine.
func resources(l memlimit.Limits) (*specs.LinuxResources, error) {
	l, err := l.Resolve(hostTotals())
	if err == nil {
		err = l.Validate()
	}
	if err != nil {
		return nil, err
	}
	return l.OCI()
}

// claim writes the first record. When the name is held it gives the holder, if
// that is wanted and may be had, or says who it is. A holder that never got beyond
// opening because its process died is cleared away, as is one whose owner is gone.
func (m *Manager) claim(ctx context.Context, rec *store.Session, o *OpenOptions) (*Session, error) {
	for try := 0; ; try++ {
		wait, cancel := context.WithTimeout(ctx, claimTime)
		err := m.store.Claim(wait, *rec)
		cancel()
		if err == nil {
			return nil, nil
		}
		var taken *store.NameTakenError
		if !errors.As(err, &taken) {
			return nil, recordError(err)
		}
		attach := o.Attach || o.TakeOver
		old, oerr := m.store.Get(taken.ID)
		if oerr == nil && try < 3 && (abandoned(&old) || m.overdue(&old) && !attach) {
			_, err := m.Close(ctx, taken.ID, CloseOptions{Now: true, only: func(r *store.Session) bool { return abandoned(r) || m.overdue(r) }})
			if err != nil && !errors.Is(err, errNotAnyMore) {
				return nil, err
			}
			continue
		}
		if attach && oerr == nil && old.State == store.StateOpen {
			s, err := m.attach(ctx, taken.ID, o, rec.Owner)
			if errors.Is(err, store.ErrNotFound) && try < 3 {
				continue // closed meanwhile
			}
			if !errors.Is(err, errOwnerLives) {
				return s, err
			}
		}
		return nil, m.held(ctx, rec.Name, taken.ID, attach)
	}
}

// held says who has a name.
func (m *Manager) held(ctx context.Context, name, id string, attach bool) error {
	e := &Error{Kind: ErrHeld, Session: name, Text: "is open already",
		Hint: fmt.Sprintf("use it (`sessionbox exec %[1]s -- …`, `sessionbox open --attach --name %[1]s`), or `sessionbox close %[1]s`", name)}
	info, err := m.Inspect(ctx, id, InspectOptions{})
	if err != nil {
		return e
	}
	e.Info = &info
	e.Text = fmt.Sprintf("is open already (%s, %d running)", info.ID, info.Running)
	if info.Owner != nil && info.Owner.State != OwnerGone {
		if rec, err := m.store.Get(id); err == nil && rec.Owner != nil {
			e.Text = fmt.Sprintf("belongs to %s, which %s (%s, %d running)", ownerText(rec.Owner),
				map[string]string{OwnerAlive: "lives", OwnerUnknown: "cannot be seen from here"}[info.Owner.State], info.ID, info.Running)
		}
		e.Hint = "--take-over takes it all the same; its owner is told"
		if !attach {
			e.Hint = fmt.Sprintf("use it (`sessionbox exec %s -- …`); %s", name, e.Hint)
		}
	}
	return e
}

// claimTime bounds waiting for the lock of the names, which hundreds may want at
// once and a holder may be stopped with.
const claimTime = 30 * time.Second

// overdue says that a session was to be closed when its owner is gone, and that it is.
func (m *Manager) overdue(rec *store.Session) bool {
	return rec.State == store.StateOpen && onExit(rec) == store.OwnerExitClose && m.fateOf(rec) == proc.Gone
}

// abandoned says that whoever was opening the session died over it.
func abandoned(rec *store.Session) bool {
	return rec.State == store.StateOpening && proc.FateOf(proc.ID(rec.Creator)) == proc.Gone
}

// publish makes the new box findable: by the record, and with all records gone
// by the xattr on the box.
func (s *Session) publish() error {
	s.rec.State = store.StateOpen
	meta, err := json.Marshal(s.rec)
	if err != nil {
		return err
	}
	if err := s.box.SetMeta(string(meta)); err != nil {
		// Before 5.7 cgroupfs has no user xattrs: the record alone must do.
		s.m.log.Warn("mark the box", "err", err)
	}
	return s.m.update(context.Background(), &s.rec)
}

// update rewrites the record of a session that is being opened. Whoever closed it
// meanwhile has won: the error is of kind [ErrClosed] then.
func (m *Manager) update(ctx context.Context, rec *store.Session) error {
	wait, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	closed := &Error{Kind: ErrClosed, Session: rec.ID, Text: "was closed while it was being opened", Hint: "open it again", Retry: true}
	_, err := m.store.Update(wait, rec.ID, func(r *store.Session) error {
		if r.State != store.StateOpening {
			return closed
		}
		*r = *rec
		return nil
	})
	if errors.Is(err, ErrClosed) || errors.Is(err, store.ErrNotFound) {
		return closed
	}
	return recordError(err)
}

func (m *Manager) abandon(rec *store.Session) {
	m.dropTmp(rec)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := m.store.Remove(ctx, rec.ID); err != nil {
		m.log.Warn("remove the record of a session that could not be opened", "id", rec.ID, "err", err)
	}
}

func recordError(err error) error {
	if err == nil {
		return nil
	}
	if bad, ok := errors.AsType[*store.BadRecord](err); ok {
		return &Error{Kind: ErrNotFound, Session: bad.ID, Text: "its record cannot be used", Err: err,
			Hint: "`sessionbox close " + bad.ID + "` ends what its box holds"}
	}
	return &Error{Kind: ErrPermission, Text: "cannot write the session's record", Err: err,
		Hint: "free space in, or get access to, the state directory; SESSIONBOX_STATE_DIR names another one. `close` works all the same"}
}

// kindOf is the kind of box of a session around us: a nested box is of the same.
func (m *Manager) kindOf(id string) store.Kind {
	rec, _, err := m.load(id)
	if err != nil {
		return ""
	}
	return rec.Kind
}

// Get opens a session by reference.
func (m *Manager) Get(ctx context.Context, ref string) (*Session, error) {
	id, err := m.resolve(ref)
	if err != nil {
		return nil, err
	}
	rec, _, err := m.load(id)
	if err != nil {
		return nil, m.lookupError(ref, err)
	}
	box, err := m.openBox(&rec)
	if err != nil && !errors.Is(err, ErrBoxGone) {
		return nil, err
	}
	return &Session{m: m, rec: rec, box: box}, nil // box nil: gone
}

func (m *Manager) lookupError(ref string, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return notFound(ref)
	}
	return &Error{Kind: ErrNotFound, Session: ref, Text: "its record cannot be used and no box was found", Err: err,
		Hint: "look at the file, then remove it"}
}

// ID is the session's generated name.
func (s *Session) ID() string { return s.rec.ID }

// Name is the name it was given, its id when it has none.
func (s *Session) Name() string {
	if s.rec.Name != "" {
		return s.rec.Name
	}
	return s.rec.ID
}

// Kind is the kind of its box.
func (s *Session) Kind() store.Kind { return s.rec.Kind }

// Ceilings says which limits were set when it was opened and which hold.
func (s *Session) Ceilings() []memlimit.Ceiling { return s.ceilings }

// Release gives back what this value holds; the session lives on.
func (s *Session) Release() error {
	if s.box == nil {
		return nil
	}
	return s.box.Close()
}

// sessionEnv is what marks the processes of a session.
func sessionEnv(rec *store.Session) []string {
	name := rec.Name
	if name == "" {
		name = rec.ID
	}
	return []string{EnvID + "=" + rec.ID, EnvSession + "=" + name, EnvCookie + "=" + rec.Cookie}
}
