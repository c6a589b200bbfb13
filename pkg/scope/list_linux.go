package scope

import (
	"context"
	"fmt"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/sessionbox/sessionbox/pkg/cgroup"
)

// Found is a session's slice that the manager knows.
type Found struct {
	Unit string
	// IDs are those of the sessions around it and its own, outermost first.
	IDs         []string
	Description string
	// ActiveState as systemctl shows it.
	ActiveState string
	// ControlGroup is where the manager put it, "" when it is not up.
	ControlGroup string
	// Path is its directory here, "" when there is none to be seen, and Inode
	// the directory's number.
	Path  string
	Inode uint64
	// Meta is what [cgroup.Box.SetMeta] stored on it. A directory with none and
	// no process in it is one that the manager has made anew after ours was
	// removed behind its back (measured on 257): like a unit without a
	// directory it can be swept.
	Meta      string
	Populated bool
}

// List gives the slices of sessions that the manager knows, for finding boxes
// that no record names and units whose box is gone. Each costs a call of its own,
// so sessions that skip says yes to are left out; nil leaves out none.
func (m *Manager) List(ctx context.Context, skip func(id string) bool) ([]Found, error) {
	mount, err := cgroup.FindMount()
	if err != nil {
		return nil, err
	}
	var units []sd.UnitStatus
	err = m.do(ctx, func(ctx context.Context, l *link, _ bool) (err error) {
		units, err = l.sd.ListUnitsByPatternsContext(ctx, nil, []string{"sessionbox-*.slice"})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list units: %w", err)
	}
	found := []Found{}
	for _, u := range units {
		ids, ok := cgroup.SliceIDs(u.Name)
		if !ok {
			continue // somebody else's idea of a name
		}
		if skip != nil && skip(ids[len(ids)-1]) {
			continue
		}
		f := Found{Unit: u.Name, IDs: ids, Description: u.Description, ActiveState: u.ActiveState}
		if f.ControlGroup, err = m.controlGroup(ctx, u.Name); err != nil {
			return nil, err
		}
		f.look(mount)
		found = append(found, f)
	}
	return found, nil
}

// look finds out what is to be seen of the unit in the cgroup tree.
func (f *Found) look(mount cgroup.Mount) {
	if f.ControlGroup == "" {
		return
	}
	dir, err := mount.Dir(f.ControlGroup)
	if err != nil {
		return
	}
	g, err := cgroup.Open(dir)
	if err != nil {
		return
	}
	defer g.Close()
	f.Path, f.Inode = dir, g.Inode()
	f.Meta, _ = g.Xattr(cgroup.MetaXattr)
	f.Populated, err = g.Populated()
	if err != nil {
		f.Populated = true // never take for empty what cannot be told
	}
}
