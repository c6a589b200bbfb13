package cli

import (
	"strings"

	"github.com/sessionbox/sessionbox/pkg/store"
	"github.com/spf13/cobra"
)

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no argument %q", cmd.Name(), args[0]).hintf("`%s --help` shows its use", cmd.CommandPath())
	}
	return nil
}

// someArgs wants at least least and, unless it is -1, at most most arguments.
func someArgs(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usagef("%s: which session?", cmd.Name()).hintf("usage: %s; `sessionbox ls` lists the sessions", cmd.UseLine())
		case most >= 0 && len(args) > most:
			return usagef("%s: unexpected argument %q", cmd.Name(), args[most]).hintf("usage: %s", cmd.UseLine())
		}
		return nil
	}
}

// splitRef takes SESSION or SESSION/TASK apart.
func splitRef(ref string) (name string, task int, err error) {
	name, task, err = store.SplitRef(ref)
	if err != nil {
		return "", 0, usagef("%v", err).hintf("a task is named SESSION/NUMBER")
	}
	return name, task, nil
}

// sessionRef refuses a task where a session is wanted.
func sessionRef(ref string) error {
	if ref == "" {
		return usagef("\"\" names no session").hintf("is a variable empty? `sessionbox ls` lists the sessions")
	}
	if strings.Contains(ref, "/") {
		return usagef("%q names a task, a session is wanted", ref).hintf("leave out what follows the slash")
	}
	return nil
}
