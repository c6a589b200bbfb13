// Guest is what plays a memory scenario inside a guest, and all the processes in it:
//
//	guest play SCENARIO GUARD     plays it once; records to stdout
//	guest lead DIR SCENARIO NAME  is the command in the session of that name
//	guest act DIR SCENARIO NAME ACTOR NUMBER
//	                              is one of the processes it starts
//
// GUARD is off, sessionbox, or one of the others that Debian has: earlyoom, nohang,
// systemd-oomd.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/sessionbox/sessionbox/integration/membench/plan"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "membench guest:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 3 && args[0] == "play" {
		s, ok := plan.Find(args[1])
		if !ok {
			return fmt.Errorf("no scenario %s", args[1])
		}
		return play(context.Background(), &s, args[2])
	}
	if len(args) < 4 {
		return fmt.Errorf("cannot %v", args)
	}
	s, ok := plan.Find(args[2])
	if !ok {
		return fmt.Errorf("no scenario %s", args[2])
	}
	actors := s.Outside
	if x := s.Session(args[3]); x != nil {
		actors = x.Actors
	}
	switch {
	case args[0] == "lead" && len(args) == 4:
		return lead(args[1], args[2], args[3], actors)
	case args[0] == "act" && len(args) == 6:
		i, err := strconv.Atoi(args[4])
		if err != nil || i < 0 || i >= len(actors) {
			return fmt.Errorf("no actor %s", args[4])
		}
		return act(args[1], args[3], &actors[i], args[4]+"."+args[5])
	}
	return fmt.Errorf("cannot %v", args)
}
