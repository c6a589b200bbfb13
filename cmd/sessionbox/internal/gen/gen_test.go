package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// What is checked in is what would be made now.
func TestGenerated(t *testing.T) {
	docs := "../../../../docs"
	files, err := generated()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		got, err := os.ReadFile(filepath.Join(docs, path))
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(got, want) {
			t.Errorf("docs/%s is not what would be made: run go run ./cmd/sessionbox/internal/gen", path)
		}
	}
	for _, d := range dirs {
		have, err := os.ReadDir(filepath.Join(docs, d))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range have {
			if files[d+"/"+e.Name()] == nil {
				t.Errorf("docs/%s/%s is of nothing that is there", d, e.Name())
			}
		}
	}
}
