package integration_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything may take before it counts as hanging: seconds on a
// machine, more in an emulated guest. Nothing is asserted to be faster than that.
func patience() time.Duration {
	if tierName() == "vm" {
		return 3 * time.Minute
	}
	return 40 * time.Second
}

// rig is what one test works with: a state directory of its own, and the command.
type rig struct {
	t     *testing.T
	home  string // files of this test
	env   []string
	box   string // kind of box that sessions get
	group *os.File
}

// newRig skips the test where the suite cannot run.
func newRig(t *testing.T) *rig {
	t.Helper()
	applies(t)
	if reason := os.Getenv(envSkip); reason != "" {
		t.Skipf("tier %s cannot run: %s", tierName(), reason)
	}
	dir, err := os.MkdirTemp("", "t-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, home: dir, box: backend()}
	// A guard would act between the steps of a test; those that are about it turn it on.
	r.env = append(os.Environ(), "SESSIONBOX_STATE_DIR="+filepath.Join(dir, "state"), "SESSIONBOX_GUARD=off")
	if outside := os.Getenv(envOutside); outside != "" && os.Geteuid() == 0 {
		// As root all that a test starts begins in the suite's own cgroup. Others may
		// not enter it from where they are; what they start carries the mark.
		if r.group, err = os.Open(outside); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		r.closeAll()
		r.endRest()
		if r.group != nil {
			r.group.Close()
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return r
}

// closeAll ends what a test that failed has left open.
func (r *rig) closeAll() {
	infos, err := decodeInfos(r.run("ls", "--json").stdout)
	if err != nil {
		r.t.Errorf("sessionbox ls --json: %v", err)
	}
	for _, i := range infos {
		if i.State != "closed" {
			r.run("close", "--now", i.ID)
		}
	}
}

// endRest waits for what still uses the test's state directory, which is about to be
// removed: a guard that was just started, say, would make it anew.
func (r *rig) endRest() {
	word := "\x00SESSIONBOX_STATE_DIR=" + filepath.Join(r.home, "state") + "\x00"
	eventually(r.t, "the end of what uses the state directory", func() bool {
		r.endGuard()
		return len(marked(word)) == 0
	})
}

// output is what a finished command has left.
type output struct {
	code           int // 128+n for a signal, as in a shell
	stdout, stderr []byte
	took           time.Duration
}

// running is a command that may still run.
type running struct {
	r        *rig
	cmd      *exec.Cmd
	id       ident
	out, err string // files: what outlives a command would keep a pipe open
	began    time.Time
}

// bin is the command under test; escape the program of the payloads.
func bin() string    { return os.Getenv("SESSIONBOX_BIN") }
func escape() string { return os.Getenv("SESSIONBOX_TEST_ESCAPE") }

// run runs the command under test to its end.
func (r *rig) run(args ...string) output {
	r.t.Helper()
	return r.start(bin(), args...).wait()
}

// start starts any program, below the suite's cgroup where that can be.
func (r *rig) start(name string, args ...string) *running {
	r.t.Helper()
	return r.startWith(syscall.SysProcAttr{}, nil, name, args...)
}

// startWith also sets process attributes, and what stdout and stderr are if not files
// that the result shows.
func (r *rig) startWith(attr syscall.SysProcAttr, stdout *os.File, name string, args ...string) *running {
	r.t.Helper()
	p := &running{r: r, began: time.Now()}
	cmd := exec.Command(name, args...)
	if filepath.Base(name) != name {
		cmd.Path = name
	}
	if r.group != nil {
		attr.UseCgroupFD, attr.CgroupFD = true, int(r.group.Fd())
	}
	cmd.SysProcAttr = &attr
	cmd.Env = r.env
	for _, f := range []struct {
		path *string
		w    func(*os.File)
	}{
		{&p.out, func(f *os.File) { cmd.Stdout = f }},
		{&p.err, func(f *os.File) { cmd.Stderr = f }},
	} {
		file, err := os.CreateTemp(r.home, "out-")
		if err != nil {
			r.t.Fatal(err)
		}
		defer file.Close()
		*f.path = file.Name()
		f.w(file)
	}
	if stdout != nil {
		cmd.Stdout, cmd.Stderr = stdout, stdout
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatalf("start %s %q: %v", name, args, err)
	}
	p.cmd = cmd
	id, err := identify(cmd.Process.Pid)
	if err != nil {
		r.t.Fatal(err) // not reaped yet, so it must be there
	}
	p.id = id
	return p
}

// wait waits for the end, for as long as patience lasts.
func (p *running) wait() output {
	p.r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience())
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = p.cmd.Process.Kill() })
	err := p.cmd.Wait()
	if !stop() {
		p.r.t.Fatalf("%q hangs\n%s", p.cmd.Args, p.show())
	}
	o := output{took: time.Since(p.began)}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		o.code = exit.ExitCode()
		if ws := exit.Sys().(syscall.WaitStatus); ws.Signaled() {
			o.code = 128 + int(ws.Signal())
		}
	} else if err != nil {
		p.r.t.Fatalf("%q: %v", p.cmd.Args, err)
	}
	o.stdout, _ = os.ReadFile(p.out)
	o.stderr, _ = os.ReadFile(p.err)
	return o
}

// show is what it has printed so far.
func (p *running) show() string {
	out, _ := os.ReadFile(p.out)
	errs, _ := os.ReadFile(p.err)
	return "stdout: " + string(out) + "\nstderr: " + string(errs)
}

// must fails the test if the exit code is another one.
func (o output) must(t *testing.T, code int, what string) output {
	t.Helper()
	if o.code != code {
		t.Fatalf("%s: exit code %d, want %d\nstdout: %s\nstderr: %s", what, o.code, code, o.stdout, o.stderr)
	}
	return o
}

// text is stdout without the last newline.
func (o output) text() string { return strings.TrimSpace(string(bytes.TrimSpace(o.stdout))) }

// eventually looks at cond until it holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience()); ; time.Sleep(20 * time.Millisecond) {
		if cond() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience())
		}
	}
}
