// Package supervise says how a command in front of us is started and which
// signals it is given, so that it behaves as if nobody stood between it and its
// caller.
//
// In the foreground of a controlling terminal the command stays in our process
// group: the terminal gives Ctrl-C, Ctrl-\ and Ctrl-Z to both, once. We catch
// SIGINT and SIGQUIT and drop them, and leave SIGTSTP and SIGCONT alone, so that
// job control stops and continues both. What else reaches us (TERM, HUP, USR1…)
// came to us alone and is handed on.
//
// Otherwise the command gets a process group of its own and what people and
// programs send to a command is handed on: HUP, INT, QUIT, TERM, USR1, USR2, ALRM,
// TSTP, CONT, WINCH. CHLD, PIPE and URG the kernel and Go's runtime send to a
// process about itself; TTIN and TTOU, when caught, make the system call that raised
// them start again for ever. The real-time signals end us, and with us the command:
// to catch one costs the runtime two switches of threads, all thirty of them as much
// as the start of a program.
//
// Signals are caught, never ignored: a child inherits that a signal is ignored.
// One that is ignored when we start stays so, for the same reason: nohup and the
// shell's & mean the command.
//
// What it does not: it cannot tell a SIGINT that somebody sent to us alone from
// one that the terminal sent to the group; in the foreground both are dropped.
package supervise
