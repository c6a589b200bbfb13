package main

import (
	"fmt"
	"os"
	"runtime"
)

// init keeps the main goroutine on the thread-group leader: E20 ends that thread
// alone, and E18 suspends it. A goroutine locked during init stays on the thread
// that runs main.
func init() { runtime.LockOSThread() }

func main() {
	if err := dispatch(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "escape:", err)
		os.Exit(1)
	}
}

// dispatch runs a technique, one of its later stages, or a helper by name.
func dispatch(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("usage: escape list [--json] | ID --dir DIR [flags]")
	}
	name, rest := args[0], args[1:]
	if name == "list" {
		return list(os.Stdout, len(rest) > 0 && rest[0] == "--json")
	}
	run, ok := lookup(name)
	if !ok {
		return fmt.Errorf("no technique or helper %q: see escape list", name)
	}
	p, err := parseParams(name, rest)
	if err != nil {
		return err
	}
	return run(p)
}

// lookup finds what a name stands for.
func lookup(name string) (func(params) error, bool) {
	for _, t := range techniques() {
		if t.ID == name {
			return t.run, true
		}
	}
	run, ok := stages()[name]
	return run, ok
}
