package integration_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestHazardTable: each test that hazards.md names is there, and each hazard has one.
func TestHazardTable(t *testing.T) {
	text, err := os.ReadFile("hazards.md")
	if err != nil {
		t.Skip("the sources are not here")
	}
	have := map[string]bool{}
	err = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range f.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok {
				have[fn.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		named := regexp.MustCompile(`\bTest[A-Z]\w*`).FindAllString(line, -1)
		if strings.HasPrefix(line, "| H") {
			rows++
			if len(named) == 0 {
				t.Errorf("no test: %s", line)
			}
		}
		for _, name := range named {
			if !have[name] {
				t.Errorf("%s is no test", name)
			}
		}
	}
	if rows != 20 {
		t.Errorf("%d hazards, want 20", rows)
	}
}
