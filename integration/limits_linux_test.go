package integration_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// ceilings opens a session with ceilings and asserts that each of them holds: by the
// word of the command, and by what the kernel has in the box. A machine without the
// controller skips, except on the tier that is there to have it.
func (r *rig) ceilings(name string, flags ...string) session.Info {
	r.t.Helper()
	info := r.inspect(r.open(name, flags...))
	holds := map[string]bool{}
	for _, c := range info.Limits {
		if !c.InForce && tierName() != "vm" {
			r.closed(info.ID)
			r.t.Skipf("%s cannot be in force here: %s", c.File, c.Why)
		}
		if !c.InForce {
			r.t.Fatalf("%s is not in force: %s", c.File, c.Why)
		}
		if got := control(r.t, info.Box.Path, c.File); got != kernelSize(c.Want.String()) {
			r.t.Errorf("%s of the box is %q and said to be %s", c.File, got, c.Want)
		}
		holds[c.File] = true
	}
	for i := 0; i < len(flags); i += 2 {
		if file := strings.NewReplacer("--", "", "-", ".").Replace(flags[i]); !holds[file] {
			r.t.Fatalf("%s is not among the ceilings of the session: %+v", file, info.Limits)
		}
	}
	return info
}

// control reads a control file of a box.
func control(t *testing.T, box, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(box, file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// kernelSize writes "512M" as the kernel does.
func kernelSize(size string) string {
	if mib, ok := strings.CutSuffix(size, "M"); ok {
		if n, err := strconv.Atoi(mib); err == nil {
			return strconv.Itoa(n << 20)
		}
	}
	return size
}

// TestCeilingsAreInForce: what was asked for is what the kernel has, and a task starts
// below it.
func TestCeilingsAreInForce(t *testing.T) {
	r := newRig(t)
	info := r.ceilings("ceilings", "--memory-max", "512M", "--pids-max", "64")
	p := r.payloads("payload")
	r.detach(info.ID, p.argv("payload")...)
	for id := range p.await(1) {
		if !slices.Contains(members(info.Box.Path), id.pid) {
			t.Errorf("%v runs outside of the box that has the ceilings", id)
		}
	}
	r.closed(info.ID, graceFlags()...)
	p.stopped()
}

// TestMemoryMax: the kernel ends who takes more than the session may have. The session
// and its other task live, and the count of such ends is told.
func TestMemoryMax(t *testing.T) {
	r := newRig(t)
	c := r.canary()
	info := r.ceilings("hog", "--memory-max", "128M")
	other, hog := r.payloads("other"), r.payloads("hog")
	r.detach(info.ID, other.argv("payload")...)
	other.await(1)
	// A life for the case that swap takes what the ceiling refuses.
	r.exec(info.ID, hog.argv("hog", "--arg", "256", "--life", "20s")...).must(t, 128+9, "exec of one that takes twice the ceiling")
	other.ticking()
	i := r.inspect(info.ID)
	if i.Usage.OOMKills == nil || *i.Usage.OOMKills == 0 {
		t.Errorf("the usage does not tell that the kernel ended one for its memory: %+v", i.Usage)
	}
	r.exec(info.ID, "true").must(t, 0, "exec after it")
	r.closed(info.ID, graceFlags()...)
	other.stopped()
	c.lives()
}

// TestLimitTooLow: a ceiling below what is in use is refused, with what the least would
// be, and taken if that is meant.
func TestLimitTooLow(t *testing.T) {
	r := newRig(t)
	info := r.ceilings("holds", "--memory-max", "512M")
	hog := r.payloads("hog")
	r.detach(info.ID, hog.argv("hog", "--arg", "128")...)
	hog.await(1) // it holds what it is to hold
	o := r.run("limit", info.ID, "--memory-max", "168M", "--json").must(t, 1, "limit below what is in use")
	for _, want := range []string{`"code":"too_low"`, "the least is", "--force"} {
		if !strings.Contains(string(o.stderr), want) {
			t.Errorf("limit does not say %s: %s", want, o.stderr)
		}
	}
	if got := control(t, info.Box.Path, "memory.max"); got != kernelSize("512M") {
		t.Errorf("memory.max is %s after a ceiling was refused", got)
	}
	r.run("limit", info.ID, "--memory-max", "256M").must(t, 0, "limit above what is in use")
	r.run("limit", info.ID, "--memory-max", "168M", "--force").must(t, 0, "limit --force")
	if got := control(t, info.Box.Path, "memory.max"); got != kernelSize("168M") {
		t.Errorf("memory.max is %s after it was forced to be 168M", got)
	}
	r.run("limit", info.ID, "--memory-max", "176M").must(t, 0, "limit that gives more")
	r.closed(info.ID, "--now")
	hog.stopped()
}

// TestControllerVanishes: the memory controller is taken away from under an open session.
// What was in force is said to be no more, and the session works on and ends as ever.
func TestControllerVanishes(t *testing.T) {
	r := newRig(t)
	info := r.ceilings("vanishes", "--memory-max", "512M")
	p := r.payloads("payload")
	r.detach(info.ID, p.argv("payload")...)
	p.await(1)
	takeAway(t, info.Box.Path, "memory")
	if _, err := os.Stat(filepath.Join(info.Box.Path, "memory.max")); err == nil {
		t.Skip("the controller is given back at once by who manages the tree")
	}
	for _, c := range r.inspect(info.ID).Limits {
		if c.File == "memory.max" && (c.InForce || !strings.Contains(c.Why, "not delegated") || c.Fix == "") {
			t.Errorf("the ceiling that vanished is said to be %+v", c)
		}
	}
	if text := r.run("ls").text(); !strings.Contains(text, "not in force") {
		t.Errorf("ls does not say it: %s", text)
	}
	r.exec(info.ID, "true").must(t, 0, "exec after it")
	r.run("stats", "--no-stream", info.ID).must(t, 0, "stats after it")
	o := r.run("limit", info.ID, "--memory-max", "256M")
	if tierName() != "vm" || r.box == "cgroup" { // a manager gives it back for that
		o.must(t, 0, "limit after it")
	}
	r.closed(info.ID, graceFlags()...)
	p.stopped()
}

// takeAway takes a controller from a box, and from all that is in it, deepest first.
func takeAway(t *testing.T, box, controller string) {
	t.Helper()
	dirs := []string{filepath.Dir(box)}
	_ = filepath.WalkDir(box, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for _, dir := range slices.Backward(dirs) {
		err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("-"+controller), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Skipf("the controller cannot be taken away here: %v", err)
		}
	}
}

// TestForkStorm: a storm that has reached the ceiling of processes and keeps trying is
// ended by one close, and cannot take a process from anybody outside.
func TestForkStorm(t *testing.T) {
	const most = 64
	for name, flags := range map[string][]string{"now": {"--now"}, "grace": graceFlags()} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c := r.canary()
			info := r.ceilings("storm-"+name, "--pids-max", strconv.Itoa(most))
			p := r.payloads("storm")
			r.detach(info.ID, p.argv("storm", "--life", patience().String())...)
			eventually(t, "a storm that has reached the ceiling", func() bool {
				n, err := strconv.Atoi(control(t, info.Box.Path, "pids.current"))
				// While the kernel refuses one, that one is counted for a moment.
				if err != nil || n > most+runtime.NumCPU() {
					t.Fatalf("pids.current is %d, error %v; the ceiling is %d", n, err, most)
				}
				return n >= most
			})
			c.lives()
			receipt := r.closed(info.ID, flags...)
			// Threads count as well: the anchor of a box and the first of the storm have some.
			if n := len(receipt.Processes); n < most/2 {
				t.Errorf("the receipt names %d processes of a storm of about %d", n, most)
			}
			for _, f := range receipt.Processes {
				if (ident{f.PID, f.Start}).alive() {
					t.Errorf("%d is alive", f.PID)
				}
			}
			if _, err := os.Stat(info.Box.Path); err == nil {
				t.Errorf("the box %s is left, with %v", info.Box.Path, members(info.Box.Path))
			}
			p.stopped()
			c.lives()
			t.Logf("%d processes ended in %.1fs", len(receipt.Processes), receipt.TookSeconds)
		})
	}
}
