package integration_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/pkg/session"
	"golang.org/x/sys/unix"
)

// leftovers ends what the tests have left of sessions, processes, cgroups and files,
// and says what it was.
func (g *ground) leftovers() []string {
	var left []string
	left = append(left, g.sessions()...)
	left = append(left, g.processes()...)
	left = append(left, g.cgroups()...)
	return append(left, g.files()...)
}

// sessions asks the command, with a state of its own: what it lists then is known
// from the kernel alone. Root also sees what others have at the top of the machine's
// cgroups: where the suite has a root of its own that is not ours to end.
func (g *ground) sessions() []string {
	state := filepath.Join(g.tmp, "state-of-the-end")
	defer os.RemoveAll(state)
	var talk strings.Builder
	ask := func(args ...string) []byte {
		cmd := exec.Command(os.Getenv("SESSIONBOX_BIN"), args...)
		cmd.Env = append(os.Environ(), "SESSIONBOX_STATE_DIR="+state)
		cmd.Stderr = &talk
		out, _ := cmd.Output()
		return out
	}
	infos, err := decodeInfos(ask("ls", "-a", "--json"))
	if err != nil {
		return []string{"sessionbox ls -a --json: " + err.Error() + ": " + talk.String()}
	}
	var left []string
	for _, i := range infos {
		if i.State == "closed" || g.boxes != "" && !strings.HasPrefix(i.Box.Path, g.boxes+"/") {
			continue
		}
		left = append(left, fmt.Sprintf("session %s (%s) at %s", i.ID, i.State, i.Box.Path))
		ask("close", "--now", i.ID)
	}
	return left
}

// processes finds what carries the suite's mark or is in its outside cgroup, and ends
// it. A killed process needs a moment to be gone.
func (g *ground) processes() []string {
	var found []ident
	var what []string
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		found, what = g.marked()
		if len(found) == 0 || time.Now().After(end) {
			break
		}
	}
	for _, id := range found {
		if err := id.kill(); err != nil {
			what = append(what, fmt.Sprintf("end %v: %v", id, err))
		}
	}
	return what
}

func (g *ground) marked() (found []ident, what []string) {
	member := map[string]bool{}
	if g.outside != "" {
		b, _ := os.ReadFile(filepath.Join(g.outside, "cgroup.procs"))
		for pid := range strings.FieldsSeq(string(b)) {
			member[pid] = true
		}
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, []string{err.Error()}
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if !member[e.Name()] && !bytes.Contains(append([]byte{0}, env...), []byte("\x00"+g.mark+"\x00")) {
			continue
		}
		id, err := identify(pid)
		if err != nil || !id.alive() {
			continue
		}
		argv, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		found = append(found, id)
		what = append(what, fmt.Sprintf("process %v: %s", id, bytes.ReplaceAll(argv, []byte{0}, []byte{' '})))
	}
	return found, what
}

// cgroups are the boxes that still have a directory. What lies beside them is the
// command's to keep: sessionbox.slice, and leaves of those who closed from inside.
func (g *ground) cgroups() []string {
	root := g.boxes
	if root == "" {
		return nil
	}
	var left []string
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), "sessionbox-") {
			left = append(left, "cgroup "+path)
			return fs.SkipDir
		}
		return nil
	})
	return left
}

// files are all in the suite's directory that it did not build itself. The one that the
// sessions' own are made in may be there, but empty: an open that is killed between
// making it and its own leaves that, and the next close removes it.
func (g *ground) files() []string {
	entries, err := os.ReadDir(g.tmp)
	if err != nil {
		return []string{err.Error()}
	}
	var left []string
	for _, e := range entries {
		if e.Name() == fmt.Sprintf("sessionbox-%d", os.Geteuid()) {
			inside, _ := filepath.Glob(filepath.Join(g.tmp, e.Name(), "*"))
			for _, dir := range inside {
				left = append(left, "file "+dir)
			}
			continue
		}
		if e.Name() != "bin" && !strings.HasPrefix(e.Name(), "go-build") {
			left = append(left, "file "+filepath.Join(g.tmp, e.Name()))
		}
	}
	return left
}

// killGroup ends everything in a cgroup that the suite made. Where cgroup.kill is
// missing or does not reach a process (a dead leader with a live thread) each member
// is signalled.
func killGroup(top string) error {
	err := os.WriteFile(filepath.Join(top, "cgroup.kill"), []byte("1"), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		b, err := os.ReadFile(filepath.Join(top, "cgroup.events"))
		if err != nil {
			return err
		}
		if bytes.Contains(b, []byte("populated 0")) {
			return nil
		}
		for pid := range members(top) {
			signalMember(top, pid)
		}
	}
	return fmt.Errorf("%s still has processes: %v", top, members(top))
}

// signalMember kills a process if it is a member of the cgroup while a pidfd holds it.
func signalMember(top string, pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	for _, m := range members(top) {
		if m == pid {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
	}
}

// members are the processes of a cgroup and of all below it.
func members(top string) []int {
	var pids []int
	_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		b, _ := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		for f := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(f); err == nil && pid > 1 {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

// decodeInfos reads what ls --json prints.
func decodeInfos(out []byte) ([]session.Info, error) {
	var infos []session.Info
	return infos, json.Unmarshal(out, &infos)
}
