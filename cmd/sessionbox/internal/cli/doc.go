// Package cli is the sessionbox command: one file per verb, each a constructor
// with an options struct. It holds no logic that a Go caller would miss: that is
// in pkg/session.
//
// What it guarantees: stdout is data, stderr is talk. Nothing below [Run] exits
// the process, reads a package variable for a flag, or asks a question. With
// --json every answer is JSON of schema 1 and every failure is one line of JSON
// on stderr. Exit codes are a function of the error alone, see errors.go.
package cli
