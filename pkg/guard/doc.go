// Package guard watches the sessions of one user: it knows when something is to be
// done about one, and leaves what to [session.Manager.Reconcile].
//
// A guard sleeps in one epoll until something happens: an owner, or another process
// whose end matters, has ended (a pidfd, Linux 5.3); a lease, an idle time or a time
// limit is over (a timer on CLOCK_MONOTONIC, which nobody can set and which stands
// still with the machine); a record has changed (inotify). Without cause it does not
// wake: once in fifteen minutes, while there is a session with an owner or a time
// limit, it looks at everything as a net. Where the kernel has no inotify watch left
// it reads the records every two seconds instead, and looks each minute.
//
// It guarantees:
//
//   - The end of an owner is acted on at once; what takes long for one session, a
//     close with its grace, delays no other. What fails is tried again after one
//     second, then two, up to a minute.
//   - There is one guard for a state directory, by a lock that the kernel drops with
//     the process. One that was started on demand gives way to one that was started by
//     hand or is installed as a service, once that one is ready.
//   - It keeps nothing that is not in the records and the kernel: killed at any moment,
//     the next one carries on.
//   - One that was started on demand ends when for ten seconds there was nothing to
//     watch; no session that is opened meanwhile is missed, see [session.Manager.EnsureGuard].
//   - It lies outside of every session's box, so that closing one does not end it.
//
// # Memory
//
// Beside that loop, in a thread of its own, it watches the memory of sessions that have
// a ceiling or ask for it, of the cgroups around them and of the host, as pkg/memlimit
// says. Who is at rest is looked at once a second by one short read (every two seconds
// where there is no memory controller). In between, up to four times a second where a low
// ceiling could be filled in that time, one look at what the machine has left shows whether
// any of them has stirred. The kernel wakes it when a limit is met
// (memory.events) or processes stall (a pressure trigger, where it may have one). With
// no such session it does not look at all. It guarantees:
//
//   - A warning is in the history, in the log and in the metrics, and given to the
//     session's command and the desktop; none of them is waited for by who watches.
//   - Nothing but that is done that the session's record does not ask for. What is done
//     goes through the session's lock and the inode of its box, and is an event with its
//     reason; a brake that is lifted and set again each minute is one the first time.
//   - New sessions are held by a word in the guard's lock file: without a guard nobody is.
//   - Who is frozen for want of memory is known by its record: the next guard thaws it. So
//     is who has a brake (memory.high): a guard that ends takes it away, the next one, a
//     reconcile or who uses the session does so for one that was killed. A memory.high that was asked for and that
//     it has lifted, from who stood at it, is in the record as well: the next guard or a
//     reconcile sets it again when there is room below it.
//
// The v2 memory controller tells what is used. Without it the controller of cgroup v1
// is asked if the session has a group of that to itself, which a box does not give it;
// else its processes are added up, which warns of a ceiling that nobody enforces: page
// cache, socket buffers and what the kernel holds are not known then. A limit of the v1
// group that the guard itself is charged to counts as one around all sessions.
//
// On macOS the processes of a session are added up by phys_footprint, which the system's own
// monitors show, and the host is judged by the kernel's own scale (see memlimit.Mac), asked once a
// second. Nothing is done there at a warning of the host's: from critical on, as elsewhere.
//
// It does not watch what it cannot see: an owner in another pid namespace is left to
// whoever is there. On other systems than Linux it looks once a second.
package guard
