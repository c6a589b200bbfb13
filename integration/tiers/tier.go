package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sessionbox/sessionbox/integration/hosts"
)

// tierNames lists the tiers, cheapest first.
func tierNames() []string { return []string{"unit", "cgroup", "systemd", "vm"} }

// extraTiers run only when they are named.
func extraTiers() []string { return []string{"lineage"} }

// A plan is the go test of a tier.
type plan struct {
	args []string
	env  []string
	// verbose plans print the verdict of each test, so they can be counted: none
	// passed means that the tier did not run.
	verbose bool
}

// planTier prepares a tier. An error of check means that this machine cannot run it.
func planTier(ctx context.Context, name, tmp string, log io.Writer) (p plan, check, err error) {
	switch name {
	case "unit":
		return planUnit(ctx)
	case "cgroup":
		if check = hosts.CheckCgroup(); check != nil {
			return p, check, nil
		}
		p, err = planSuite(ctx, tmp, "cgroup")
		return p, nil, err
	case "lineage":
		if check = hosts.CheckCgroup(); check != nil { // the suite holds what it starts in one
			return p, check, nil
		}
		p, err = planSuite(ctx, tmp, "lineage")
		return p, nil, err
	case "systemd":
		check = hosts.CheckSystemd(ctx, log)
		return planHosts("^TestSystemd", "3h"), check, nil
	case "vm":
		check = hosts.CheckVM(ctx, log)
		return planHosts("^TestVM", "2h"), check, nil
	}
	return p, nil, fmt.Errorf("no tier %q", name)
}

// planUnit tests every package but the suite, which needs a machine to itself.
func planUnit(ctx context.Context) (p plan, check, err error) {
	out, err := goCommand(ctx, nil, "list", "./...")
	if err != nil {
		return p, nil, err
	}
	args := []string{"test", "-race", "-timeout", "20m"}
	for pkg := range strings.FieldsSeq(string(out)) {
		if !strings.HasSuffix(pkg, "/integration") {
			args = append(args, pkg)
		}
	}
	// The race detector wants cgo, whatever the caller builds with.
	return plan{args: args, env: []string{"CGO_ENABLED=1"}}, nil, nil
}

// planSuite runs the suite here on one kind of box, with the programs it expects.
func planSuite(ctx context.Context, tmp, backend string) (plan, error) {
	bin, escape := filepath.Join(tmp, "sessionbox"), filepath.Join(tmp, "escape")
	static := []string{"CGO_ENABLED=0"}
	_, err1 := goCommand(ctx, static, "build", "-o", bin, "./cmd/sessionbox")
	_, err2 := goCommand(ctx, static, "build", "-o", escape, "./integration/escape")
	if err := errors.Join(err1, err2); err != nil {
		return plan{}, err
	}
	args := []string{"test", "-v", "-count=1", "-timeout", "60m"}
	if run := os.Getenv("SESSIONBOX_TEST_RUN"); run != "" {
		args = append(args, "-run", run)
	}
	return plan{
		args: append(args, "./integration"),
		env: []string{
			"SESSIONBOX_BIN=" + bin,
			"SESSIONBOX_TEST_ESCAPE=" + escape,
			"SESSIONBOX_TEST_BACKEND=" + backend,
			"SESSIONBOX_TEST_ROUTE=root",
		},
		verbose: true,
	}, nil
}

func planHosts(run, timeout string) plan {
	return plan{
		args:    []string{"test", "-v", "-count=1", "-timeout", timeout, "-run", run, "./integration/hosts"},
		verbose: true,
	}
}

// goCommand runs the go command and returns what it printed.
func goCommand(ctx context.Context, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		text := ""
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			text = strings.TrimSpace(string(exit.Stderr))
		}
		return nil, fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, text)
	}
	return out, nil
}
