// Package watch waits for changes in one directory: files that appear in it,
// grow, or are closed by their writer.
//
// On Linux inotify wakes it, with a look every two seconds for what file systems
// do not report; elsewhere, and where the user has no inotify instance left, it
// looks five times a second. What it says is only that something may have changed:
// the caller looks for itself, and must do so after [New] as well.
package watch
