// Package session is the front door: it opens, finds and closes sessions, and
// starts commands in them.
//
// A session is a box, a boundary that the kernel keeps, with a record beside it.
// The kernel says what is alive; the record only says what it was called. Every
// command started in a session is a task with a leaf of the box to itself, so
// that one task can be ended with all that it started, however that was started:
// in a process group of its own, a session of its own, by a double fork.
//
//	m, err := session.New(session.Config{})
//	s, err := m.Open(ctx, session.OpenOptions{Name: "work"})
//	t, err := s.Start(ctx, exec.Command("npm", "test"), session.StartOptions{})
//	result, err := t.Wait()
//	receipt, err := m.Close(ctx, s.ID(), session.CloseOptions{})
//
// What it guarantees:
//
//   - [Manager.Close] returns nil only when the kernel says that nothing is left
//     in the box, and two readings of all processes found none that carries the
//     session's cookie outside of it.
//   - No process is signalled by its pid: always through a pidfd, after it was
//     proven to be a member of the box, or to carry the cookie.
//   - Any process of ours may be killed at any instruction. The record is written
//     before the box is made and removed after it is gone; a box whose record was
//     lost says by itself which session it is. What was begun is finished, or
//     cleared away, by the next close.
//   - Ending things needs neither a bus nor room on a disk.
//
// Where there is no cgroup that may be written, and on macOS, the box is a lineage
// ([store.KindLineage]): nothing that the kernel keeps, but the ancestry of the processes,
// recorded by a keeper of each task (package keeper). [BoxInfo].Containment says so, and
// Receipt.Suspects names what was left alone. Close then returns nil when two readings of all
// processes in a row found none of it. [OpenOptions].RequireKernel refuses it. On macOS it can be
// a launchd job ([LineageJob]): then the coalition of that, which nothing forked in it leaves, has to
// be empty as well.
//
// What it does not: a process that another user's or the system's daemon starts
// on request (docker run, systemd-run, at) was never in the box. Those that
// carry the cookie are ended as strays, the others are not known here. Processes
// that were adopted carry no cookie: the box holds them, and nothing finds one that
// has left it.
//
// [OpenOptions].Strict keeps commands from asking, as far as the kernel lets a user do that
// (package doors). With [OpenOptions].Container they run in an OCI container whose cgroup
// is in the box: what ends the box ends the container, whatever becomes of its runtime.
//
// Order of steps, locks: package store. Entering a box: packages cgroup and
// scope. The process of ours that stays in each box: package anchor. The one that
// keeps what a command writes: package tasklog.
package session
