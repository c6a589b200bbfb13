// Package doors closes, for one command and what it starts, the ways by which it could have
// something started outside of its session's box.
//
// A process gets a user namespace and a mount namespace of its own, which needs no
// privileges (where the kernel lets users make user namespaces), and in there, before the
// command: sockets of managers and daemons are covered by something that answers to
// nobody, the cgroup file systems, the kernel's settings and sessionbox's own records are
// made read-only, typing into the terminal is refused (seccomp), and no_new_privs is set.
// Mounts are private: what is mounted outside later is not seen. A socket that appears later
// in a directory that was there is seen, also one that a daemon makes anew: the kernel takes
// away what covers a name when that is removed outside. Where a directory holds nothing else,
// all of it is covered. The directories above the records are mount points, which cannot be
// renamed; links on the way to them cannot be held, and are said to be open.
//
// The user namespace is what makes that hold: its processes have no capabilities over what
// is outside, so that they can neither undo a mount nor, by ptrace or /proc/PID/root, use
// another process's view. Root becomes a root without CAP_SYS_ADMIN. The price: ids other
// than the user's own are shown as nobody's (not to root), and set-user-id programs are
// programs like others. As ssh reads no configuration that is nobody's, what /etc/ssh/ssh_config
// includes is covered by copies.
//
// Not closed are doors that are needed for other ends, or that have no place in the file
// system; [Open] names them.
package doors
