package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// stopTimeout is how long tests that were interrupted get to close their hosts.
const stopTimeout = 60 * time.Second

// runTier runs one tier and looks for what it left.
func runTier(ctx context.Context, name string, required bool, stdout, stderr io.Writer) (r result) {
	r.tier = name
	tmp, err := os.MkdirTemp("", "sbxtest-tier-")
	if err != nil {
		r.failed = append(r.failed, err.Error())
		return r
	}
	defer os.RemoveAll(tmp)
	p, check, err := planTier(ctx, name, tmp, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "tiers:", err)
		r.failed = append(r.failed, "it could not be prepared")
		return r
	}
	if check != nil {
		r.skipped = check.Error()
		return r
	}

	watch, err := watchLeaks()
	if err != nil {
		r.failed = append(r.failed, err.Error())
		return r
	}
	p.env = slices.Concat(p.env, []string{"SESSIONBOX_TEST_TIER=" + name, watch.env()})
	count := &counter{w: stdout}
	err = goTest(ctx, p, count, stderr)
	r.counts, r.broken = count.counts, count.failures
	r.judge(err, p.verbose)
	for _, leak := range watch.find(required, stderr) {
		r.failed = append(r.failed, "it left "+leak)
	}
	return r
}

// judge decides from how go test ended and what it counted.
func (r *result) judge(err error, verbose bool) {
	ran := r.counts.packages > 0
	if verbose {
		ran = r.counts.passed > 0
	}
	switch {
	case err != nil && r.counts.failed > 0:
		r.failed = append(r.failed, strings.Join(r.broken.leaves(), ", ")+" failed")
	case err != nil:
		r.failed = append(r.failed, err.Error()+": "+r.broken.outside())
	case !ran && r.counts.skipped > 0:
		r.skipped = "every test was skipped"
	case !ran:
		r.skipped = "there are no tests"
	}
}

// goTest runs go test in a process group of its own and hands interrupts on to all of
// it: go test waits for the test binary, and that one closes its hosts.
func goTest(ctx context.Context, p plan, stdout, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, "go", p.args...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.WaitDelay = stopTimeout
	inOwnGroup(cmd)
	cmd.Cancel = func() error { return interruptGroup(cmd) }
	err := cmd.Run()
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

// cookieName marks everything that a tier starts, in its environment.
const cookieName = "SESSIONBOX_TEST_COOKIE"

func newCookie() string { return cookieName + "=" + rand.Text() }
