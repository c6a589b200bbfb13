package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/scope"
	"github.com/sessionbox/sessionbox/pkg/store"
	"golang.org/x/sys/unix"
)

var (
	_ Box = (*cgroupBox)(nil)
	_ Box = (*scope.Box)(nil)
)

// ownSession gives the ids of the sessions the caller runs in, outermost first,
// by its cgroup: the environment can be copied, the cgroup cannot.
// Where no cgroup tells, the keepers that it descends from do.
func ownSession() []string {
	var ids []string
	if cg, err := proc.Cgroup(os.Getpid()); err == nil {
		ids = idsOfPath(cg)
	}
	below := lineageSessions()
	if len(ids) == 0 || slices.Contains(below, ids[len(ids)-1]) {
		return below // the lineage box is inside of the other, if there is one
	}
	return ids
}

// frozenAt says whether the directory of a box, or of boxes, is frozen.
func frozenAt(dir string) (bool, error) {
	g, err := cgroup.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer g.Close()
	return g.Frozen()
}

// idsOfPath finds the innermost session in a cgroup path.
func idsOfPath(path string) []string {
	parts := strings.Split(path, "/")
	for _, p := range slices.Backward(parts) {
		if ids, ok := cgroup.SliceIDs(p); ok {
			return ids
		}
	}
	return nil
}

// makeBox makes the box of a new session. rec.Kind says which kind is wanted,
// "" is the best this machine has; the kind, path, inode and unit are filled in.
func (m *Manager) makeBox(ctx context.Context, rec *store.Session, at place, ag aggregate) (Box, error) {
	if rec.Kind == store.KindLineage {
		return m.makeLineageBox(rec, at)
	}
	wanted := rec.Kind
	tried, err := m.tryKernel(ctx, rec, at, ag)
	if err != nil || tried.box != nil {
		return asContainer(rec, tried.box), err
	}
	if wanted == "" && !at.kernel && m.cfg.CgroupRoot == "" { // who names a tree wants the kernel to hold it
		b, err := m.makeLineageBox(rec, at)
		if err == nil {
			m.log.Info("the kernel holds no box here: the lineage box", "session", rec.ID, "why", errors.Join(tried.errs...))
			return b, nil
		}
		tried.errs = append(tried.errs, fmt.Errorf("lineage: %w", err))
	}
	e := &Error{Kind: ErrUnsupported, Text: "no box can be made here", Err: errors.Join(tried.errs...),
		Hint: "`sessionbox doctor` says what is missing and how to get it"}
	if at.kernel && wanted == "" && rec.Container == nil && !rec.Strict {
		e.Hint += "; without --require kernel there is the lineage box"
	}
	return nil, e
}

func (m *Manager) makeLineageBox(rec *store.Session, at place) (Box, error) {
	rec.Kind = store.KindLineage
	b, err := m.makeLineage(rec, at)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// attempt is what was tried to make a box that the kernel enforces.
type attempt struct {
	box  Box
	errs []error
}

// tryKernel makes a box of the kind wanted, or of the first kind that can be made. An error
// is one that leaves nothing else to try.
func (m *Manager) tryKernel(ctx context.Context, rec *store.Session, at place, ag aggregate) (try attempt, err error) {
	if err := noteTree(rec); err != nil {
		try.errs = append(try.errs, err)
		return try, nil
	}
	wanted := rec.Kind
	if wanted == "" || wanted == store.KindSystemd {
		b, err := m.makeScope(ctx, rec, at.parents, ag)
		if err == nil {
			rec.Kind, rec.Path, rec.Inode, rec.Unit = store.KindSystemd, b.Path(), b.Inode(), b.Unit
			try.box = b
			return try, nil
		}
		try.errs = append(try.errs, fmt.Errorf("systemd: %w", err))
		if !errors.Is(err, scope.ErrNoManager) {
			return try, err // there is one, and it refused
		}
	}
	if wanted == "" || wanted == store.KindCgroup {
		b, err := m.makeCgroup(ctx, rec, at, ag)
		if err == nil {
			rec.Kind, rec.Path, rec.Inode = store.KindCgroup, b.Path(), b.Inode()
			try.box = b
			return try, nil
		}
		try.errs = append(try.errs, fmt.Errorf("cgroup: %w", err))
	}
	return try, nil
}

func (m *Manager) makeScope(ctx context.Context, rec *store.Session, parents []string, ag aggregate) (*scope.Box, error) {
	defer m.turn(ctx, openTurn)()
	mgr, err := m.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer mgr.Close() // the box dials again when it needs to
	m.sweepUnits(ctx, mgr, m.store.Owed())
	helper, err := m.helper()
	if err != nil {
		return nil, err
	}
	title := rec.ID
	if rec.Name != "" {
		title = rec.Name
	}
	// What is asked of the manager may be done after we were killed: the record
	// must name the unit before.
	rec.Kind, rec.Unit = store.KindSystemd, cgroup.SliceName(parents, rec.ID)
	if err := m.update(ctx, rec); err != nil {
		return nil, err
	}
	return mgr.Create(ctx, scope.Spec{
		ID: rec.ID, Parents: parents, Description: "sessionbox session " + title,
		Limits: rec.Limits, Aggregate: ag.limits,
		Anchor: m.anchorArgv(helper, rec.ID), AnchorEnv: sessionEnv(rec), Helper: helper,
	})
}

// openTurn and closeTurn bound waiting for a turn: the one before us may talk to a
// bus that hangs, or be stopped.
const (
	openTurn  = 30 * time.Second
	closeTurn = 10 * time.Second
)

// turn lets those who make and remove units do it one after the other. The
// manager tells each of its clients of every change of every unit: two hundred at
// once keep it busy for longer than any of them waits.
func (m *Manager) turn(ctx context.Context, patience time.Duration) (done func()) {
	if m.busIsDown() {
		return func() {}
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return m.store.Turn(wait)
}

// removeUnit makes the manager forget the unit of a session whose box is gone, or
// was asked for and never seen.
func (m *Manager) removeUnit(ctx context.Context, rec *store.Session) error {
	if rec.Kind != store.KindSystemd || rec.Unit == "" {
		return nil
	}
	mgr, err := m.dial(ctx)
	if err == nil {
		defer mgr.Close()
		err = mgr.Sweep(ctx, rec.Unit)
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %w", rec.Unit, scope.ErrUnitLeft, err)
	}
	return nil
}

// busRest is how long a bus that did not answer is left alone: closing a hundred
// sessions must not wait a hundred times for it.
const busRest = 30 * time.Second

var errBusDown = errors.New("it did not answer a moment ago")

func (m *Manager) busIsDown() bool {
	at := m.busFailed.Load()
	return at != 0 && time.Since(time.Unix(0, at)).Abs() < busRest
}

// dial connects to the systemd manager.
func (m *Manager) dial(ctx context.Context) (*scope.Manager, error) {
	if m.busIsDown() {
		return nil, fmt.Errorf("%w: %w", scope.ErrNoManager, errBusDown)
	}
	mgr, err := scope.Dial(ctx)
	if err != nil && ctx.Err() == nil {
		m.busFailed.Store(time.Now().UnixNano())
	}
	return mgr, err
}

// sweepUnits clears away the slices that a close could not tell the manager of, as the
// bus was gone. Their directories were removed and may be there again, empty and with
// no mark: the manager makes them anew when it looks after a sibling's controllers.
func (m *Manager) sweepUnits(ctx context.Context, mgr *scope.Manager, owed []string) {
	if len(owed) == 0 {
		return
	}
	left, err := mgr.List(ctx, func(id string) bool {
		_, err := m.store.Get(id)
		return !errors.Is(err, store.ErrNotFound) // unusable ones are somebody's, too
	})
	for _, f := range left {
		if f.Populated || f.Meta != "" || !slices.Contains(owed, f.Unit) {
			continue
		}
		if serr := mgr.Sweep(ctx, f.Unit); serr != nil {
			err = errors.Join(err, serr)
		}
	}
	if err != nil {
		m.log.Debug("clear away units without a session", "units", owed, "err", err)
		for _, unit := range owed {
			m.store.Owe(unit)
		}
	}
}

func (m *Manager) makeCgroup(ctx context.Context, rec *store.Session, at place, ag aggregate) (*cgroupBox, error) {
	helper, err := m.helper()
	if err != nil {
		return nil, err
	}
	mount, err := cgroup.FindMount()
	if err != nil {
		return nil, err
	}
	var top *cgroup.Group
	for range 10 { // a close may remove the empty base between our two steps
		var base *cgroup.Group
		if base, err = m.cgroupBase(mount, at, ag); err != nil {
			return nil, err
		}
		top, err = cgroup.Create(base, at.parents, rec.ID)
		base.Close()
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	// So that a task has figures of its own, and a session inside its ceilings. A box
	// without has them still.
	if err := top.EnableControllers(); err != nil {
		m.log.Debug("enable controllers in the box", "err", err)
	}
	b := &cgroupBox{
		Box:    &cgroup.Box{Top: top, Work: top, Helper: helper},
		anchor: m.anchorArgv(helper, rec.ID), env: sessionEnv(rec),
	}
	if rec.Limits != nil {
		if _, err := b.SetLimits(ctx, rec.Limits); err != nil {
			top.Remove(ctx)
			top.Close()
			return nil, err
		}
	}
	return b, nil
}

// cgroupBase opens the directory in which the box is made: the innermost
// parent's, or sessionbox.slice below the root.
func (m *Manager) cgroupBase(mount cgroup.Mount, at place, ag aggregate) (*cgroup.Group, error) {
	if at.base != "" {
		return cgroup.Open(at.base)
	}
	if parents := at.parents; len(parents) > 0 {
		own, err := cgroup.Own(mount)
		if err != nil {
			return nil, err
		}
		name := cgroup.SliceName(parents[:len(parents)-1], parents[len(parents)-1])
		for dir := own; len(dir) > len(mount.Point); dir = filepath.Dir(dir) {
			if filepath.Base(dir) == name {
				return cgroup.Open(dir)
			}
		}
		return nil, fmt.Errorf("the directory of the enclosing session %s is not visible", name)
	}
	dir, err := m.cgroupRoot(mount)
	if err != nil {
		return nil, err
	}
	root, err := cgroup.Open(dir)
	if err != nil {
		if errors.Is(err, cgroup.ErrNotCgroup2) || errors.Is(err, fs.ErrNotExist) {
			return nil, &Error{Kind: ErrUnsupported, Text: "bad cgroup root", Err: err,
				Hint: "give a directory below " + mount.Point}
		}
		return nil, err
	}
	defer root.Close()
	base, err := cgroup.EnsureBase(root)
	if err != nil {
		if errors.Is(err, unix.EROFS) || errors.Is(err, fs.ErrPermission) {
			return nil, &Error{Kind: ErrUnsupported, Text: "the cgroup tree may not be written", Err: err,
				Hint: "`sessionbox doctor` says what would make it writable"}
		}
		return nil, err
	}
	// So that ceilings can be set on the boxes; the directories hold no process.
	root.EnableControllers()
	base.EnableControllers()
	if ag.limits != nil {
		if _, err := base.SetLimits(ag.limits); err != nil {
			m.log.Warn("ceilings of "+cgroup.Base, "err", err)
		}
	}
	return base, nil
}

func (m *Manager) cgroupRoot(mount cgroup.Mount) (string, error) {
	if m.cfg.CgroupRoot != "" {
		return m.cfg.CgroupRoot, nil
	}
	if mount.ReadOnly {
		return "", &Error{Kind: ErrUnsupported, Text: mount.Point + " is mounted read-only",
			Hint: "`sessionbox doctor` says what would make it writable"}
	}
	return cgroup.DefaultRoot(mount)
}

// openBox opens the box that the record names; [ErrBoxGone] when the kernel has
// it no more.
func (m *Manager) openBox(rec *store.Session) (Box, error) {
	if rec.Kind == store.KindLineage {
		if err := m.mayJudge(rec); err != nil {
			return nil, err
		}
		b, err := m.openLineage(rec)
		if err != nil {
			return nil, err
		}
		return b, nil
	}
	path, inode := rec.Path, rec.Inode
	if path == "" { // a crash between making the box and recording it
		for _, f := range m.findBoxes(nil) {
			if f.ids[len(f.ids)-1] == rec.ID {
				path = f.path
			}
		}
		if path == "" {
			return nil, fmt.Errorf("%s: %w", rec.ID, ErrBoxGone)
		}
	}
	if ids, ok := cgroup.SliceIDs(filepath.Base(path)); !ok || ids[len(ids)-1] != rec.ID {
		return nil, fmt.Errorf("%s is not the box of session %s: %w", path, rec.ID, ErrBoxGone)
	}
	if err := m.mayJudge(rec); err != nil {
		return nil, err
	}
	helper, _ := m.helper() // needed only by what starts something
	b, err := m.openKind(rec, path, inode, helper)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, cgroup.ErrReplaced) || errors.Is(err, cgroup.ErrNotCgroup2) {
		// Not seen is gone only for who looks at the tree that it was in.
		if verr := m.seesTree(rec); verr != nil {
			return nil, verr
		}
		return nil, errors.Join(ErrBoxGone, err)
	}
	if err != nil {
		return nil, err
	}
	return asContainer(rec, b), nil
}

// mayJudge says whether what this kernel shows is about the session at all.
func (m *Manager) mayJudge(rec *store.Session) error {
	if here := m.machine(); rec.Machine != "" && here != "" && rec.Machine != here {
		return &Error{Kind: ErrUnsupported, Session: rec.ID, Text: "runs on another machine",
			Hint: "the state directory is shared; close it there"}
	}
	if boot, err := m.boot(); rec.Boot != "" && err == nil && boot != rec.Boot {
		return fmt.Errorf("session %s ran before the last boot: %w", rec.ID, ErrBoxGone)
	}
	return nil
}

// seesTree says whether the cgroup tree that the session's box was made in is the
// one mounted here. In a container, another cgroup namespace, or without the
// mount, the box is merely out of sight.
func (m *Manager) seesTree(rec *store.Session) error {
	if rec.Mount == "" {
		return nil // known from its box, which was seen just now
	}
	g, err := cgroup.Open(rec.Mount)
	if err == nil {
		defer g.Close()
		if g.Inode() == rec.MountInode {
			return nil
		}
	}
	return &Error{Kind: ErrUnsupported, Session: rec.ID, Text: "its box cannot be seen from here", Err: err,
		Hint: "it was made where " + rec.Mount + " shows another part of the cgroup tree; close it there"}
}

// noteTree records which cgroup tree is seen here.
func noteTree(rec *store.Session) error {
	mount, err := cgroup.FindMount()
	if err != nil {
		return err
	}
	g, err := cgroup.Open(mount.Point)
	if err != nil {
		return err
	}
	defer g.Close()
	rec.Mount, rec.MountInode = mount.Point, g.Inode()
	return nil
}

func (m *Manager) openKind(rec *store.Session, path string, inode uint64, helper string) (Box, error) {
	var anchor []string
	if helper != "" {
		anchor = m.anchorArgv(helper, rec.ID)
	}
	if inode == 0 {
		g, err := cgroup.Open(path)
		if err != nil {
			return nil, err
		}
		inode = g.Inode()
		g.Close()
	}
	ids, _ := cgroup.SliceIDs(filepath.Base(path))
	if rec.Kind == store.KindSystemd {
		return scope.Open(scope.Ref{
			ID: rec.ID, Parents: ids[:len(ids)-1], Path: path, Inode: inode, Unit: filepath.Base(path),
			Anchor: anchor, AnchorEnv: sessionEnv(rec), Helper: helper, Dial: m.dial,
		})
	}
	top, err := cgroup.OpenExact(path, inode)
	if err != nil {
		return nil, err
	}
	return &cgroupBox{
		Box:    &cgroup.Box{Top: top, Work: top, Helper: helper},
		anchor: anchor, env: sessionEnv(rec),
	}, nil
}

// findBoxes walks the places where boxes can be and reads from each which
// session it is. It needs no record and no bus.
func (m *Manager) findBoxes(known map[string]store.Kind) []found {
	var all []found
	seen := map[uint64]bool{}
	for _, dir := range m.bases() {
		g, err := cgroup.Open(dir)
		if err != nil {
			continue
		}
		if !seen[g.Inode()] {
			seen[g.Inode()] = true
			all = append(all, boxesBelow(g, known)...)
		}
		g.Close()
	}
	return append(all, m.findLineages(known)...)
}

// bases are the directories that may hold boxes of ours.
func (m *Manager) bases() []string {
	mount, err := cgroup.FindMount()
	if err != nil {
		return nil
	}
	uid := os.Getuid()
	var roots []string
	if dir, err := m.cgroupRoot(mount); err == nil {
		roots = append(roots, dir)
	}
	if uid == 0 {
		roots = append(roots, mount.Point)
	}
	roots = append(roots,
		filepath.Join(mount.Point, fmt.Sprintf("user.slice/user-%d.slice/user@%d.service", uid, uid)))
	// Whatever we run in, upwards: a box may be around us.
	if own, err := cgroup.Own(mount); err == nil {
		for dir := own; len(dir) > len(mount.Point); dir = filepath.Dir(dir) {
			if filepath.Base(dir) == cgroup.Base {
				roots = append(roots, filepath.Dir(dir))
			}
		}
	}
	dirs := make([]string, len(roots))
	for i, r := range roots {
		dirs[i] = filepath.Join(r, cgroup.Base)
	}
	return dirs
}

// boxesBelow lists the boxes in a directory and those nested in them.
func boxesBelow(g *cgroup.Group, known map[string]store.Kind) []found {
	var all []found
	names, err := g.Children()
	if err != nil {
		return nil
	}
	for _, name := range names {
		ids, ok := cgroup.SliceIDs(name)
		if !ok {
			continue
		}
		kind, have := known[ids[len(ids)-1]]
		if have {
			own := 0
			if kind == store.KindSystemd && g.Has(name+"/sessionbox-"+ids[len(ids)-1]+"-main.service") {
				own = 1 // its unit
			}
			if g.CountBelow(name) <= own {
				continue // nothing is nested in it
			}
		}
		c, err := g.Child(name)
		if err != nil {
			continue
		}
		if !have {
			all = append(all, found{rec: recordOf(c, ids), path: c.Path(), ids: ids})
		}
		all = append(all, boxesBelow(c, known)...)
		c.Close()
	}
	return all
}

// recordOf rebuilds a session's record from its box.
func recordOf(g *cgroup.Group, ids []string) store.Session {
	id := ids[len(ids)-1]
	var rec store.Session
	if meta, err := g.Xattr(cgroup.MetaXattr); err == nil {
		if json.Unmarshal([]byte(meta), &rec) != nil || rec.Check() != nil || rec.ID != id {
			rec = store.Session{} // not what we wrote
		}
	}
	if rec.ID == "" {
		rec = store.Session{Schema: store.Schema, ID: id, Kind: store.KindCgroup, UID: os.Getuid()}
		if g.HasUnit() {
			rec.Kind = store.KindSystemd
		}
	}
	rec.State, rec.Path, rec.Inode = store.StateOpen, g.Path(), g.Inode()
	if len(ids) > 1 {
		rec.Parent = ids[len(ids)-2]
	}
	return rec
}
