// Package doors closes, for one command and what it starts, the ways by which it could have
// something started outside of its session's box.
//
// A process gets a user namespace and a mount namespace of its own, which needs no
// privileges (where the kernel lets users make user namespaces), and in there, before the
// command: sockets of managers and daemons are covered by something that answers to
// nobody, the cgroup file systems, the kernel's settings and sessionbox's own records are
// made read-only, and no_new_privs is set. Mounts are private: what is mounted outside later is not seen, a
// socket that appears later in a directory that was there is.
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
