// Package keeper starts the command of a lineage box, and stays with what it starts.
//
// Where no kernel object holds a session, the ancestry of its processes is what tells that
// they are its own, and ancestry is lost when a parent ends. So each command has a keeper:
// a process of ours that is its parent and, on Linux, the one to which all orphans below it
// are given (PR_SET_CHILD_SUBREAPER). It records who comes, in the session's directory,
// collects who has ended, and ends when nobody is left. It is no member of the session, and
// carries none of its marks.
//
// The caller's child is not the keeper but the front: it ends with the command, while the
// keeper stays for what the command left behind. If the keeper is killed its children
// become the front's, which then goes on in its stead until the command has ended. With
// both gone, what they recorded, the cookie and the session numbers are left to find them by.
//
//	caller ── front ── keeper ── command ── …
//
// In a session that is a launchd job (macOS) the keeper is the stub's child instead, see stub.go.
//
// A command may be tied to its caller: when the caller dies without having said goodbye
// ([Tie.Release]) all that the command started is ended.
//
// They talk by pipes only: an [Order] to the keeper, lines of JSON ([word]) back to the caller, and
// to the front. The command gets the caller's files, directory, terminal, limits and group
// through both of them.
package keeper
