package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sessionbox/sessionbox/integration/hosts"
)

// leakPatience is a leakWatch's patience: the kernel tears killed processes down in the
// background.
const leakPatience = 5 * time.Second

// A leakWatch finds what a tier left: processes that carry its cookie, and cgroups
// that were not there before.
type leakWatch struct {
	cookie string
	mount  string // "" without cgroup v2
	before map[string]bool
	// patience is how long what a tier started may take to be gone after it.
	patience time.Duration
}

// watchLeaks looks at the machine before a tier, after it removed what earlier runs
// left.
func watchLeaks() (*leakWatch, error) {
	if os.Geteuid() == 0 {
		if err := hosts.Sweep(); err != nil {
			return nil, fmt.Errorf("remove what earlier runs left: %w", err)
		}
	}
	w := &leakWatch{cookie: newCookie(), patience: leakPatience}
	if mount, err := hosts.CgroupMount(); err == nil {
		w.mount = mount
	}
	w.before = w.cgroups()
	return w, nil
}

func (w *leakWatch) env() string { return w.cookie }

// find waits for everything to be gone and returns what stays. Processes are ended
// then, and swept what only a killed maker leaves. A cgroup whose name does not say
// who made it is a leak if the tier is required, which is when the machine is CI's;
// elsewhere it may be a neighbour's, and is only told.
func (w *leakWatch) find(required bool, log io.Writer) []string {
	deadline := time.Now().Add(w.patience)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for clean := 0; ; {
		processes, groups := w.processes(), w.leftGroups()
		if len(processes) == 0 && len(groups) == 0 {
			// Twice: in the middle of an exec a process has no environment to show.
			if clean++; clean == 2 {
				return nil
			}
		} else if clean = 0; time.Now().After(deadline) {
			return w.report(processes, groups, required, log)
		}
		<-tick.C
	}
}

func (w *leakWatch) report(processes []int, groups []string, required bool, log io.Writer) []string {
	var leaks []string
	for _, pid := range processes {
		what, err := w.end(pid)
		if err != nil {
			fmt.Fprintln(log, "tiers:", err)
		}
		if what != "" {
			leaks = append(leaks, what)
		}
	}
	for _, g := range groups {
		if hosts.NamesMaker(filepath.Base(g)) || required {
			leaks = append(leaks, "cgroup "+g)
			continue
		}
		fmt.Fprintf(log, "tiers: cgroup %s is new since the tier began; it may be somebody else's\n", g)
	}
	if os.Geteuid() == 0 {
		if err := hosts.Sweep(); err != nil {
			fmt.Fprintln(log, "tiers:", err)
		}
	}
	return leaks
}

// processes returns who carries the cookie. A zombie has no environment any more.
func (w *leakWatch) processes() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && pid != os.Getpid() && w.carries(pid) {
			found = append(found, pid)
		}
	}
	return found
}

func (w *leakWatch) carries(pid int) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && bytes.Contains(append([]byte{0}, env...), []byte("\x00"+w.cookie+"\x00"))
}

// end kills a process that carries the cookie and says what it was. It is looked at
// again while a pidfd holds it, so that no other process can be meant.
func (w *leakWatch) end(pid int) (string, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("hold process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if !w.carries(pid) {
		return "", nil
	}
	cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // for people only
	what := fmt.Sprintf("process %d (%s)", pid, bytes.TrimSpace(bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '})))
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return what, fmt.Errorf("end process %d: %w", pid, err)
	}
	return what, nil
}

// cgroups returns the cgroups of tests and of sessions that there are now.
func (w *leakWatch) cgroups() map[string]bool {
	found := map[string]bool{}
	if w.mount == "" {
		return found
	}
	// A directory that goes away meanwhile is none to report.
	_ = filepath.WalkDir(w.mount, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		name := d.Name()
		if !strings.HasPrefix(name, "sbxtest-") && !strings.HasPrefix(name, "sessionbox") {
			return nil
		}
		found[path] = true
		return fs.SkipDir // what is below is told by its top
	})
	return found
}

// leftGroups returns the cgroups that are new. One whose maker lives is not left: the
// maker is either ours, and then a leak itself, or a neighbour.
func (w *leakWatch) leftGroups() []string {
	var left []string
	for path := range w.cgroups() {
		name := filepath.Base(path)
		if !w.before[path] && (hosts.IsStale(name) || !hosts.NamesMaker(name)) {
			left = append(left, path)
		}
	}
	return left
}
