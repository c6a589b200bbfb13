// Package launchd has macOS's launchd run a program as a job, and end it.
//
// A job has a resource coalition of its own, which everything that is forked below it is in and
// cannot leave (facts/darwin.md §1): that is what a session in job mode is held by. launchd is asked
// by launchctl(1), as it has no other interface without cgo. Of what that prints nothing is used to
// say who a process is: its output is no interface. Exit codes say whether something was done;
// labels are looked for as words, to find jobs that nobody has a record of.
//
// Nothing here depends on macOS but /bin/launchctl itself, so that it is tested anywhere. It
// was never run on a Mac: the macOS tests of CI do that.
package launchd
