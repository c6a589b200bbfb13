package cli

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// The help of every verb is what is checked in, says the exit status and shows
// one to three examples.
func TestHelp(t *testing.T) {
	root := Root()
	root.InitDefaultHelpCmd()
	names := []string{""}
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			continue
		}
		names = append(names, c.Name())
		for _, sub := range c.Commands() {
			names = append(names, c.Name()+" "+sub.Name())
		}
	}
	for _, name := range names {
		t.Run("sessionbox "+name, func(t *testing.T) {
			var args []string
			file := "sessionbox.txt"
			if name != "" {
				args, file = strings.Fields(name), strings.ReplaceAll(name, " ", "-")+".txt"
			}
			var out, errs bytes.Buffer
			if code := Run(t.Context(), append(args, "--help"), strings.NewReader(""), &out, &errs); code != 0 || errs.Len() > 0 {
				t.Fatalf("code %d, stderr %s", code, &errs)
			}
			got := out.String()
			path := filepath.Join("testdata", "help", file)
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if !strings.Contains(got, "\nExit status:\n") {
				t.Error("no exit status")
			}
			_, examples, ok := strings.Cut(got, "Examples:\n")
			if examples, _, _ = strings.Cut(examples, "\n\n"); !ok || strings.Count(examples, "\n") > 3 {
				t.Errorf("want 1 to 3 examples, got:\n%s", examples)
			}
			for line := range strings.Lines(got) {
				if n := len([]rune(strings.TrimRight(line, "\n"))); n > 100 {
					t.Errorf("%d columns: %s", n, line)
				}
			}
			var again bytes.Buffer
			if code := Run(t.Context(), append([]string{"help"}, args...), strings.NewReader(""), &again, &errs); code != 0 || again.String() != got {
				t.Errorf("`help %s` says something else", name)
			}
		})
	}
}
