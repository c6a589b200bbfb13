package tmpdir

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// again runs one test of this program once more, as another user or in namespaces of
// its own.
func again(t *testing.T, attr *syscall.SysProcAttr, env ...string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), append(env, "TMPDIR_TEST_AGAIN=1")...)
	cmd.SysProcAttr = attr
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) {
		t.Skipf("no namespaces here: %v", err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "--- PASS") {
		t.Fatalf("it did not run:\n%s", out)
	}
}

func isAgain() bool { return os.Getenv("TMPDIR_TEST_AGAIN") != "" }

// Directories without permission bits are their owner's all the same.
func TestRemoveForbidden(t *testing.T) {
	if !isAgain() && os.Geteuid() == 0 { // root needs no permission
		work, err := os.MkdirTemp("", "sbxtmp-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(work)
		if err := os.Chown(work, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		again(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}, "TMPDIR="+work)
		return
	}
	dir := made(t)
	out, lives := canary(t)
	for _, mode := range []os.FileMode{0, 0o100, 0o200, 0o400, 0o500} {
		sub := filepath.Join(dir, fmt.Sprintf("m%03o", mode))
		err := errors.Join(os.MkdirAll(filepath.Join(sub, "inner", "x"), 0o700), os.Symlink(filepath.Join(out, "nest"), filepath.Join(sub, "link")),
			os.Chmod(filepath.Join(sub, "inner"), mode), os.Chmod(sub, mode))
		if err != nil {
			t.Fatal(err)
		}
	}
	deepen(t, dir, 200)
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	if err := remove(dir); err != nil {
		t.Error(err)
	}
	gone(t, dir)
	lives()
}

// What is mounted inside is neither emptied nor removed, be it a bind mount of the same
// file system.
func TestRemoveMounted(t *testing.T) {
	if !isAgain() {
		attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		if uid := os.Geteuid(); uid != 0 {
			attr.Cloneflags |= syscall.CLONE_NEWUSER
			attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
			attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
		}
		again(t, attr)
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	dir := made(t)
	out, lives := canary(t)
	file := filepath.Join(dir, "file")
	bind, deep, tmpfs := filepath.Join(dir, "bind"), filepath.Join(dir, "a", "b", "bind"), filepath.Join(dir, "tmpfs")
	err := errors.Join(os.Mkdir(bind, 0), os.MkdirAll(deep, 0o700), os.Mkdir(tmpfs, 0o700), os.WriteFile(file, nil, 0o600),
		unix.Mount(out, bind, "", unix.MS_BIND, ""), unix.Mount(out, deep, "", unix.MS_BIND, ""),
		unix.Mount(filepath.Join(out, "canary"), file, "", unix.MS_BIND, ""),
		unix.Mount("none", tmpfs, "tmpfs", 0, ""), os.WriteFile(filepath.Join(tmpfs, "kept"), nil, 0o600),
		os.WriteFile(filepath.Join(dir, "a", "goes"), nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	err = remove(dir)
	left, ok := errors.AsType[*Left](err)
	if !ok || left.Count != 4 || !errors.Is(left, unix.EBUSY) {
		t.Errorf("Remove = %v; want 4 left, busy", err)
	}
	for _, p := range left.Paths {
		if p != bind && p != deep && p != tmpfs && p != file {
			t.Errorf("left: %s, where nothing is mounted", p)
		}
	}
	lives()
	for _, p := range []string{filepath.Join(tmpfs, "kept"), filepath.Join(dir, markFile)} {
		if _, err := os.Stat(p); err != nil {
			t.Errorf("it must stay: %v", err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "a", "goes")); err == nil {
		t.Error("what lies beside was not removed")
	}
	// The check that does not lean on the kernel's EBUSY.
	r := remover{base: -1}
	parent, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = r.mountOf(parent)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bind", "tmpfs"} {
		if _, err := r.open(parent, name); !errors.Is(err, unix.EBUSY) {
			t.Errorf("open of the mount %s: %v; want EBUSY", name, err)
		}
	}
	unix.Close(parent)
	for _, m := range []string{bind, deep, tmpfs, file} {
		if err := unix.Unmount(m, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := remove(dir); err != nil {
		t.Error(err)
	}
	gone(t, dir)
	lives()
}

// A file that may not be removed is named, and the rest goes.
func TestRemoveImmutable(t *testing.T) {
	dir := made(t)
	file := filepath.Join(dir, "sub", "immutable")
	if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o700), os.WriteFile(file, nil, 0o600), os.WriteFile(filepath.Join(dir, "sub", "other"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	flag := func(on bool) error {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		v, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
		if err != nil {
			return err
		}
		v &^= unix.STATX_ATTR_IMMUTABLE
		if on {
			v |= unix.STATX_ATTR_IMMUTABLE // the same bit as FS_IMMUTABLE_FL
		}
		return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(v))
	}
	if err := flag(true); err != nil {
		t.Skipf("no file can be made immutable here: %v", err)
	}
	defer flag(false)
	err := remove(dir)
	left, ok := errors.AsType[*Left](err)
	if !ok || left.Count != 1 || left.Paths[0] != file || !errors.Is(left, unix.EPERM) {
		t.Errorf("Remove = %v; want %s left, not permitted", err, file)
	}
	if _, err := os.Stat(filepath.Join(dir, "sub", "other")); err == nil {
		t.Error("what lies beside was not removed")
	}
	if err := flag(false); err != nil {
		t.Fatal(err)
	}
	if err := remove(dir); err != nil {
		t.Error(err)
	}
	gone(t, dir)
}

// Somebody outside of the session swaps a directory and a link to the canary, as fast as
// he can, while it is being removed.
func TestRemoveRaced(t *testing.T) {
	out, lives := canary(t)
	dir := made(t)
	x, y := filepath.Join(dir, "x"), filepath.Join(dir, "y")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if unix.Renameat2(unix.AT_FDCWD, x, unix.AT_FDCWD, y, unix.RENAME_EXCHANGE) != nil {
				os.Symlink(out, y)
			}
		}
	})
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	met := 0
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		os.MkdirAll(filepath.Join(x, "nest", "x"), 0o700)
		r := remover{ctx: t.Context(), base: -1}
		if err := r.mountOf(fd); err != nil {
			t.Fatal(err)
		}
		r.remove(fd, "x", x, 1)
		if errors.Is(r.left.Err, unix.EISDIR) { // first a directory, then none
			met++
		}
	}
	close(stop)
	wg.Wait()
	lives()
	t.Logf("a link was met %d times where a directory had been", met)
	// The moment of the swap itself: the directory was seen, and is a link when opened.
	r := remover{ctx: t.Context(), base: -1}
	err = errors.Join(r.mountOf(fd), os.Symlink(out, filepath.Join(dir, "swapped")))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.descend(fd, "swapped", filepath.Join(dir, "swapped"), 1); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("descend into a link: %v; want ENOTDIR", err)
	}
	lives()
	if err := remove(dir); err != nil {
		t.Error(err)
	}
	gone(t, dir)
}
