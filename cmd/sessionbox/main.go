// Command sessionbox gives every session of an AI agent a box that the kernel
// enforces: closing the session ends everything that was started in it.
//
// What it does is in pkg/session; the verbs are in internal/cli, one file each.
package main

import (
	"context"
	"os"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/cli"
	"github.com/sessionbox/sessionbox/pkg/guard"
	"github.com/sessionbox/sessionbox/pkg/session"
)

func main() {
	// The process in a box and the one that waits to be put there are this
	// program, too, as is the guard: nothing may come before them.
	if code, done := guard.Helper(os.Args); done {
		os.Exit(code)
	}
	if code, done := session.Helper(os.Args); done {
		os.Exit(code)
	}
	if os.Getpid() == 1 {
		os.Exit(cli.Init(os.Args))
	}
	os.Exit(cli.Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
