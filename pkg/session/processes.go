package session

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// ProcessOptions say how much is looked at.
type ProcessOptions struct {
	// Task gives the processes of one task; 0 those of the whole session, also
	// those in no task's leaf.
	Task int
	// Nested gives those of the sessions inside as well.
	Nested bool
	Ports  bool
}

// Processes lists what is alive in a session, oldest first.
func (m *Manager) Processes(ctx context.Context, ref string, o ProcessOptions) ([]Process, error) {
	s, err := m.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	defer s.Release()
	if o.Task != 0 && s.box != nil {
		if err := s.knowsTask(o.Task); err != nil {
			return nil, err
		}
	}
	list := []Process{}
	if s.box == nil {
		return list, nil
	}
	members, err := s.box.Members("")
	if err != nil {
		return nil, err
	}
	bySession, ours := map[string][]proc.Member{}, map[int]bool{}
	for _, mem := range members {
		id := s.rec.ID
		if nestedLeaf(mem.Leaf) {
			if id, mem.Leaf = splitNested(mem.Leaf, id); id != s.rec.ID && !o.Nested {
				continue
			}
		}
		if o.Task != 0 && (id != s.rec.ID || taskOfLeaf(mem.Leaf) != o.Task) {
			continue
		}
		ours[mem.PID] = mem.Leaf == helperLeaf
		bySession[id] = append(bySession[id], mem)
	}
	now := ticksNow()
	for id, mems := range bySession {
		tasks, _, _ := m.store.Tasks(id) // without them a command looks reparented
		list = append(list, describeAll(mems, id, tasks, o.Ports, full, now)...)
	}
	// A helper that has just ended shows no arguments that would tell it.
	list = slices.DeleteFunc(list, func(p Process) bool { return ours[p.PID] && p.State == "Z" })
	slices.SortFunc(list, func(a, b Process) int {
		if a.Start != b.Start {
			return int(int64(a.Start) - int64(b.Start))
		}
		return a.PID - b.PID
	})
	return list, nil
}

// splitNested gives the innermost session of a place in a box and the place in
// that session's own box.
func splitNested(leaf, outer string) (id, rest string) {
	parts := strings.Split(leaf, "/")
	for i, part := range slices.Backward(parts) {
		if !nestedLeaf(part) {
			continue
		}
		name := strings.TrimSuffix(part, ".slice")
		id, rest = name[strings.LastIndexByte(name, '-')+1:], filepath.Join(parts[i+1:]...)
		// Below a systemd slice is the unit, then the leaves.
		if unit, deeper, ok := strings.Cut(rest, "/"); ok && strings.Contains(unit, "-main.") {
			rest = deeper
		}
		return id, rest
	}
	return outer, leaf
}

// TaskInfo is what is known of one task of the session.
func (s *Session) TaskInfo(ctx context.Context, n int) (TaskInfo, error) {
	rec, err := s.m.store.Task(s.rec.ID, n)
	if err != nil {
		if errors.Is(err, store.ErrNotFound) {
			return s.endedTask(n)
		}
		return TaskInfo{}, err
	}
	v := view{m: s.m, rec: &s.rec, box: s.box}
	v.byTsk = map[int][]proc.Member{}
	if s.box != nil {
		if members, err := s.box.Members(LeafName(n)); err == nil && len(members) > 0 {
			v.byTsk[n] = members
		}
	}
	return v.task(&rec), nil
}

// endedTask finds a task of a session that was closed meanwhile.
func (s *Session) endedTask(n int) (TaskInfo, error) {
	if r, ok := s.m.lastReceipt(s.rec.ID); ok {
		for i := range r.Tasks {
			if r.Tasks[i].N == n {
				return r.Tasks[i], nil
			}
		}
	}
	return TaskInfo{}, noTask(s.Name(), n)
}

func noTask(name string, n int) error {
	return &Error{Kind: ErrNotFound, Session: name, Text: fmt.Sprintf("has no task %d", n),
		Hint: "`sessionbox inspect " + name + "` lists them"}
}
