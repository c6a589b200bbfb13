package hosts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// killTimeout bounds the wait for a killed cgroup to become empty. A process in
// the middle of disk I/O takes its time; one that takes longer is reported.
const killTimeout = 20 * time.Second

// A group is a cgroup that this process made: all that a host, a guest or a build
// consists of runs in it, and ends with it.
type group struct {
	path string
}

// CgroupMount returns where cgroup v2 is mounted on this machine.
func CgroupMount() (string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("find cgroup v2: %w", err)
	}
	defer f.Close()
	return cgroup2Mount(f)
}

// newGroup makes a cgroup below the v2 mount, after it swept what killed runs left.
func newGroup() (*group, error) {
	if err := sweepGroups(); err != nil {
		return nil, err
	}
	mount, err := CgroupMount()
	if err != nil {
		return nil, err
	}
	name, err := ownName()
	if err != nil {
		return nil, err
	}
	g := &group{path: filepath.Join(mount, name)}
	if err := os.Mkdir(g.path, 0o755); err != nil {
		return nil, fmt.Errorf("make the cgroup of a test host: %w", err)
	}
	return g, nil
}

// open returns a descriptor to start a process in the cgroup, or in one below it.
func (g *group) open(below string) (*os.File, error) {
	f, err := os.Open(filepath.Join(g.path, below))
	if err != nil {
		return nil, fmt.Errorf("enter the cgroup of a test host: %w", err)
	}
	return f, nil
}

// close kills everything in the cgroup, waits until the kernel says that it is
// empty and removes it with all below it. It may be called again.
func (g *group) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	err := os.WriteFile(filepath.Join(g.path, "cgroup.kill"), []byte("1"), 0)
	if errors.Is(err, fs.ErrNotExist) {
		if _, statErr := os.Stat(g.path); errors.Is(statErr, fs.ErrNotExist) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("kill a test host: %w", err)
	}
	if err := g.waitEmpty(ctx); err != nil {
		return err
	}
	return g.remove()
}

// waitEmpty waits for the kernel to say that no process is left. The timeout of
// each poll only bounds how late a cancelled ctx is seen.
func (g *group) waitEmpty(ctx context.Context) error {
	f, err := os.Open(filepath.Join(g.path, "cgroup.events"))
	if err != nil {
		return fmt.Errorf("watch a test host end: %w", err)
	}
	defer f.Close()
	buf := make([]byte, 256)
	for {
		n, err := f.ReadAt(buf, 0)
		if n == 0 && err != nil {
			return fmt.Errorf("watch a test host end: %w", err)
		}
		if strings.Contains(string(buf[:n]), "populated 0\n") {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%s still has processes: %w", g.path, err)
		}
		_, err = unix.Poll([]unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLPRI}}, 500)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("watch a test host end: %w", err)
		}
	}
}

// remove removes the empty cgroup bottom-up.
func (g *group) remove() error {
	var dirs []string
	err := filepath.WalkDir(g.path, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("list the cgroups of a test host: %w", err)
	}
	for _, dir := range slices.Backward(dirs) {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
			return &os.PathError{Op: "rmdir", Path: dir, Err: err}
		}
	}
	return nil
}

// sweepGroups ends what runs that were killed outright have left.
func sweepGroups() error {
	mount, err := CgroupMount()
	if errors.Is(err, errNoCgroup2) {
		return nil
	}
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(mount)
	if err != nil {
		return fmt.Errorf("sweep test cgroups: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if e.IsDir() && IsStale(e.Name()) {
			errs = append(errs, (&group{path: filepath.Join(mount, e.Name())}).close())
		}
	}
	return errors.Join(errs...)
}
