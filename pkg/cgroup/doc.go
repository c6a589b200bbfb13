// Package cgroup works on cgroup v2 directories: start a command in one, list
// what is in it, freeze it, signal it, kill until the kernel says that it is
// empty, remove it, read its figures.
//
// A [Group] is one directory held by descriptor with its inode remembered, so
// that a directory made anew under an old name is never taken for the old one.
// A [Box] is the tree of one session: a top directory, and a leaf for each task.
//
// What it guarantees: [Group.Kill] returns nil only after the kernel said
// "populated 0". No signal goes to a process that was not, through a pidfd held
// at that moment, a member of the group. Removing is rmdir only: nothing but an
// empty cgroup directory can go.
//
// What it does not: it writes cgroup.subtree_control only where that moves
// nobody's processes, so a ceiling may be impossible; [Box.SetLimits] says which
// ones are in force. It does not find processes that left the group.
//
// What the kernel killed for want of memory is counted where it was, and the limit
// where it was hit ([Box.Tally]); both go with the directory, so that they are read
// before that is removed. Who it was is in the kernel's log alone, which not everybody
// may read and which tells of a few only when there are many.
//
// Kernels: 5.7 for clone3 into a cgroup, 5.14 for cgroup.kill (below it the
// group is frozen and each member signalled), 5.19 for memory.peak and memory.reclaim
// (below it [Box.Reclaim] says that it cannot). All of it is
// probed, no version is compared.
package cgroup
