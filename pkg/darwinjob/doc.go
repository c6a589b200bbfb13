// Package darwinjob holds a session's processes where the kernel has no box for them:
// on macOS, and on Linux without a cgroup to write to. It finds all descendants of what
// was started in the session, records them while their ancestry can be seen, and ends
// exactly them.
//
// A [Ledger] is what is known of one session; it is plain data, so that any process can
// go on from it after a crash. [Ledger.Observe] takes a [Snapshot] of the process table and
// finds the members in it: pure logic, the same on every system. A [Lineage] works with both:
//
//	t, err := System()                              // the process table of this machine
//	l := NewLedger(id, snapshot)
//	j := New(t, l, Options{Changed: save})
//	j.AddRoot(pid, "task-1")                        // before the first instruction of the command
//	go j.Watch(ctx)                                 // records descendants as they come
//	report, err := j.Kill(ctx, "")
//
// # What makes a member
//
// Facts that the kernel keeps of a process and that only a fork can give it ([Evidence.Hard]):
// a parent that is a member, a parent's unique id, a session made by a member, the
// coalition of the session's job. Numbers that are given out again count only if they were
// shown to mean the same one before and after ([Proc.Pinned], [Number.Forks]). The session's
// random cookie in an environment, and its pipe, count less: never against a fact, and never
// for programs that serve others. What is below that bar is reported and left alone.
//
// # What it guarantees
//
//   - No signal to a process that is not a member. Each goes to a pid, start time and, on
//     macOS, unique id as one; a pid alone is never signalled, nor pid 1, ourselves, those we
//     descend from and our process group.
//   - [Lineage.Kill] says that nobody is left only after two readings in a row found nobody,
//     and stops everybody before it kills anybody, until a reading proves that nobody moves.
//   - It writes nothing and needs no record to be written while it kills.
//   - On macOS in [Job] mode, nothing that was forked in the job is left, however it was
//     forked: the kernel's count of the coalition says so. On Linux the same holds below a
//     supervisor that is a subreaper ([BecomeReaper]), for as long as that lives.
//
// # What it does not
//
//   - In [Direct] mode a process may get away whose link to its parent no reading ever showed,
//     and which then left the session by setsid, shows no environment and has closed the pipe.
//     On macOS up to 12 that takes a parent that no reading showed at all; from 15.4 on one
//     that none showed since its last exec; in between, where p_puniqueid is reset by exec, one
//     that ended before the child ran exec. On Linux it takes the death of the supervisor.
//   - Work that another daemon does on request is nobody's descendant: launchd, systemd, a
//     container engine, an existing tmux server, sshd.
//   - Members that run as another user are found and named, and cannot be ended by us.
//   - On macOS 13 to 26 a stranger is taken for a member if a debugger that is a member held
//     it while it ran exec, and if the stranger is an orphan, of our own coalition, and was in
//     no reading before: it then shows the debugger as the parent, and nothing else.
//   - Below macOS 14.2 there is no signal by identity. Between the check and the signal a pid can
//     in theory change hands; SIGSTOP goes first and is taken back, see exact.go.
//   - What is in our own process group is left alone also if it is a member, and named.
//   - There is no ceiling on memory here, only figures: who watches them is package guard.
//
// # Kernels
//
// Linux from 5.3 (pidfd_open). macOS from 11; what each version has is probed, see
// [Caps]. The macOS side was built, vetted and its layouts asserted, and never ran on a Mac:
// facts/darwin.md §8 lists what to check first.
package darwinjob
