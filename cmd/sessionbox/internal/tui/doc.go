// Package tui is the full screen of `sessionbox top`: sessions, their tasks and
// processes as a tree with what they use, and keys that freeze, thaw, kill and
// close.
//
// The model is pure: it knows no session and no clock. What it shows comes from a
// [Source], what it does is asked of it, in the background; each answer is a
// message. So the tests press keys and read the screen without a terminal.
//
// Whatever would end a process is asked first, with the names of all that it would
// end as they were when the question was put. What a process says of itself (its
// arguments) is made harmless before it is shown.
package tui
