package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sessionbox/sessionbox/pkg/internal/kfile"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"golang.org/x/sys/unix"
)

// Errors of this package; test with errors.Is.
var (
	// ErrReplaced: another directory stands under the recorded path.
	ErrReplaced = errors.New("the directory is another cgroup now")
	// ErrNotCgroup2: the path exists and is no cgroup v2 directory.
	ErrNotCgroup2 = errors.New("not a cgroup v2 directory")

	errNotTaken = errors.New("the kernel has another value")
)

// Group is one cgroup v2 directory.
type Group struct {
	dir  *os.File // O_RDONLY|O_DIRECTORY: reads, openat, clone3
	path string
	ino  uint64
	// childless: there was no directory in it when it was opened.
	childless bool
}

// FindMount finds the cgroup v2 mount of this mount namespace.
func FindMount() (Mount, error) {
	b, err := kfile.ReadAt(unix.AT_FDCWD, "/proc/self/mountinfo")
	if err != nil {
		return Mount{}, &os.PathError{Op: "read", Path: "/proc/self/mountinfo", Err: err}
	}
	return ParseMountinfo(bytes.NewReader(b))
}

// Own is the directory of the calling process's cgroup.
func Own(m Mount) (string, error) {
	cg, err := proc.Cgroup(os.Getpid())
	if err != nil {
		return "", err
	}
	return m.Dir(cg)
}

// Open opens the cgroup directory at an absolute path.
func Open(path string) (*Group, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return adopt(fd, path)
}

// OpenExact opens path only if it is still the directory with that inode: a
// cgroup's inode number is its id, unique for the life of the kernel.
func OpenExact(path string, inode uint64) (*Group, error) {
	g, err := Open(path)
	if err != nil {
		return nil, err
	}
	if g.ino != inode {
		g.Close()
		return nil, fmt.Errorf("%s: inode %d, not %d: %w", path, g.ino, inode, ErrReplaced)
	}
	return g, nil
}

func adopt(fd int, path string) (*Group, error) {
	var sfs unix.Statfs_t
	var st unix.Stat_t
	if err := errors.Join(unix.Fstatfs(fd, &sfs), unix.Fstat(fd, &st)); err != nil {
		unix.Close(fd)
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if sfs.Type != unix.CGROUP2_SUPER_MAGIC {
		unix.Close(fd)
		return nil, &os.PathError{Op: "open", Path: path, Err: ErrNotCgroup2}
	}
	// No netpoller: kernfs files are pollable, and a descriptor that the
	// runtime parks on EAGAIN hangs for ever (memory.reclaim does).
	return &Group{dir: os.NewFile(uintptr(fd), path), path: path, ino: st.Ino, childless: childless(&st)}, nil
}

// Child opens the directory name below g.
func (g *Group) Child(name string) (*Group, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	p := filepath.Join(g.path, name)
	fd, err := unix.Openat(g.fd(), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: p, Err: err}
	}
	return adopt(fd, p)
}

// Make makes and opens the directory name below g; fs.ErrExist if it is there.
func (g *Group) Make(name string) (*Group, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if err := unix.Mkdirat(g.fd(), name, 0o755); err != nil {
		return nil, &os.PathError{Op: "mkdir", Path: filepath.Join(g.path, name), Err: err}
	}
	return g.Child(name)
}

// Ensure opens the directory name below g, making it when it is not there.
func (g *Group) Ensure(name string) (*Group, error) {
	for range 10 { // somebody may remove it between our two steps
		c, err := g.Make(name)
		if errors.Is(err, fs.ErrExist) {
			c, err = g.Child(name)
		}
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return c, err
		}
	}
	return nil, &os.PathError{Op: "mkdir", Path: filepath.Join(g.path, name), Err: unix.EAGAIN}
}

// checkName keeps one step from being two, or none.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00\n") {
		return fmt.Errorf("bad cgroup name %q", name)
	}
	return nil
}

// Path is where the group was opened.
func (g *Group) Path() string { return g.path }

// Inode is the number of the directory, which is the kernel's cgroup id.
func (g *Group) Inode() uint64 { return g.ino }

func (g *Group) fd() int { return int(g.dir.Fd()) }

// Close releases the descriptor; the cgroup stays.
func (g *Group) Close() error { return g.dir.Close() }

// Gone says whether the directory was removed.
func (g *Group) Gone() bool {
	_, err := g.read("cgroup.events")
	return isGone(err)
}

// isGone: an open directory that was removed says ENOENT for its files, an open
// file of it ENODEV.
func isGone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV)
}

// childless tells from the link count: kernfs counts 2 and one for each directory.
func childless(st *unix.Stat_t) bool { return st.Nlink == 2 }

// CountBelow is how many directories the directory name in g has in it, 0 if it is
// gone: for a walk over many of which few are worth opening.
func (g *Group) CountBelow(name string) int {
	var st unix.Stat_t
	if err := unix.Fstatat(g.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0
	}
	return int(st.Nlink) - 2
}

// Children names the directories below g.
func (g *Group) Children() ([]string, error) {
	d, err := g.reopen()
	if err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// reopen gives a directory stream of its own, as g.dir's position is shared.
func (g *Group) reopen() (*os.File, error) {
	fd, err := unix.Openat(g.fd(), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: g.path, Err: err}
	}
	return os.NewFile(uintptr(fd), g.path), nil
}

// Has says whether the kernel offers the control file here.
func (g *Group) Has(file string) bool {
	return unix.Faccessat(g.fd(), file, unix.F_OK, 0) == nil
}

func (g *Group) read(file string) ([]byte, error) {
	fd, err := g.openFile(file, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	b, err := kfile.Read(fd)
	if err != nil {
		return nil, g.fail("read", file, err)
	}
	return b, nil
}

// write never creates: on a directory that is no cgroup it fails.
func (g *Group) write(file, value string) error {
	fd, err := g.openFile(file, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for {
		_, err = unix.Write(fd, []byte(value))
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return g.fail(fmt.Sprintf("write %q to", value), file, err)
	}
	return nil
}

func (g *Group) openFile(file string, flags int) (int, error) {
	fd, err := unix.Openat(g.fd(), file, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, g.fail("open", file, err)
	}
	return fd, nil
}

func (g *Group) fail(op, file string, err error) error {
	return &os.PathError{Op: op, Path: filepath.Join(g.path, file), Err: err}
}

// SetXattr stores a small value on the directory itself (user.* xattrs on
// cgroupfs: Linux 5.7).
func (g *Group) SetXattr(name, value string) error {
	if err := unix.Fsetxattr(g.fd(), "user."+name, []byte(value), 0); err != nil {
		return g.fail("setxattr", "user."+name, err)
	}
	return nil
}

// Xattr reads what SetXattr stored; fs.ErrNotExist when there is none.
func (g *Group) Xattr(name string) (string, error) {
	buf := make([]byte, 4096)
	for {
		n, err := unix.Fgetxattr(g.fd(), "user."+name, buf)
		switch {
		case errors.Is(err, unix.ERANGE) && len(buf) < 1<<16:
			buf = make([]byte, 1<<16) // XATTR_SIZE_MAX
		case errors.Is(err, unix.ENODATA):
			return "", fs.ErrNotExist
		case err != nil:
			return "", g.fail("getxattr", "user."+name, err)
		default:
			return string(buf[:n]), nil
		}
	}
}
