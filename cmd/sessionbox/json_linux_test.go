package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// box is a session world of its own for a test that runs the program itself.
type box struct {
	t *testing.T
	g *ground
}

func newBox(t *testing.T) *box {
	t.Helper()
	if !haveCgroup() {
		if err := needed("cgroup"); err != nil {
			t.Fatal(err)
		}
		t.Skip("needs root and a writable cgroup v2")
	}
	g, err := newGround(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.clear(); err != nil {
			t.Error(err)
		}
	})
	return &box{t, g}
}

func (b *box) command(args ...string) *exec.Cmd {
	cmd := exec.Command("sessionbox", args...)
	cmd.Env = append(os.Environ(), b.g.env...)
	return cmd
}

// run runs the program; code is the exit code that it must have.
func (b *box) run(code int, args ...string) (stdout, stderr []byte) {
	b.t.Helper()
	cmd := b.command(args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = 300 * time.Millisecond // what is left behind may hold our pipe
	cmd.Run()
	if got := cmd.ProcessState.ExitCode(); got != code {
		b.t.Fatalf("sessionbox %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, code, out.Bytes(), errs.Bytes())
	}
	return out.Bytes(), errs.Bytes()
}

// schema is one that is checked in.
func schema(t *testing.T, name string) *jsonschema.Resolved {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs/schema", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func valid(t *testing.T, name string, doc []byte) {
	t.Helper()
	var v any
	if err := json.Unmarshal(doc, &v); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, doc)
	}
	if err := schema(t, name).Validate(v); err != nil {
		t.Errorf("%s: %v\n%s", name, err, doc)
	}
}

// validEach validates the items of a list that must not be empty.
func validEach(t *testing.T, name string, doc []byte) {
	t.Helper()
	var list []json.RawMessage
	if err := json.Unmarshal(doc, &list); err != nil || len(list) == 0 {
		t.Fatalf("%s: want a list with something in it (%v)\n%s", name, err, doc)
	}
	for _, item := range list {
		valid(t, name, item)
	}
}

// What every verb answers is what the schemas say.
func TestJSON(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	ok := func(args ...string) []byte {
		out, _ := b.run(0, append(args, "--json")...)
		return out
	}
	fails := func(code int, args ...string) {
		t.Helper()
		_, errs := b.run(code, args...)
		lines := bytes.Split(bytes.TrimSpace(errs), []byte("\n"))
		if len(lines) != 1 {
			t.Fatalf("%v: want one line on stderr, got %s", args, errs)
		}
		valid(t, "error", lines[0])
	}
	valid(t, "version", ok("version"))
	validEach(t, "check", ok("doctor"))
	valid(t, "list", ok("ls"))
	valid(t, "info", ok("open", "--name", "work", "--memory-max", "1G", "--label", "a=b"))
	out, _ := b.run(0, "exec", "-d", "--json", "work", "--", "sh", "-c", "setsid sleep 300 & sleep 300")
	valid(t, "task", out)
	_, errs := b.run(5, "exec", "--json", "work", "--", "sh", "-c", "setsid sleep 300 & exit 5")
	valid(t, "task", errs)
	b.run(0, "exec", "work", "--", "sessionbox", "open", "--name", "sub")
	b.run(0, "exec", "-d", "sub", "--", "sleep", "300")
	valid(t, "list", ok("ls"))
	valid(t, "list", ok("tree"))
	valid(t, "info", ok("inspect", "work"))
	validEach(t, "process", ok("ps", "work"))
	for line := range bytes.Lines(ok("stats", "--no-stream")) {
		valid(t, "stats", line)
	}
	validEach(t, "ceiling", ok("limit", "work", "--pids-max", "50"))
	validEach(t, "info", ok("freeze", "work"))
	validEach(t, "info", ok("thaw", "work"))
	validEach(t, "receipt", ok("close", "work", "--dry-run"))
	validEach(t, "killed", ok("kill", "work/1"))
	valid(t, "task", ok("wait", "work/1"))
	fails(2, "ls", "--json", "--nothing")
	fails(3, "inspect", "--json", "nix")
	fails(7, "open", "--json", "--name", "work")
	fails(124, "wait", "--json", "work", "--for", "empty", "--timeout", "0.1")
	fails(127, "exec", "--json", "work", "--", "no-such-command")
	fails(125, "exec", "--json", "nix", "--", "true")
	validEach(t, "receipt", ok("close", "work"))
	validEach(t, "receipt", ok("history"))
	valid(t, "list", ok("ls", "-a"))
	for line := range bytes.Lines(ok("events")) {
		valid(t, "event", line)
	}
	_, errs = b.run(0, "run", "--json", "--", "sh", "-c", "sleep 300 &")
	lines := bytes.SplitN(bytes.TrimSpace(errs), []byte("\n"), 2)
	valid(t, "receipt", lines[0])
	if len(lines) > 1 {
		valid(t, "task", lines[1])
	}
}
