// Package store keeps the records of sessions and tasks, and their history. It
// is file I/O and nothing else: it never asks the kernel who is alive, starts
// nothing and signals nothing. Records say what a thing was called; whether it
// still lives is for the callers to find out.
//
// # Layout
//
// Below the state directory S and the history directory H (see [DefaultDirs]):
//
//	S/names.lock                flock, held only while a name changes hands
//	S/turn.lock                 flock: whose turn it is at the systemd manager
//	S/turn-close-N.lock         flock: whose turn it is at closing a lineage box
//	S/owed                      names of units that are left to tell the manager of
//	S/crontab.lock              flock: who changes the user's crontab
//	S/lineage                   there if sessions may be held by their lineage alone
//	S/boxless-<id>              there if a recorded session may have no box any more
//	S/names/<name>              symlink to the id: the claim of a name
//	S/sessions/<id>/session.json
//	S/sessions/<id>/lock        flock: shared = starting a task, exclusive = changing; holds the next task number
//	S/sessions/<id>/close.lock  flock, held by whoever closes the session
//	S/sessions/<id>/tasks/<n>.json
//	H/history-YYYY-MM.jsonl     one event per line, by UTC month
//
// Directories are 0700 and files 0600.
//
// # What it guarantees
//
//   - A name belongs to one session that is not closed, however many processes
//     claim it at once. A task number is given out once in the life of a session.
//   - A record appears whole or not at all: sessions and tasks are written to a
//     temporary file (".tmp-…") in the same directory and renamed or linked, so
//     that a writer killed at any instruction leaves the old record, the new one,
//     or a temporary file that a later writer removes after [StaleAge].
//   - Readers take no lock and create nothing. A record that cannot be read, for
//     whatever reason, costs that record: listings return it as a [*BadRecord]
//     next to the good ones. Reading never blocks (no FIFO, no device, no symlink
//     is followed) and never takes more than [MaxRecord] bytes.
//   - A directory or record of another user is refused and named.
//   - Fields this version does not know survive a rewrite, at the top level and
//     inside known objects (creator, limits, …).
//   - Failures keep their cause: errors.Is finds syscall.ENOSPC, EROFS, EACCES.
//     History has its own methods and its own directory, so that a full history
//     disk fails no session. Locks can be taken on a read-only file system.
//
// # What it does not
//
//   - Nothing is synced to disk. State is meant for a tmpfs and dies with the
//     boot, as the processes it names do; after a power cut on a real disk a
//     record may be empty, which makes it a BadRecord.
//   - flock keeps cooperating processes of one machine apart. It is not a
//     defence against the user's own other programs, and not for NFS: there the
//     fairness of [Store.Lock] is lost, exclusion depends on the mount.
//   - Strings that are not valid UTF-8 (an argv may be) are stored with U+FFFD.
//   - If neither XDG_RUNTIME_DIR nor /run/user/<uid> is usable, records are kept
//     in the temporary directory; once the login makes /run/user/<uid>, they are
//     not looked for there any more. The kernel objects still say what they are.
//
// # Order of locks
//
// LockClose, then LockChange or LockStart; the lock for names is internal, taken
// last. Nobody may take LockChange while holding LockStart on the same session: the
// two exclude each other even within one process.
package store
