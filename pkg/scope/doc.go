// Package scope gives a session a box that systemd knows about, over D-Bus.
//
//	sessionbox.slice                         ceilings of all sessions together
//	└─ sessionbox-<id>.slice                 the session: limits, killed and frozen as a whole
//	   ├─ sessionbox-<id>-main.service       its anchor: the one delegated unit
//	   │  ├─ anchor/                         the anchor process
//	   │  └─ task-<n>/                       one leaf for each task
//	   └─ sessionbox-<id>-<child>.slice      a session opened inside this one
//
// The slice is what counts: it lives on with no process in it, takes limits, is
// a legal parent for tools that cooperate (systemd-run --slice, podman
// --cgroup-parent), and its owner may write its cgroup.kill. But a slice cannot
// be delegated and takes no processes, so inside it one transient service is,
// and below that the leaves are ours. A scope for each command would not do:
// of 100 short ones started on systemd 252, 14 stayed active for ever, empty.
//
// The manager is needed to make the units and to take them down, not in
// between: a command enters its leaf by clone3, and kill, freeze and figures
// work on the cgroup directories (package cgroup, whose [cgroup.Box] a [Box]
// is). Only a login session, which lies below another root-owned ancestor, has
// to ask the manager to move each command: a stub waits meanwhile, and where it
// is gets read back from the kernel before it runs the command.
//
// What it guarantees: no call waits for ever. A socket has 2 s to let us in
// and 5 s to greet us, a call 5 s to be answered, a job 10 s to end. A process
// is never said to be in the box unless the kernel said so. Of several that
// create the same box one wins. A manager that re-executes meanwhile is found
// again. It never starts a bus, and never lets polkit ask anybody.
//
// What it does not: a box that cannot be reached through the manager is killed
// and removed all the same, but the unit stays known to the manager
// ([ErrUnitLeft]) until [Manager.Sweep]. Users' managers end with the last
// login unless lingering is on, and every box with them.
//
// Floor: systemd 247. ExitType= is 250; where a manager refuses it the anchor is
// a delegated scope made around a process of ours. Nothing compares versions.
package scope
