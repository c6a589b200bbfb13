// Package anchor is the one process of ours inside a box, in a leaf of its own.
//
// It holds the box's systemd unit open while no task runs, and it ends the task
// of a supervisor that died: a supervisor connects to it before its command
// starts and says goodbye when the command has ended. If the connection breaks
// without a goodbye, as a SIGKILL breaks it, everything in the task's leaf is
// killed. PR_SET_PDEATHSIG would not do: it reaches one process, is cleared by
// setuid programs, and fires when a mere thread ends.
//
// Whoever moves processes into a leaf has that leaf frozen meanwhile, and asks the
// anchor the other way round: when the connection breaks, or after [HoldTime], the leaf
// is thawed and lives on.
//
// It is a member of the box, so closing the session ends it as well. It may be
// killed at any time: supervisors notice and start it again.
//
// Protocol, on a unix socket in the session's directory, one line each way:
//
//	→ tie LEAF N INODE    ← ok            (or: error TEXT)
//	→ hold LEAF N INODE   ← ok
//	→ done                (then the connection is closed)
package anchor
