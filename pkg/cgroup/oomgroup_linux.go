package cgroup

import "strings"

// oomGroup (Linux 4.19) says that what runs out of memory in a cgroup dies together.
const oomGroup = "memory.oom.group"

// OOMGroup has the kernel kill all that is in a leaf, which must be there, when it kills
// one of it for want of memory, or that one alone. It is read back: the error is
// fs.ErrNotExist where the memory controller does not reach down to the leaf.
func (b *Box) OOMGroup(leaf string, whole bool) error {
	g, done, err := b.group(leaf)
	if err != nil {
		return err
	}
	defer done()
	value := "0"
	if whole {
		value = "1"
	}
	if err := g.write(oomGroup, value); err != nil {
		return err
	}
	got, err := g.read(oomGroup)
	if text := strings.TrimSpace(string(got)); err == nil && text != value {
		err = g.fail("write "+value+" to", oomGroup, errNotTaken)
	}
	return err
}

// LeafMemory says whether the memory controller reaches down to the leaves of the box.
// Where the directory that holds them is not made yet it is told from the one above.
func (b *Box) LeafMemory() bool {
	work := b.WorkDir()
	if work == nil {
		return b.Top.Has("memory.events")
	}
	if b.Inner != "" {
		inner, err := work.Child(b.Inner)
		if err != nil {
			return false
		}
		defer inner.Close()
		work = inner
	}
	on, err := work.read("cgroup.subtree_control")
	return err == nil && hasWord(on, "memory")
}
