// Command gen writes what is made from the command itself: man pages, completion
// scripts and the schemas of its JSON. A test compares them with what is checked
// in. Run it in the root of the repository:
//
//	go run ./cmd/sessionbox/internal/gen
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

func main() {
	if err := write("docs"); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// generated are the files by their path below docs.
func generated() (map[string][]byte, error) {
	all := map[string][]byte{}
	for _, make := range []func() (map[string][]byte, error){manPages, completions, schemas} {
		files, err := make()
		if err != nil {
			return nil, err
		}
		maps.Copy(all, files)
	}
	return all, nil
}

// dirs hold nothing but generated files.
var dirs = []string{"man", "completions", "schema"}

func write(docs string) error {
	files, err := generated()
	if err != nil {
		return err
	}
	for _, d := range dirs {
		if err := os.MkdirAll(filepath.Join(docs, d), 0o755); err != nil {
			return err
		}
		have, err := os.ReadDir(filepath.Join(docs, d))
		if err != nil {
			return err
		}
		for _, e := range have { // of a verb that is no more
			if path := filepath.Join(d, e.Name()); files[path] == nil {
				if err := os.Remove(filepath.Join(docs, path)); err != nil {
					return err
				}
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if err := os.WriteFile(filepath.Join(docs, path), files[path], 0o644); err != nil {
			return err
		}
	}
	return nil
}
