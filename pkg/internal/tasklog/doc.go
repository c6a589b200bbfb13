// Package tasklog keeps the output of a task's command: one process, the pump,
// reads what the command writes and appends it to files; readers follow the files.
//
// A log is a directory, HISTORY/logs/SESSION/TASK, of segments. The name of a
// segment is the place in the log at which it begins, in bytes, so that a place
// means the same whatever was rotated away: a reader that comes to the end of one
// segment finds the next under the name of the place where it is, and one that was
// overtaken knows how much it missed. Nothing is ever renamed, and `cat DIR/*.log`
// is the whole log. At most [Segments] of them are kept.
//
// A segment has lines in the format that Kubernetes' container runtimes write
// (CRI), which log shippers know:
//
//	2026-08-01T10:20:30.123456789Z stdout F a whole line
//	2026-08-01T10:20:30.123456789Z stderr P part of a line, more follows
//	2026-08-01T10:20:30.123456789Z stdout P:lost=4096
//
// The last one is ours, and legal: 4096 bytes of stdout could not be written here,
// because the disk was full. Text is what the command wrote, byte for byte, in parts
// of at most [PartMax] bytes. What has no newline yet is written as a part after a
// moment, so that a question shows before it is answered.
//
// What it guarantees:
//
//   - The command is never held up by a full disk, by a reader, or by the end of
//     whoever started it: what cannot be written is read and dropped, and said.
//   - A reader misses nothing and repeats nothing, across rotation, while it is not
//     further behind than the log is long; otherwise it says how many bytes it missed.
//   - Who shows the output while the command runs is waited for as long as it makes
//     headway: output that goes through a slow pipe is complete however much it is.
//   - At the command's end all that it wrote is in the log before the pump says so,
//     whatever goes on writing.
//
// What it does not: order between stdout and stderr is that of reading, to some
// milliseconds. When the pump is killed the command's next write fails (SIGPIPE).
//
// The pump is the only writer and holds a lock on the file "lock" in the directory
// as long as it lives. It runs on Linux, everything else of this package anywhere.
package tasklog
