package scope

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
)

// Box is the box of one session: a [cgroup.Box] whose top is the session's
// slice and whose leaves are in the anchor unit. Its methods may be called from
// several goroutines.
type Box struct {
	*cgroup.Box
	// Unit is the name of the slice.
	Unit string

	spec Spec // without limits: what is needed to make the anchor again
	dial func(context.Context) (*Manager, error)

	mu    sync.Mutex // guards what follows; held while the anchor is made
	mgr   *Manager   // nil until needed
	owned bool       // dialled by us, hence closed by us
}

// Ref is what has to be recorded of a box in order to open it again.
type Ref struct {
	Path  string // directory of the slice
	Inode uint64
	Unit  string // name of the slice
	ID    string
	// Parents, Anchor, AnchorEnv and Helper as in [Spec].
	Parents   []string
	Anchor    []string
	AnchorEnv []string
	Helper    string
	// Dial is called when something needs the manager for the first time; nil
	// is the function [Dial].
	Dial func(ctx context.Context) (*Manager, error) `json:"-"`
}

// Open opens a recorded box. It talks to nobody. The errors are those of
// [cgroup.OpenExact]; a box whose directory is gone is fs.ErrNotExist.
func Open(ref Ref) (*Box, error) {
	spec := Spec{ID: ref.ID, Parents: ref.Parents, Anchor: ref.Anchor, AnchorEnv: ref.AnchorEnv, Helper: ref.Helper}
	if ref.Unit != spec.SliceUnit() {
		return nil, fmt.Errorf("open box: unit %q does not belong to session %s", ref.Unit, ref.ID)
	}
	top, err := cgroup.OpenExact(ref.Path, ref.Inode)
	if err != nil {
		return nil, err
	}
	b := newBox(spec, top)
	if ref.Dial != nil {
		b.dial = ref.Dial
	}
	if _, err := b.FindWork(); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

func newBox(spec Spec, top *cgroup.Group) *Box {
	spec.Limits, spec.Aggregate = nil, nil
	return &Box{
		Box: &cgroup.Box{
			Top: top, Helper: spec.Helper,
			// The service, or the scope of an old manager.
			WorkNames: []string{spec.serviceUnit(), spec.scopeUnit()},
		},
		Unit: spec.SliceUnit(),
		spec: spec,
		dial: Dial,
	}
}

// manager gives the connection, dialled when there is none, or when whoever made
// the box has closed it. b.mu is held.
func (b *Box) manager(ctx context.Context) (*Manager, error) {
	if b.mgr != nil && !b.mgr.isClosed() {
		return b.mgr, nil
	}
	m, err := b.dial(ctx)
	if err != nil {
		return nil, err
	}
	b.mgr, b.owned = m, true
	return m, nil
}

// Ref is what to record in order to [Open] the box again.
func (b *Box) Ref() Ref {
	return Ref{
		Path: b.Path(), Inode: b.Inode(), Unit: b.Unit, ID: b.spec.ID, Parents: b.spec.Parents,
		Anchor: b.spec.Anchor, AnchorEnv: b.spec.AnchorEnv, Helper: b.spec.Helper,
	}
}

// AnchorUnit names the anchor's unit, "" while there is none.
func (b *Box) AnchorUnit() string {
	if work := b.WorkDir(); work != nil {
		return filepath.Base(work.Path())
	}
	return ""
}

// Close releases the descriptors, and the connection if the box dialled it. The
// box stays.
func (b *Box) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mgr != nil && b.owned {
		b.mgr.Close()
	}
	b.mgr = nil
	return b.Box.Close()
}
