// Escape plays the processes that a session must not lose and those that it
// must not harm.
//
// Every technique by which work gets away from the thing that started it has an
// id (E01 to E30, letters for variants) and is one subcommand:
//
//	escape E05 --dir DIR [--life 10m]
//
// is to be started as a session's command. What it leaves running ticks: each
// payload appends a byte to DIR/counter every 50 ms and a line "PID START LABEL" to
// DIR/pids when it begins, so that a test can say which processes there were and
// that nothing of them goes on. `escape list --json` prints the table: what a
// technique needs, whether its root exits, how many payloads to wait for and what a
// close has to do about them.
//
// The other subcommands are the surroundings that a test needs outside of the box:
// a canary that has to live, a daemon that starts work on request, a client of a
// port, a file system that never answers.
//
// Nothing here can stay for ever. Each payload ends by itself when its life is over,
// also one that a failed test forgot, and nothing runs without a throttle: the fork
// storms are bounded in number and in time.
//
// One static binary, no C and no interpreter: it is copied into hosts that have
// neither, so it starts itself again wherever a technique needs another process.
// Only what is a shell's or a program's own way of escaping (E03, E08, tmux, at,
// systemd-run, ssh) runs that program. It is made for Linux 5.4 and later; a
// technique that the running kernel or user cannot do says so in "missing".
//
// Two techniques of the list are not here. A crontab entry (E29) takes up to a
// minute to start and leaves the same evidence as the transient service, none. A
// container of a real daemon (E30) needs an image; the fake daemon does to the
// process tree what a real one does. There is no E13 and no E17.
package main
