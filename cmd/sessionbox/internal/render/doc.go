// Package render writes sessions, receipts and processes as text for people. It
// is pure: what it writes depends on its arguments alone, time and the width of
// the terminal included.
//
// Whatever comes from a process (its name, its arguments) is made harmless
// first: a control character in it could rewrite the terminal.
package render
