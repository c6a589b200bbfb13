package main

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/sessionbox/sessionbox/integration/hosts"
	"github.com/sessionbox/sessionbox/integration/membench/plan"
	"github.com/sessionbox/sessionbox/integration/membench/score"
)

// TestMemoryVM is the short of the benchmark, in one guest: a leak and a burst, without a
// guard and with one. The warning comes before the kernel would kill, and nobody but the
// one to blame is touched. `make test-vm-memory` runs it; SESSIONBOX_TEST_GUESTS names
// another generation.
func TestMemoryVM(t *testing.T) {
	if os.Getenv("SESSIONBOX_TEST_TIER") != "vm-memory" {
		t.Skip("it boots a guest: make test-vm-memory")
	}
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := hosts.CheckVM(ctx, os.Stderr); err != nil {
		t.Fatalf("no guest can be had: %v", err)
	}
	o := options{bin: build(ctx, t, "./cmd/sessionbox"), player: build(ctx, t, "./integration/membench/guest"), guards: []string{"off", "sessionbox"}}
	gen := hosts.Generation(cmp.Or(os.Getenv("SESSIONBOX_TEST_GUESTS"), string(hosts.Trixie)))
	root, err := o.root(ctx, gen)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var parts []part
	names := []string{"1", "2"}
	for _, name := range names {
		s, _ := plan.Find(name)
		for _, guard := range o.guards {
			parts = append(parts, part{s, guard})
		}
	}
	runs, err := o.boot(ctx, root, parts[0].scenario.Host, parts)
	if err != nil || len(runs) != len(parts) {
		t.Errorf("%d of %d runs were made: %v", len(runs), len(parts), err)
	}
	for i := range runs {
		if r := &runs[i]; r.Guard == "sessionbox" {
			judge(t, r, runs)
		}
	}
}

func judge(t *testing.T, r *oneRun, all []oneRun) {
	s, _ := plan.Find(r.Scenario)
	at := kill(&s, r.Guest, all)
	f := r.facts(&s)
	v := score.Judge(&s, &f, at, s.Length.Seconds())
	t.Logf("scenario %s on %s: killed at %.1f s without a guard; with one %+v, did %+v", s.Name, f.Machine, at, v, f.Acts)
	switch {
	case v.Invalid != "":
		t.Errorf("scenario %s says nothing: %s\n%s", s.Name, v.Invalid, r.Talk)
	case !v.Host:
		t.Errorf("scenario %s: the host did not survive: %s", s.Name, v.Why)
	case f.Warn == nil || *f.Warn >= at:
		t.Errorf("scenario %s: warned at %v, killed at %v s", s.Name, f.Warn, at)
	case !slices.Equal(f.Victims, s.Expect.Victims):
		t.Errorf("scenario %s: something was done to %v, want %v", s.Name, f.Victims, s.Expect.Victims)
	}
}

// build builds a program that needs nothing of a guest's libc.
func build(ctx context.Context, t *testing.T, pkg string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), filepath.Base(pkg))
	cmd := exec.CommandContext(ctx, "go", "build", "-o", out, pkg)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", pkg, err, text)
	}
	return out
}
