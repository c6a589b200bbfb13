package integration_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// payloads is a directory in which payloads count and say who they are.
type payloads struct {
	r   *rig
	dir string
}

// payloads makes such a directory. Payloads of other users count in it as well.
func (r *rig) payloads(name string) payloads {
	r.t.Helper()
	dir := filepath.Join(r.home, name)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		for _, id := range livingIn(dir) { // of a test that failed
			if err := id.kill(); err != nil {
				r.t.Error(err)
			}
		}
	})
	return payloads{r, dir}
}

// argv is the command line of a technique or helper that works in the directory.
func (p payloads) argv(what string, flags ...string) []string {
	return append([]string{escape(), what, "--dir", p.dir}, flags...)
}

// await waits until n processes have recorded themselves and gives all of them.
func (p payloads) await(n int) map[ident]string {
	p.r.t.Helper()
	eventually(p.r.t, fmt.Sprintf("%d payloads in %s", n, p.dir), func() bool { return len(recordedIn(p.dir)) >= n })
	return recordedIn(p.dir)
}

// ticking waits until the counter grows.
func (p payloads) ticking() {
	p.r.t.Helper()
	before := ticksIn(p.dir)
	eventually(p.r.t, "ticks in "+p.dir, func() bool { return ticksIn(p.dir) > before })
}

// stopped tells that nobody of the directory is alive and that nothing counts on.
func (p payloads) stopped() {
	p.r.t.Helper()
	for id, label := range recordedIn(p.dir) {
		if id.alive() {
			p.r.t.Errorf("payload %s %v is alive", label, id)
		}
	}
	before := ticksIn(p.dir)
	time.Sleep(500 * time.Millisecond) // ten ticks
	if after := ticksIn(p.dir); after != before {
		p.r.t.Errorf("the counter of %s went on from %d to %d", p.dir, before, after)
	}
}

// canary is a process outside of every box that has to live.
type canary struct {
	payloads
	proc  *running
	id    ident
	ended bool // by its own test
}

// canary starts one and sees at the end of the test that it lived.
func (r *rig) canary() *canary { return r.canaryWith("canary", syscall.SysProcAttr{}, escape()) }

// canaryWith starts one under another program name or in another process group. It
// is looked at once more when the test ends.
func (r *rig) canaryWith(what string, attr syscall.SysProcAttr, exe string, flags ...string) *canary {
	r.t.Helper()
	p := r.payloads("canary-" + what + "-" + tag())
	argv := p.argv(what, flags...)
	c := &canary{payloads: p, proc: r.startWith(attr, nil, exe, argv[1:]...)}
	c.id = c.proc.id
	r.t.Cleanup(func() {
		if !r.t.Skipped() {
			c.lives()
		}
		c.end()
	})
	c.await(1)
	c.ticking()
	return c
}

// lives asserts that the canary was not harmed.
func (c *canary) lives() {
	c.r.t.Helper()
	if c.ended {
		return
	}
	if !c.id.alive() {
		c.r.t.Errorf("the canary %v was killed: %s", c.id, c.proc.show())
		return
	}
	before := ticksIn(c.dir)
	for end := time.Now().Add(patience()); ticksIn(c.dir) <= before; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			c.r.t.Errorf("the canary %v is there and does not tick", c.id)
			return
		}
	}
}

// end ends the canary, once.
func (c *canary) end() {
	if c.proc == nil {
		return
	}
	if err := c.id.kill(); err != nil {
		c.r.t.Error(err)
	}
	c.proc.wait()
	c.proc, c.ended = nil, true
}

// daemon starts a fake container daemon outside of the boxes.
func (r *rig) daemon() (c *canary, socket string) {
	r.t.Helper()
	socket = filepath.Join(r.home, "daemon.sock")
	c = r.canaryWith("daemon", syscall.SysProcAttr{}, escape(), "--socket", socket)
	eventually(r.t, "socket of the daemon", func() bool { _, err := os.Stat(socket); return err == nil })
	return c, socket
}

// fuse starts a file system that never answers; path is a file in it.
func (r *rig) fuse() (c *canary, path string) {
	r.t.Helper()
	p := r.payloads("fuse")
	c = &canary{payloads: p, proc: r.start(escape(), p.argv("fuse")[1:]...)}
	c.id = c.proc.id
	r.t.Cleanup(c.end)
	eventually(r.t, "fuse mount", func() bool {
		if !c.id.alive() {
			r.t.Fatalf("no fuse here: %s", c.proc.show())
		}
		b, err := os.ReadFile(filepath.Join(p.dir, "fuse-path"))
		path = string(b)
		return err == nil && path != ""
	})
	return c, path
}

// tmuxServer starts a tmux server outside of the boxes.
func (r *rig) tmuxServer() (c *canary, socket string) {
	r.t.Helper()
	socket = filepath.Join(r.home, "tmux")
	p := r.payloads("canary-tmux")
	argv := append([]string{"-S", socket, "-f", "/dev/null", "new-session", "-d"}, "exec "+strings.Join(p.argv("canary"), " "))
	r.start("tmux", argv...).wait().must(r.t, 0, "tmux new-session")
	ids := p.await(1)
	c = &canary{payloads: p}
	for id := range ids {
		c.id = id
	}
	r.t.Cleanup(func() {
		if c.id.alive() {
			_ = c.id.kill() // with its last window the server ends
		} else if !r.t.Failed() {
			r.t.Error("the window of the shared tmux server was killed")
		}
		eventually(r.t, "end of the tmux server", func() bool {
			return exec.Command("tmux", "-S", socket, "has-session").Run() != nil
		})
	})
	return c, socket
}

// outCgroup is a cgroup outside of the boxes that a member may move itself to.
func outCgroup(t *testing.T) string {
	t.Helper()
	dir := os.Getenv(envOutside)
	if dir == "" {
		t.Skip("no cgroup outside of the boxes can be made here")
	}
	return dir
}
